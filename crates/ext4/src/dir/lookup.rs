//! Look-ups through a directory's htree.
//!
//! A search goes from the root to one leaf, one block a level. Names that share a hash may go on in the next leaf:
//! then that leaf's index entry says so, and the search follows.

use super::format::Found;
use super::name::Wanted;
use crate::inode::Snapshot;
use crate::verified::Checked;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::hash::{HashVersion, MajorHash};
use dentree_ext4_format::htree::{IndexBlock, IndexEntry, IndexRoot};
use dentree_ext4_format::{Incompat, InodeFlags, LogicalBlock, Problem};
use std::ops::ControlFlow;

/// How often a leaf may be split under who wants to change it before that has the directory alone, and under who looks up.
pub(super) const TRIES: usize = 8;

/// An index block on the way from the root, and the entry that the way goes through.
#[derive(Clone)]
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
    /// What was looked for.
    pub(crate) hash: MajorHash,
    /// How the names of the directory are hashed.
    pub(crate) version: HashVersion,
}

/// The leaves that may hold names of one hash, and the index blocks that say so.
struct Leaves {
    blocks: Vec<LogicalBlock>,
    seen: Vec<Frame>,
}

impl Ext4 {
    /// The inode under a name of a directory that others may be changing (P2).
    pub(crate) fn look_up(&self, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
        let mut before = dir.snapshot();
        let Some(writer) = &self.writer else { return self.find_name(&before, name) };
        for _ in 0..TRIES {
            let outcome = self.find_name(&before, name);
            let after = dir.snapshot();
            let is_believed = match &outcome {
                Ok(Some(_)) => {
                    before.inode.flags == after.inode.flags && tree_depth(&before) == tree_depth(&after)
                }
                Ok(None) => has_same_layout(&before, &after),
                Err(_) => break,
            };
            if is_believed {
                return outcome;
            }
            before = after;
        }
        let _still = writer.directories.tree_alone(before.ino);
        self.find_name(&dir.snapshot(), name)
    }

    pub(super) fn find_name(&self, dir: &Snapshot, name: &[u8]) -> Result<Option<Found>> {
        let wanted = self.wanted(dir, name).ok_or(Error::InvalidName)?;
        self.find_entry(dir, &wanted)
    }

    /// The inode under a name: through the htree where the directory has one.
    pub(crate) fn find_entry(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        if self.is_indexed(dir) {
            return self.find_indexed(dir, wanted);
        }
        self.find_linearly(dir, wanted)
    }

    /// Searches one leaf, which no index block can be.
    pub(crate) fn search_leaf(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>> {
        let (buffer, place) = self.promised_leaf(dir, block)?;
        for entry in self.entries(&buffer) {
            let entry = entry.map_err(|problem| place.corrupt(problem))?;
            if wanted.is(entry.name) {
                let start = u64::from(block.0) << self.sb.block_size.log2();
                let position = start + u64::try_from(entry.start).unwrap_or(u64::MAX);
                let (lookup, leaf) = (self.lookup_of(&entry), Some(place));
                return Ok(Some(Found { lookup, position, leaf }));
            }
        }
        Ok(None)
    }

    /// Searches every entry: of directories without an index, or with one that needs a key to be used.
    pub(crate) fn find_linearly(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let mut found = None;
        self.each_entry(dir, 0, &mut |entry, end| {
            if !wanted.is(entry.name) {
                return Ok(ControlFlow::Continue(()));
            }
            let position = end - u64::try_from(entry.end - entry.start).unwrap_or(0);
            found = Some(Found { lookup: self.lookup_of(&entry), position, leaf: None });
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// The entry of a name that must be there.
    pub(super) fn entry_at(&self, dir: &Snapshot, name: &[u8]) -> Result<Found> {
        let wanted = self.wanted(dir, name).ok_or(Error::InvalidName)?;
        self.find_entry(dir, &wanted)?.ok_or_else(|| Ext4::no_entry(dir))
    }

    /// The entry of a name that must be there, and name this inode.
    pub(super) fn entry_for(&self, dir: &Snapshot, name: &[u8], node: &Node) -> Result<Found> {
        let found = self.entry_at(dir, name)?;
        let ino = dentree_vfs::Ino(u64::from(node.snapshot().ino.0));
        if found.lookup.ino == ino { Ok(found) } else { Err(Ext4::no_entry(dir)) }
    }

    /// The way to the first leaf that may hold a name; `None` where only a key could tell.
    pub(crate) fn way_for(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Way>> {
        let seed = self.hash_seed();
        self.way_by(dir, |version| wanted.hash(version, seed))
    }

    /// The way to the first leaf that may hold names of the hash that `hash` answers.
    pub(crate) fn way_by(
        &self,
        dir: &Snapshot,
        hash: impl FnOnce(HashVersion) -> Option<MajorHash>,
    ) -> Result<Option<Way>> {
        let mut frame = self.index_frame(dir, LogicalBlock(0))?;
        let parsed = self.parse_root(&frame.buffer).map_err(|problem| frame.place.corrupt(problem))?;
        let (levels, version) = (parsed.indirect_levels, parsed.hash_version);
        let Some(hash) = hash(version) else { return Ok(None) };
        frame.at = parsed.entries.find(hash);
        let mut leaf = self.entry_of(&frame)?;
        let mut frames = Vec::with_capacity(1 + usize::from(levels));
        frames.push(frame);
        for _ in 0..levels {
            let mut frame = self.index_frame(dir, leaf.block)?;
            frame.at = self.parse_index(&frame)?.find(hash);
            leaf = self.entry_of(&frame)?;
            frames.push(frame);
        }
        Ok(Some(Way { frames, leaf, hash, version }))
    }

    /// Searches the leaves that may hold the name.
    pub(crate) fn find_indexed(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let Some(way) = self.way_for(dir, wanted)? else { return self.find_linearly(dir, wanted) };
        settle(
            self.leaves_of(dir, way)?,
            |leaves| {
                for &leaf in &leaves.blocks {
                    if let Some(found) = self.search_leaf(dir, leaf, wanted)? {
                        return Ok(Some(found));
                    }
                }
                Ok(None)
            },
            |leaves| {
                if self.writer.is_none() || self.are_current(&leaves.seen) {
                    return Ok(None);
                }
                let Some(way) = self.way_for(dir, wanted)? else { return Ok(None) };
                let now = self.leaves_of(dir, way)?;
                Ok((now.blocks != leaves.blocks).then_some(now))
            },
        )
    }

    /// The leaves that may hold names of the hash that the way is for: that one, and those after it that go on with the hash.
    fn leaves_of(&self, dir: &Snapshot, mut way: Way) -> Result<Leaves> {
        let mut blocks = vec![way.leaf.block];
        let mut seen = Vec::new();
        // Each leaf is another block, so there cannot be more of them than the directory has blocks.
        for _ in 0..self.dir_blocks(dir)? {
            let goes_on = self.entry_behind(&way)?.is_some_and(|next| next.continues(way.hash));
            if !goes_on || !self.advance(dir, &mut way, &mut seen)? {
                seen.append(&mut way.frames);
                return Ok(Leaves { blocks, seen });
            }
            blocks.push(way.leaf.block);
        }
        let place = dir.place(Structure::DirectoryIndex(LogicalBlock(0)));
        Err(place.corrupt(Problem::Missing { what: "an end to the leaves of one hash" }))
    }

    /// The entry with the hash that the next leaf begins with, which need not be the one that leads to it: where an index block ends that of the next stands
    /// above, so that nobody has to read that one to learn that it does not matter.
    fn entry_behind(&self, way: &Way) -> Result<Option<IndexEntry>> {
        for frame in way.frames.iter().rev() {
            if let Some(entry) = self.parse_index(frame)?.get(frame.at + 1) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Moves to the next leaf, if there is one. Index blocks that the way led through before are added to `seen`.
    pub(crate) fn advance(&self, dir: &Snapshot, way: &mut Way, seen: &mut Vec<Frame>) -> Result<bool> {
        let levels = way.frames.len();
        while let Some(mut frame) = way.frames.pop() {
            frame.at += 1;
            let Some(mut entry) = self.parse_index(&frame)?.get(frame.at) else {
                seen.push(frame);
                continue;
            };
            way.frames.push(frame);
            while way.frames.len() < levels {
                let first = self.index_frame(dir, entry.block)?;
                // Its first entry has no hash of its own: that stands above.
                let below = self.entry_of(&first)?;
                entry = entry.leading_to(below.block);
                way.frames.push(first);
            }
            way.leaf = entry;
            return Ok(true);
        }
        Ok(false)
    }

    /// The first index blocks below the root, no more than `most`; none where the root leads to leaves.
    pub(crate) fn below_root(&self, dir: &Snapshot, most: usize) -> Result<Vec<LogicalBlock>> {
        let root = self.index_frame(dir, LogicalBlock(0))?;
        let parsed = self.parse_root(&root.buffer).map_err(|problem| root.place.corrupt(problem))?;
        let count = if parsed.indirect_levels == 0 { 0 } else { most };
        let end = self.dir_blocks(dir)?;
        let blocks = (0..count).map_while(|at| parsed.entries.get(at)).map(|entry| entry.block);
        Ok(blocks.filter(|block| block.0 < end).collect())
    }

    /// Whether index blocks are still the versions that were read; of one that nobody has in memory any more that is not known.
    pub(crate) fn are_current(&self, frames: &[Frame]) -> bool {
        frames.iter().all(|Frame { buffer, place, .. }| {
            place.block.is_some_and(|at| self.cache.is_newest(at.0, buffer))
        })
    }

    /// Reads an index block and verifies it whole.
    pub(crate) fn index_frame(&self, dir: &Snapshot, block: LogicalBlock) -> Result<Frame> {
        let place = dir.place(Structure::DirectoryIndex(block));
        let (buffer, place) = self.dir_block_often(dir, block, place)?;
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

/// Searches where `way` leads until that has not moved in the meantime. `moved` answers the way as it is now if it is another.
pub(crate) fn settle<W, R, E>(
    way: W,
    mut search: impl FnMut(&W) -> std::result::Result<Option<R>, E>,
    mut moved: impl FnMut(&W) -> std::result::Result<Option<W>, E>,
) -> std::result::Result<Option<R>, E> {
    let mut way = way;
    loop {
        if let Some(found) = search(&way)? {
            return Ok(Some(found));
        }
        match moved(&way)? {
            Some(other) => way = other,
            None => return Ok(None),
        }
    }
}

/// Whether two snapshots of a directory say the same of where its names are.
fn has_same_layout(a: &Snapshot, b: &Snapshot) -> bool {
    let layout = |dir: &Snapshot| (dir.inode.size, dir.inode.flags, dir.inode.block);
    std::ptr::eq(a, b) || layout(a) == layout(b) && (!a.has(InodeFlags::INLINE_DATA) || a.tail == b.tail)
}

/// `eh_depth` of a root: a tree that was folded into the inode has lost a block.
fn tree_depth(dir: &Snapshot) -> Option<&[u8]> {
    dir.inode.block.get(6..8)
}
