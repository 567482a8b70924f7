//! Look-ups through a directory's htree.
//!
//! A search goes from the root to one leaf, one block a level. Names that share a hash may go on in the next leaf:
//! then that leaf's index entry says so, and the search follows.

use crate::checked::Checked;
use crate::dir::Found;
use crate::name::Wanted;
use crate::{Ext4, Place, Result, Snapshot, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::hash::{HashVersion, MajorHash};
use dentree_ext4_format::htree::{IndexBlock, IndexEntry, IndexRoot};
use dentree_ext4_format::{Incompat, LogicalBlock, Problem};

/// An index block on the way from the root, and the entry that the way goes through.
pub(crate) struct Frame {
    pub(crate) buffer: Buffer,
    pub(crate) place: Place,
    pub(crate) block: LogicalBlock,
    pub(crate) at: usize,
}

impl Frame {
    pub(crate) fn is_root(&self) -> bool {
        self.block.0 == 0
    }
}

/// The index blocks from the root to a leaf.
pub(crate) struct Way {
    /// The root first.
    pub(crate) frames: Vec<Frame>,
    pub(crate) leaf: IndexEntry,
}

impl Ext4 {
    /// The way to the first leaf that may hold names of `hash`.
    pub(crate) fn way_to(&self, dir: &Snapshot, hash: MajorHash) -> Result<Way> {
        let mut frame = self.index_frame(dir, LogicalBlock(0))?;
        let parsed = self.parse_root(&frame.buffer).map_err(|problem| frame.place.corrupt(problem))?;
        let levels = parsed.indirect_levels;
        frame.at = parsed.entries.find(hash);
        let mut leaf = self.entry_of(&frame)?;
        let mut frames = vec![frame];
        for _ in 0..levels {
            let mut frame = self.index_frame(dir, leaf.block)?;
            frame.at = self.parse_index(&frame)?.find(hash);
            leaf = self.entry_of(&frame)?;
            frames.push(frame);
        }
        Ok(Way { frames, leaf })
    }

    /// How the names of an indexed directory are hashed.
    pub(crate) fn index_hash(&self, dir: &Snapshot) -> Result<HashVersion> {
        let root = self.index_frame(dir, LogicalBlock(0))?;
        let parsed = self.parse_root(&root.buffer).map_err(|problem| root.place.corrupt(problem))?;
        Ok(parsed.hash_version)
    }

    /// Searches the leaves that may hold the name.
    pub(crate) fn find_indexed(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let Some(hash) = wanted.hash(self.index_hash(dir)?, self.hash_seed()) else {
            return self.find_linearly(dir, wanted);
        };
        let Way { frames: mut way, mut leaf } = self.way_to(dir, hash)?;
        // Each leaf is another block, so there cannot be more of them than the directory has blocks.
        for _ in 0..self.dir_blocks(dir)? {
            if let Some(found) = self.search_leaf(dir, leaf.block, wanted)? {
                return Ok(Some(found));
            }
            leaf = match self.advance(dir, &mut way, hash)? {
                Some(next) => next,
                None => return Ok(None),
            };
        }
        let place = dir.place(Structure::DirectoryIndex(LogicalBlock(0)));
        Err(place.corrupt(Problem::Missing { what: "an end to the leaves of one hash" }))
    }

    /// Moves to the next leaf if names of `hash` may go on there.
    fn advance(&self, dir: &Snapshot, way: &mut Vec<Frame>, hash: MajorHash) -> Result<Option<IndexEntry>> {
        let levels = way.len();
        while let Some(mut frame) = way.pop() {
            frame.at += 1;
            let Some(mut entry) = self.parse_index(&frame)?.get(frame.at) else { continue };
            if !entry.continues(hash) {
                return Ok(None);
            }
            way.push(frame);
            while way.len() < levels {
                let first = self.index_frame(dir, entry.block)?;
                entry = self.entry_of(&first)?;
                way.push(first);
            }
            return Ok(Some(entry));
        }
        Ok(None)
    }

    /// Reads an index block and verifies it whole.
    fn index_frame(&self, dir: &Snapshot, block: LogicalBlock) -> Result<Frame> {
        let (buffer, place) = self.dir_block(dir, block, dir.place(Structure::DirectoryIndex(block)))?;
        let frame = Frame { buffer, place, block, at: 0 };
        let seed = dir.inode.checksum_seed;
        let summed = self.sb.has_metadata_csum().then_some(seed);
        let index = self.parse_index(&frame)?;
        self.check_once(place, &frame.buffer, Checked::DirectoryIndex(seed), || index.verify(summed))?;
        Ok(frame)
    }

    pub(crate) fn parse_root<'a>(&self, bytes: &'a [u8]) -> Result<IndexRoot<'a>, Problem> {
        let large_dir = self.sb.incompat.has(Incompat::LARGEDIR);
        IndexRoot::parse(bytes, self.hash_sign(), large_dir, self.sb.has_metadata_csum())
    }

    pub(crate) fn parse_index<'a>(&self, frame: &'a Frame) -> Result<IndexBlock<'a>> {
        let block = if frame.is_root() {
            self.parse_root(&frame.buffer).map(|root| root.entries)
        } else {
            IndexBlock::parse_node(&frame.buffer, self.sb.has_metadata_csum())
        };
        block.map_err(|problem| frame.place.corrupt(problem))
    }

    /// The entry that the way goes through.
    fn entry_of(&self, frame: &Frame) -> Result<IndexEntry> {
        let missing = Problem::Missing { what: "an index entry" };
        self.parse_index(frame)?.get(frame.at).ok_or_else(|| frame.place.corrupt(missing))
    }
}
