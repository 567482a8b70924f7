//! Growth of an htree. All blocks are allocated first, against ENOSPC. A split goes from right to
//! left (`lock.rs`): new block, directory size, index, old block.

use super::DirUpdate;
use crate::dir::lookup::{Frame, HtreePath};
use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::hash::{HashVersion, MajorHash};
use dentree_ext4_format::htree::{grow_root, init_root, insert_index, split_index, split_leaf};
use dentree_ext4_format::{BlockNumber, EntriesMut, Incompat, InodeFlags, LogicalBlock, NewEntry, Problem};
use dentree_jbd2::Handle;

/// Levels below the root; one more with `large_dir`.
const MAX_LEVELS: usize = 1;

pub(super) struct Split {
    path: HtreePath,
    leaf: Buffer,
    pub(super) new_blocks: usize,
}

type Fresh = Vec<(LogicalBlock, BlockNumber)>;

impl Ext4 {
    pub(super) fn plan_split(&self, path: HtreePath, leaf: Buffer) -> Result<Split> {
        let mut full = 0;
        for frame in path.frames.iter().rev() {
            if !self.parse_index(frame)?.is_full() {
                break;
            }
            full += 1;
        }
        let max = MAX_LEVELS + usize::from(self.sb.incompat.has(Incompat::LARGEDIR));
        if full == path.frames.len() && path.frames.len() > max {
            return Err(Error::NoSpace);
        }
        Ok(Split { path, leaf, new_blocks: 1 + full })
    }

    /// Moves its entries and `new` to leaves.
    pub(super) fn make_index(
        &self,
        handle: &mut Handle<'_>,
        dir: &Node,
        updated: &mut DirUpdate,
        block: &Buffer,
        version: HashVersion,
        new: &NewEntry<'_>,
    ) -> Result<()> {
        let place = updated.place(Structure::DirectoryLeaf(LogicalBlock(0)));
        let entries = self.leaf_entries(block).map(|entry| entry.map(NewEntry::from));
        let mut all: Vec<_> = entries.collect::<Result<_, _>>().map_err(|problem| place.corrupt(problem))?;
        let dots = match all.first_chunk() {
            Some(&[dot, dotdot]) if dot.name == b"." && dotdot.name == b".." => [dot, dotdot],
            _ => return Err(place.corrupt(Problem::Missing { what: "`.` and `..` at its beginning" })),
        };
        all.drain(..2);
        all.push(*new);
        let need: usize = all.iter().map(|entry| dentree_ext4_format::entry_len(entry.name.len())).sum();
        let split = if need <= self.leaf_room() {
            None
        } else {
            split_leaf(all.iter().copied(), |name| self.entry_hash(updated, name, version))
        };
        let fresh = self.append_blocks(handle, updated, if split.is_some() { 2 } else { 1 })?;
        let halves = match &split {
            Some(split) => vec![&split.low, &split.high],
            None => vec![&all],
        };
        let second = split.as_ref().map(|split| split.hash);
        let made = (|| {
            for (entries, &(_, at)) in halves.into_iter().zip(&fresh) {
                self.create_leaf(handle, updated, at, |area| fill(area, entries))?;
            }
            updated.inode.flags = updated.inode.flags.with(InodeFlags::INDEX);
            self.publish_layout(handle, dir, updated)?;
            self.write_first_root(handle, updated, dots, &fresh, second)
        })();
        self.all_or_abort(made)
    }

    fn write_first_root(
        &self,
        handle: &mut Handle<'_>,
        updated: &Snapshot,
        dots: [NewEntry<'_>; 2],
        fresh: &Fresh,
        second: Option<u32>,
    ) -> Result<()> {
        let (at, place) =
            self.block_place(updated, LogicalBlock(0), Structure::DirectoryIndex(LogicalBlock(0)))?;
        let has_tail = self.sb.has_metadata_csum();
        let blocks: Vec<LogicalBlock> = fresh.iter().map(|&(logical, _)| logical).collect();
        self.update(handle, at, place, |bytes| {
            let first = blocks.first().copied().unwrap_or(LogicalBlock(1));
            init_root(bytes, self.sb.block_size, has_tail, dots, self.sb.default_hash_version, first)?;
            if let (Some(hash), Some(&block)) = (second, blocks.get(1)) {
                insert_index(bytes, true, has_tail, 0, hash, block)?;
            }
            self.update_index_sum(updated, bytes, true)
        })?
        .map_err(|problem| place.corrupt(problem))
    }

    pub(super) fn split_leaf_for(
        &self,
        handle: &mut Handle<'_>,
        dir: &Node,
        updated: &mut DirUpdate,
        split: Split,
        new: &NewEntry<'_>,
    ) -> Result<()> {
        let Split { path, leaf, new_blocks } = split;
        let (version, old) = (path.version, path.leaf.block);
        let place = updated.place(Structure::DirectoryLeaf(path.leaf.block));
        let entries = self.leaf_entries(&leaf).map(|entry| entry.map(NewEntry::from));
        let mut all: Vec<_> = entries.collect::<Result<_, _>>().map_err(|problem| place.corrupt(problem))?;
        all.push(*new);
        let halves = split_leaf(all, |name| self.entry_hash(updated, name, version))
            .ok_or_else(|| place.corrupt(Problem::Missing { what: "space for one entry" }))?;
        let mut fresh = self.append_blocks(handle, updated, u32::try_from(new_blocks).unwrap_or(u32::MAX))?;
        let done = (|| {
            let (logical, at) = take(&mut fresh)?;
            let old = self.block_place(updated, old, Structure::DirectoryLeaf(old))?.1;
            self.create_leaf(handle, updated, at, |area| fill(area, &halves.high))?;
            self.publish_layout(handle, dir, updated)?;
            self.insert_index_entry(handle, updated, path.frames, halves.hash, logical, &mut fresh)?;
            self.change_leaf(handle, updated, old, |area| fill(area, &halves.low))
        })();
        self.all_or_abort(done)
    }

    fn insert_index_entry(
        &self,
        handle: &mut Handle<'_>,
        updated: &Snapshot,
        mut path: Vec<Frame>,
        hash: u32,
        block: LogicalBlock,
        fresh: &mut Fresh,
    ) -> Result<()> {
        let has_tail = self.sb.has_metadata_csum();
        let size = self.sb.block_size;
        let Some(frame) = path.pop() else { return Err(Error::NoSpace) };
        let is_root = frame.is_root();
        if !self.parse_index(&frame)?.is_full() {
            return self.change_index(handle, updated, frame.block, |bytes| {
                insert_index(bytes, is_root, has_tail, frame.at, hash, block)
            });
        }
        // Works on copies: new block, entry above, old block last.
        let (new, new_at) = take(fresh)?;
        let (mut old, mut other) = (frame.buffer.to_vec(), vec![0; size.in_memory()]);
        let corrupt = |problem| frame.place.corrupt(problem);
        if is_root {
            grow_root(&mut old, &mut other, size, has_tail, new).map_err(corrupt)?;
            insert_index(&mut other, false, has_tail, frame.at, hash, block).map_err(corrupt)?;
            self.create_index(handle, updated, new_at, other)?;
        } else {
            let (first, stay) = split_index(&mut old, &mut other, size, has_tail).map_err(corrupt)?;
            match frame.at.checked_sub(stay) {
                None => insert_index(&mut old, false, has_tail, frame.at, hash, block),
                Some(at) => insert_index(&mut other, false, has_tail, at, hash, block),
            }
            .map_err(corrupt)?;
            self.create_index(handle, updated, new_at, other)?;
            self.insert_index_entry(handle, updated, path, first, new, fresh)?;
        }
        self.change_index(handle, updated, frame.block, |bytes| {
            bytes.copy_from_slice(&old);
            Ok(())
        })
    }

    fn change_index<R>(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        block: LogicalBlock,
        change: impl FnOnce(&mut [u8]) -> Result<R, Problem>,
    ) -> Result<R> {
        let (at, place) = self.block_place(dir, block, Structure::DirectoryIndex(block))?;
        self.update(handle, at, place, |bytes| {
            let result = change(bytes)?;
            self.update_index_sum(dir, bytes, block.0 == 0)?;
            Ok(result)
        })?
        .map_err(|problem| place.corrupt(problem))
    }

    fn create_index(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        at: BlockNumber,
        mut content: Vec<u8>,
    ) -> Result<()> {
        let place = dir.place(Structure::DirectoryIndex(LogicalBlock(0))).at(at);
        self.update_index_sum(dir, &mut content, false).map_err(|problem| place.corrupt(problem))?;
        handle.create(at.0, |bytes| bytes.copy_from_slice(&content)).map_err(|source| place.io(source))
    }

    pub(crate) fn entry_hash(&self, dir: &Snapshot, name: &[u8], version: HashVersion) -> MajorHash {
        let seed = self.hash_seed();
        let folded = self.search_name(dir, name).and_then(|search_name| search_name.hash(version, seed));
        // Strict encoding refuses the name: hash its bytes.
        folded.or_else(|| version.hash(name, seed).map(|hash| hash.major)).unwrap_or_default()
    }
}

fn fill(area: &mut EntriesMut<'_>, entries: &[NewEntry<'_>]) -> Result<(), Problem> {
    area.fill(entries).then_some(()).ok_or(Problem::Missing { what: "space for half of a leaf" })
}

fn take(fresh: &mut Fresh) -> Result<(LogicalBlock, BlockNumber)> {
    fresh.pop().ok_or(Error::NoSpace)
}
