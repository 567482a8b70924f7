//! Insertion of entries, and growth of directories.
//!
//! A plan ([`Ext4::plan_insert`]) precedes the transaction: the handle needs few credits, and
//! damage shows early. It is valid as long as its locks are held (`lock.rs`).

use super::DirUpdate;
use super::split::Split;
use crate::alloc::{ALLOC_CREDITS, ReservationClass};
use crate::dir::lookup::HtreePath;
use crate::inode::Snapshot;
use crate::map::MapCache;
use crate::map::write::{Mapped, STEP_CREDITS, Target};
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::hash::{HashAlgorithm, HashVersion};
use dentree_ext4_format::{
    BlockNumber, Compat, EntriesMut, InodeFlags, LogicalBlock, NewEntry, Problem, leaf_room, room_for,
};
use dentree_jbd2::Handle;

/// The inode is included.
pub(super) const NEW_BLOCK_CREDITS: u32 = 2 + STEP_CREDITS + ALLOC_CREDITS;

pub(super) enum Plan {
    Inline,
    /// A leaf, and the byte of the entry with enough space.
    Leaf(Place, usize),
    /// A leaf whose entries must be packed.
    Pack(Place, Buffer),
    /// A new leaf; there is no index.
    Append,
    /// The only block becomes an index root.
    MakeIndex(Buffer, HashVersion),
    Split(Split),
}

impl Plan {
    /// Includes the directory's inode.
    pub(super) fn credits(&self) -> u32 {
        match self {
            Plan::Inline => 1,
            Plan::Leaf(..) | Plan::Pack(..) => 2,
            Plan::Append => NEW_BLOCK_CREDITS,
            Plan::MakeIndex(..) => 4 + STEP_CREDITS + 2 * ALLOC_CREDITS,
            // Leaf and levels change one block and allocate one each, mapped in one run.
            Plan::Split(split) => {
                let blocks = u32::try_from(split.new_blocks).unwrap_or(u32::MAX);
                2 + blocks * (2 + ALLOC_CREDITS) + STEP_CREDITS
            }
        }
    }

    pub(super) fn keeps_entries(&self) -> bool {
        matches!(self, Plan::Leaf(..) | Plan::Append)
    }
}

impl Ext4 {
    /// `dir` lacks `name`. A full inline directory moves to a block, in a transaction of its own.
    /// [`Error::NoSpace`] if the index cannot grow.
    pub(super) fn plan_insert(&self, dir: &Node, name: &[u8]) -> Result<Plan> {
        let snapshot = dir.snapshot();
        if snapshot.has(InodeFlags::ENCRYPT) {
            return Err(Error::Encrypted(snapshot.ino));
        }
        let search_name = self.search_name(&snapshot, name).ok_or(Error::InvalidName)?;
        if snapshot.has(InodeFlags::INLINE_DATA) {
            if self.has_inline_room(&snapshot, name.len())? {
                return Ok(Plan::Inline);
            }
            self.move_to_block(dir)?;
            return self.plan_insert(dir, name);
        }
        if self.is_indexed(&snapshot) {
            let path = self.path_for(&snapshot, &search_name)?.ok_or(Error::Encrypted(snapshot.ino))?;
            return self.plan_htree_insert(&snapshot, path, name);
        }
        let (blocks, mut maps) = (self.dir_blocks(&snapshot)?, MapCache::default());
        for block in (0..blocks).map(LogicalBlock) {
            let mapping = || maps.next(self, &snapshot, block, blocks);
            let Some((buffer, place)) = self.dir_leaf_at(&snapshot, block, mapping, |_| None)? else {
                continue;
            };
            let room = room_for(self.leaf_entries(&buffer), name.len());
            if let Some(start) = room.map_err(|problem| place.corrupt(problem))? {
                return Ok(Plan::Leaf(place, start));
            }
        }
        self.plan_growth(&snapshot)
    }

    fn plan_growth(&self, dir: &Snapshot) -> Result<Plan> {
        let version = HashVersion::from_disk(self.sb.default_hash_version, self.hash_sign());
        let version = version.filter(|version| version.algorithm != HashAlgorithm::SipHash);
        if let Some(version) = version
            && self.sb.compat.has(Compat::DIR_INDEX)
            && self.dir_blocks(dir)? == 1
            && let Some((buffer, _)) = self.dir_leaf(dir, LogicalBlock(0), |_| None)?
        {
            return Ok(Plan::MakeIndex(buffer, version));
        }
        Ok(Plan::Append)
    }

    pub(super) fn plan_htree_insert(&self, dir: &Snapshot, path: HtreePath, name: &[u8]) -> Result<Plan> {
        let (buffer, place) = self.indexed_leaf(dir, path.leaf.block)?;
        let corrupt = |problem| place.corrupt(problem);
        let room_from = |start| room_for(self.leaf_entries(&buffer).starting_at(start), name.len());
        let last = place.block.and_then(|at| self.writer.as_ref()?.last_inserts.get(at));
        // Errors show in the full search.
        let start = match last.and_then(|last| room_from(last).ok()?) {
            Some(start) => Some(start),
            None => room_from(0).map_err(corrupt)?,
        };
        if let Some(start) = start {
            return Ok(Plan::Leaf(place, start));
        }
        let mut used = dentree_ext4_format::entry_len(name.len());
        for entry in self.leaf_entries(&buffer) {
            used += dentree_ext4_format::entry_len(entry.map_err(corrupt)?.name.len());
        }
        if used <= self.leaf_room() {
            return Ok(Plan::Pack(place, buffer));
        }
        Ok(Plan::Split(self.plan_split(path, buffer)?))
    }

    pub(super) fn leaf_room(&self) -> usize {
        leaf_room(self.sb.block_size, self.sb.has_metadata_csum())
    }

    pub(super) fn leaf_entries<'a>(&self, bytes: &'a [u8]) -> dentree_ext4_format::Entries<'a> {
        self.entries(bytes.get(..self.leaf_room()).unwrap_or_default())
    }

    /// On [`Error::NoSpace`] nothing has changed. A growing directory publishes its layout before
    /// anything points to the new blocks.
    pub(super) fn insert_entry(
        &self,
        handle: &mut Handle<'_>,
        dir: &Node,
        updated: &mut DirUpdate,
        plan: Plan,
        entry: &NewEntry<'_>,
    ) -> Result<()> {
        let full = Problem::Missing { what: "space for the entry" };
        match plan {
            Plan::Inline => self.insert_inline(updated, entry),
            Plan::Leaf(place, start) => {
                // Without `dir_index` the flag is void, and the entry may overwrite index blocks.
                updated.inode.flags = match self.is_indexed(updated) {
                    true => updated.inode.flags,
                    false => updated.inode.flags.without(InodeFlags::INDEX),
                };
                let add = |area: &mut EntriesMut<'_>| area.insert_from(start, entry)?.ok_or(full);
                let start = self.change_leaf(handle, updated, place, add)?;
                if let Some(at) = place.block {
                    self.writer()?.last_inserts.set(at, start);
                }
                Ok(())
            }
            Plan::Pack(place, buffer) => {
                let entries = self.leaf_entries(&buffer).map(|entry| entry.map(NewEntry::from));
                let mut all: Vec<_> =
                    entries.collect::<Result<_, _>>().map_err(|problem| place.corrupt(problem))?;
                all.push(*entry);
                self.change_leaf(handle, updated, place, |area| area.fill(&all).then_some(()).ok_or(full))
            }
            Plan::Append => {
                let fresh = self.append_blocks(handle, updated, 1)?;
                let added = fresh.iter().try_for_each(|&(_, at)| {
                    self.create_leaf(handle, updated, at, |area| area.insert(entry).map(drop))
                });
                updated.inode.flags = updated.inode.flags.without(InodeFlags::INDEX);
                self.all_or_abort(added.and_then(|()| self.publish_layout(handle, dir, updated)))
            }
            Plan::MakeIndex(buffer, version) => {
                self.make_index(handle, dir, updated, &buffer, version, entry)
            }
            Plan::Split(split) => self.split_leaf_for(handle, dir, updated, split, entry),
        }
    }

    /// Unwritten; all or none.
    pub(crate) fn append_blocks(
        &self,
        handle: &mut Handle<'_>,
        updated: &mut Snapshot,
        count: u32,
    ) -> Result<Vec<(LogicalBlock, BlockNumber)>> {
        let first = updated.inode.size >> self.sb.block_size.log2();
        let mut fresh = Vec::new();
        let before = updated.clone();
        for logical in first..first + u64::from(count) {
            match self.append_block(handle, updated, logical) {
                Ok(block) => fresh.push((LogicalBlock(u32::try_from(logical).unwrap_or(u32::MAX)), block)),
                Err(error) => {
                    let mut at = first;
                    while at < logical {
                        let mut file = Mapped { ino: updated.ino, inode: &mut updated.inode };
                        let undone = self.remap(handle, &mut file, at..logical, None);
                        at = self.all_or_abort(undone)?;
                    }
                    *updated = before;
                    return Err(error);
                }
            }
        }
        updated.inode.size = (first + u64::from(count)) << self.sb.block_size.log2();
        Ok(fresh)
    }

    fn append_block(
        &self,
        handle: &mut Handle<'_>,
        updated: &mut Snapshot,
        logical: u64,
    ) -> Result<BlockNumber> {
        // Without `large_dir` a directory's size has 31 bits.
        let large = self.sb.incompat.has(dentree_ext4_format::Incompat::LARGEDIR);
        let size = (logical + 1) << self.sb.block_size.log2();
        if logical >= u64::from(u32::MAX) || size >= 1 << 31 && !large {
            return Err(Error::NoSpace);
        }
        let last = logical.checked_sub(1).and_then(|last| u32::try_from(last).ok()).map(LogicalBlock);
        let last =
            last.map(|last| self.block_place(updated, last, Structure::DirectoryLeaf(last))).transpose()?;
        let goal = match last {
            Some((at, _)) if at.0 + 1 < self.sb.blocks_count => BlockNumber(at.0 + 1),
            _ => self.goal_of(updated.ino),
        };
        let class = ReservationClass::of_owner(updated.inode.uid);
        let start = match logical {
            0 => self.allocate_blocks(handle, goal, 1, class)?.0,
            blocks => self.allocate_dir_block(handle, updated.ino, goal, blocks, class)?,
        };
        let mut file = Mapped { ino: updated.ino, inode: &mut updated.inode };
        let target = Target { start, unwritten: false };
        match self.remap(handle, &mut file, logical..logical + 1, Some(target)) {
            Ok(_) => {
                file.count_blocks(self, 1);
                Ok(start)
            }
            Err(error) => {
                let undone = self.free_blocks(handle, start, 1, false);
                self.all_or_abort(undone)?;
                Err(error)
            }
        }
    }
}
