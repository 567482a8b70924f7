//! Lookups and htree paths: one block per level. The next leaf may continue the names of a hash;
//! its index entry then says so. `lock.rs` argues why lookups take no lock.

use super::format::Found;
use super::name::SearchName;
use crate::inode::Snapshot;
use crate::verified::VerifiedAs;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::hash::{HashVersion, MajorHash};
use dentree_ext4_format::htree::{IndexBlock, IndexEntry, IndexRoot};
use dentree_ext4_format::{Incompat, InodeFlags, LogicalBlock, Problem};
use dentree_vfs::Lookup;
use std::ops::ControlFlow;

/// Retries after a concurrent split before taking the lock exclusively.
pub(super) const TRIES: usize = 8;

/// An index block and the entry taken (`dx_frame`).
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

pub(crate) struct HtreePath {
    /// Root first.
    pub(crate) frames: Vec<Frame>,
    pub(crate) leaf: IndexEntry,
    pub(crate) hash: MajorHash,
    pub(crate) version: HashVersion,
}

/// Leaves that may hold names of one hash.
struct Leaves {
    blocks: Vec<LogicalBlock>,
    index_frames: Vec<Frame>,
}

impl Ext4 {
    /// Guarantee P2 of `lock.rs`.
    pub(crate) fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Option<Lookup>> {
        let lookup = |found: Option<Found>| found.map(|found| found.lookup);
        let mut before = dir.snapshot();
        let Some(writer) = &self.writer else { return self.find_name(&before, name).map(lookup) };
        for _ in 0..TRIES {
            let outcome = self.find_name(&before, name);
            let after = dir.snapshot();
            let is_valid = match &outcome {
                Ok(Some(_)) => {
                    before.inode.flags == after.inode.flags && tree_depth(&before) == tree_depth(&after)
                }
                Ok(None) => has_same_layout(&before, &after),
                Err(_) => break,
            };
            if is_valid {
                return outcome.map(lookup);
            }
            before = after;
        }
        let _tree = writer.directories.tree_alone(before.ino);
        self.find_name(&dir.snapshot(), name).map(lookup)
    }

    pub(super) fn find_name(&self, dir: &Snapshot, name: &[u8]) -> Result<Option<Found>> {
        let search_name = self.search_name(dir, name).ok_or(Error::InvalidName)?;
        self.find_entry(dir, &search_name)
    }

    pub(crate) fn find_entry(&self, dir: &Snapshot, search_name: &SearchName<'_>) -> Result<Option<Found>> {
        if self.is_indexed(dir) {
            return self.find_in_htree(dir, search_name);
        }
        self.find_linear(dir, search_name)
    }

    pub(crate) fn search_leaf(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        search_name: &SearchName<'_>,
    ) -> Result<Option<Found>> {
        let (buffer, place) = self.indexed_leaf(dir, block)?;
        for entry in self.entries(&buffer) {
            let entry = entry.map_err(|problem| place.corrupt(problem))?;
            if search_name.matches(entry.name) {
                let start = u64::from(block.0) << self.sb.block_size.log2();
                let position = start + u64::try_from(entry.start).unwrap_or(u64::MAX);
                let (lookup, leaf) = (self.lookup_of(&entry), Some(place));
                return Ok(Some(Found { lookup, position, leaf }));
            }
        }
        Ok(None)
    }

    /// Used without an index, or without the key to hash.
    pub(crate) fn find_linear(&self, dir: &Snapshot, search_name: &SearchName<'_>) -> Result<Option<Found>> {
        let mut found = None;
        self.each_entry(dir, 0, &mut |entry, end| {
            if !search_name.matches(entry.name) {
                return Ok(ControlFlow::Continue(()));
            }
            let position = end - u64::try_from(entry.end - entry.start).unwrap_or(0);
            found = Some(Found { lookup: self.lookup_of(&entry), position, leaf: None });
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// An absent name is an error.
    pub(super) fn existing_entry(&self, dir: &Snapshot, name: &[u8]) -> Result<Found> {
        let search_name = self.search_name(dir, name).ok_or(Error::InvalidName)?;
        self.find_entry(dir, &search_name)?.ok_or_else(|| Ext4::no_entry(dir))
    }

    /// An absent name or another inode is an error.
    pub(super) fn entry_of_node(&self, dir: &Snapshot, name: &[u8], node: &Node) -> Result<Found> {
        let found = self.existing_entry(dir, name)?;
        let ino = dentree_vfs::Ino(u64::from(node.snapshot().ino.0));
        if found.lookup.ino == ino { Ok(found) } else { Err(Ext4::no_entry(dir)) }
    }

    /// The path to the first leaf that may hold a name. `None` if hashing needs a key.
    pub(crate) fn path_for(&self, dir: &Snapshot, search_name: &SearchName<'_>) -> Result<Option<HtreePath>> {
        let seed = self.hash_seed();
        self.path_by_hash(dir, |version| search_name.hash(version, seed))
    }

    pub(crate) fn path_by_hash(
        &self,
        dir: &Snapshot,
        hash: impl FnOnce(HashVersion) -> Option<MajorHash>,
    ) -> Result<Option<HtreePath>> {
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
        Ok(Some(HtreePath { frames, leaf, hash, version }))
    }

    pub(crate) fn find_in_htree(
        &self,
        dir: &Snapshot,
        search_name: &SearchName<'_>,
    ) -> Result<Option<Found>> {
        let Some(path) = self.path_for(dir, search_name)? else { return self.find_linear(dir, search_name) };
        search_until_stable(
            self.candidate_leaves(dir, path)?,
            |leaves| {
                for &leaf in &leaves.blocks {
                    if let Some(found) = self.search_leaf(dir, leaf, search_name)? {
                        return Ok(Some(found));
                    }
                }
                Ok(None)
            },
            |leaves| {
                if self.writer.is_none() || self.are_current(&leaves.index_frames) {
                    return Ok(None);
                }
                let Some(path) = self.path_for(dir, search_name)? else { return Ok(None) };
                let now = self.candidate_leaves(dir, path)?;
                Ok((now.blocks != leaves.blocks).then_some(now))
            },
        )
    }

    fn candidate_leaves(&self, dir: &Snapshot, mut path: HtreePath) -> Result<Leaves> {
        let mut blocks = vec![path.leaf.block];
        let mut index_frames = Vec::new();
        for _ in 0..self.dir_blocks(dir)? {
            let goes_on = self.next_entry(&path)?.is_some_and(|next| next.continues(path.hash));
            if !goes_on || !self.advance(dir, &mut path, &mut index_frames)? {
                index_frames.append(&mut path.frames);
                return Ok(Leaves { blocks, index_frames });
            }
            blocks.push(path.leaf.block);
        }
        let place = dir.place(Structure::DirectoryIndex(LogicalBlock(0)));
        Err(place.corrupt(Problem::Missing { what: "the end of the leaves of one hash" }))
    }

    /// The next entry may be a level above.
    fn next_entry(&self, path: &HtreePath) -> Result<Option<IndexEntry>> {
        for frame in path.frames.iter().rev() {
            if let Some(entry) = self.parse_index(frame)?.get(frame.at + 1) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// `false` at the end. Adds index blocks that the path leaves to `index_frames`.
    pub(crate) fn advance(
        &self,
        dir: &Snapshot,
        path: &mut HtreePath,
        index_frames: &mut Vec<Frame>,
    ) -> Result<bool> {
        let levels = path.frames.len();
        while let Some(mut frame) = path.frames.pop() {
            frame.at += 1;
            let Some(mut entry) = self.parse_index(&frame)?.get(frame.at) else {
                index_frames.push(frame);
                continue;
            };
            path.frames.push(frame);
            while path.frames.len() < levels {
                let first = self.index_frame(dir, entry.block)?;
                // Its first entry has no hash; the level above does.
                let below = self.entry_of(&first)?;
                entry = entry.leading_to(below.block);
                path.frames.push(first);
            }
            path.leaf = entry;
            return Ok(true);
        }
        Ok(false)
    }

    /// None if the root points to leaves.
    pub(crate) fn first_index_blocks(&self, dir: &Snapshot, max: usize) -> Result<Vec<LogicalBlock>> {
        let root = self.index_frame(dir, LogicalBlock(0))?;
        let parsed = self.parse_root(&root.buffer).map_err(|problem| root.place.corrupt(problem))?;
        let count = if parsed.indirect_levels == 0 { 0 } else { max };
        let end = self.dir_blocks(dir)?;
        let blocks = (0..count).map_while(|at| parsed.entries.get(at)).map(|entry| entry.block);
        Ok(blocks.filter(|block| block.0 < end).collect())
    }

    /// `false` if one was evicted: its state is unknown.
    pub(crate) fn are_current(&self, frames: &[Frame]) -> bool {
        frames.iter().all(|Frame { buffer, place, .. }| {
            place.block.is_some_and(|at| self.cache.is_newest(at.0, buffer))
        })
    }

    pub(crate) fn index_frame(&self, dir: &Snapshot, block: LogicalBlock) -> Result<Frame> {
        let place = dir.place(Structure::DirectoryIndex(block));
        let (buffer, place) = self.dir_block_often(dir, block, place)?;
        let frame = Frame { buffer, place, block, at: 0 };
        let seed = dir.inode.checksum_seed;
        let summed = self.sb.has_metadata_csum().then_some(seed);
        let index = self.parse_index(&frame)?;
        self.verify_once(place, &frame.buffer, VerifiedAs::DirectoryIndex(seed), || index.verify(summed))?;
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

    fn entry_of(&self, frame: &Frame) -> Result<IndexEntry> {
        let missing = Problem::Missing { what: "an index entry" };
        self.parse_index(frame)?.get(frame.at).ok_or_else(|| frame.place.corrupt(missing))
    }
}

/// Searches until one search succeeds or `moved` returns no other path.
pub(crate) fn search_until_stable<W, R, E>(
    path: W,
    mut search: impl FnMut(&W) -> std::result::Result<Option<R>, E>,
    mut moved: impl FnMut(&W) -> std::result::Result<Option<W>, E>,
) -> std::result::Result<Option<R>, E> {
    let mut path = path;
    loop {
        if let Some(found) = search(&path)? {
            return Ok(Some(found));
        }
        match moved(&path)? {
            Some(other) => path = other,
            None => return Ok(None),
        }
    }
}

/// Whether both have the same entries in the same blocks.
fn has_same_layout(a: &Snapshot, b: &Snapshot) -> bool {
    let layout = |dir: &Snapshot| (dir.inode.size, dir.inode.flags, dir.inode.block);
    std::ptr::eq(a, b) || layout(a) == layout(b) && (!a.has(InodeFlags::INLINE_DATA) || a.tail == b.tail)
}

/// `eh_depth` of the extent root. Folding the tree into the inode changes it, and frees a block.
fn tree_depth(dir: &Snapshot) -> Option<&[u8]> {
    dir.inode.block.get(6..8)
}
