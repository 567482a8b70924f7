//! Group descriptors on disk and in memory.
//!
//! # Data
//! In a writable file system the descriptor in memory is authoritative; its block is not read. The
//! first change of a group in a transaction writes the block; later ones leave that to the commit
//! ([`Groups::write_dirty`]), so committed descriptors match their bitmaps.
//!
//! # Who protects what
//! A group's lock guards its descriptor and bitmaps. The list of changed groups has a lock of its
//! own, a leaf. The commit takes these locks one by one, with no handle open: their holders do not
//! wait for it.
//!
//! # Guarantees
//! - *Credits.* The first change pays for the block.
//! - *No read at commit.* It also pins the block in memory.

use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupDesc, GroupNumber, Incompat, RoCompat, Superblock};
use dentree_jbd2::{BeforeCommit, Tid};
use dentree_sync::lockstat::{Class, NamedMutex, NamedMutexGuard};
use dentree_sync::{Mutex, MutexGuard};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

pub(crate) struct Groups {
    all: Box<[Group]>,
    changed: Mutex<Vec<GroupNumber>>,
    sb: Superblock,
}

/// Aligned: other threads change the neighbours.
#[repr(align(128))]
struct Group {
    desc: NamedMutex<GroupState>,
    /// No inode before it is free; `inodes_per_group` means full. A hint, written under the lock
    /// and read without it.
    first_free_inode: AtomicU32,
}

pub(crate) struct GroupState {
    pub(crate) desc: GroupDesc,
    /// Descriptor block, and index in it.
    place: (BlockNumber, usize),
    /// The last transaction that wrote it to its block.
    written_in: Option<Tid>,
    is_dirty: bool,
}

impl Groups {
    pub(crate) fn new(fs: &Ext4, descs: Vec<GroupDesc>) -> Groups {
        let class = Class::named("block group");
        let all = (0..).zip(descs).map(|(number, desc)| Group {
            first_free_inode: AtomicU32::new(if desc.free_inodes == 0 { fs.sb.inodes_per_group } else { 0 }),
            desc: NamedMutex::new(
                class,
                GroupState {
                    desc,
                    place: fs.descriptor_place(GroupNumber(number)),
                    written_in: None,
                    is_dirty: false,
                },
            ),
        });
        Groups { all: all.collect(), changed: Mutex::default(), sb: fs.sb.clone() }
    }

    fn group(&self, group: GroupNumber) -> &Group {
        &self.all[usize::try_from(group.0).unwrap_or(usize::MAX)]
    }

    /// `group` is below `sb.groups`.
    pub(crate) fn lock(&self, group: GroupNumber) -> NamedMutexGuard<'_, GroupState> {
        self.group(group).desc.lock()
    }

    pub(crate) fn try_lock(&self, group: GroupNumber) -> Option<NamedMutexGuard<'_, GroupState>> {
        self.all.get(usize::try_from(group.0).ok()?)?.desc.try_lock()
    }

    pub(crate) fn first_free_inode(&self, group: GroupNumber) -> &AtomicU32 {
        &self.group(group).first_free_inode
    }

    pub(crate) fn free_inodes(&self) -> u64 {
        self.all.iter().map(|group| u64::from(group.desc.lock().desc.free_inodes)).sum()
    }

    fn changed(&self) -> MutexGuard<'_, Vec<GroupNumber>> {
        self.changed.lock()
    }

    /// `put` writes a descriptor to its block.
    pub(crate) fn set<E>(
        &self,
        group: GroupNumber,
        state: &mut GroupState,
        next: GroupDesc,
        tid: Tid,
        put: impl FnOnce(BlockNumber, &dyn Fn(&mut [u8])) -> Result<(), E>,
    ) -> Result<(), E> {
        if state.written_in == Some(tid) {
            (state.desc, state.is_dirty) = (next, true);
            return Ok(());
        }
        let (block, within) = state.place;
        put(block, &|bytes| self.encode(bytes, within, group, &next))?;
        (state.desc, state.written_in, state.is_dirty) = (next, Some(tid), false);
        self.changed().push(group);
        Ok(())
    }

    fn encode(&self, bytes: &mut [u8], within: usize, group: GroupNumber, desc: &GroupDesc) {
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
            desc.encode(bytes, group, &self.sb);
        }
    }

    pub(crate) fn write_dirty(&self, changes: &mut BeforeCommit<'_>) -> io::Result<()> {
        let changed = std::mem::take(&mut *self.changed());
        for group in changed {
            let mut state = self.lock(group);
            if std::mem::take(&mut state.is_dirty) {
                let (block, within) = state.place;
                changes.update(block.0, |bytes| self.encode(bytes, within, group, &state.desc))?;
            }
        }
        Ok(())
    }
}

/// Where inode tables, which never move, start in groups whose descriptor was read.
///
/// The low bits of a group's number choose its slot, which holds 16 more bits over the table's
/// block. Relaxed: a slot is one self-contained word.
pub(crate) struct InodeTables(Box<[AtomicU64]>);

/// Enough for 512 GiB with blocks of 4 KiB; beyond, groups share slots.
const SLOTS: u32 = 1 << 12;

impl InodeTables {
    pub(crate) fn new(groups: u32) -> InodeTables {
        InodeTables((0..groups.clamp(1, SLOTS)).map(|_| AtomicU64::new(0)).collect())
    }

    /// `None` if the number has more than 16 upper bits.
    fn slot(&self, group: GroupNumber) -> Option<(&AtomicU64, u64)> {
        let (above, low) = (group.0 / SLOTS, group.0 % SLOTS);
        let slot = self.0.get(usize::try_from(low).ok()?)?;
        (above < 1 << 16).then_some((slot, u64::from(above) << 48))
    }

    fn get(&self, group: GroupNumber) -> Option<BlockNumber> {
        let (slot, above) = self.slot(group)?;
        let table = slot.load(Relaxed) ^ above;
        (1..1 << 48).contains(&table).then_some(BlockNumber(table))
    }

    fn put(&self, group: GroupNumber, table: BlockNumber) {
        if let Some((slot, above)) = self.slot(group).filter(|_| table.0 < 1 << 48) {
            slot.store(above | table.0, Relaxed);
        }
    }
}

impl Ext4 {
    pub(crate) fn inode_table(&self, group: GroupNumber) -> Result<BlockNumber> {
        if let Some(table) = self.inode_tables.get(group) {
            return Ok(table);
        }
        let table = self.group(group)?.inode_table;
        self.inode_tables.put(group, table);
        Ok(table)
    }

    /// `group` is below `sb.groups`.
    pub(crate) fn group(&self, group: GroupNumber) -> Result<GroupDesc> {
        let (block, within) = self.descriptor_place(group);
        let place = Structure::GroupDescriptor(group).at(block);
        let buffer = self.metadata(block, place)?;
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        let bytes = buffer.chunks_exact(size).nth(within).unwrap_or_default();
        GroupDesc::parse(bytes, group, &self.sb).map_err(|problem| place.corrupt(problem))
    }

    /// Like [`group`](Ext4::group), whatever the checksum.
    pub(crate) fn group_unverified(&self, group: GroupNumber) -> Option<GroupDesc> {
        let mut sb = self.sb.clone();
        sb.ro_compat = sb.ro_compat.without(RoCompat::METADATA_CSUM).without(RoCompat::GDT_CSUM);
        let (block, within) = self.descriptor_place(group);
        let buffer = self.metadata(block, Structure::GroupDescriptor(group).at(block)).ok()?;
        let bytes = buffer.chunks_exact(usize::try_from(sb.desc_size).ok()?).nth(within)?;
        GroupDesc::parse(bytes, group, &sb).ok()
    }

    pub(crate) fn descriptor_place(&self, group: GroupNumber) -> (BlockNumber, usize) {
        let within = usize::try_from(group.0 % self.sb.descs_per_block()).unwrap_or(usize::MAX);
        (self.descriptor_block(group), within)
    }

    /// After the superblock; with `meta_bg`, in the first group of the meta block group.
    fn descriptor_block(&self, group: GroupNumber) -> BlockNumber {
        let sb = &self.sb;
        let meta_group = group.0 / sb.descs_per_block();
        if !sb.incompat.has(Incompat::META_BG) || meta_group < sb.first_meta_bg {
            return BlockNumber(self.superblock_at.0 + 1 + u64::from(meta_group));
        }
        let first = GroupNumber(meta_group * sb.descs_per_block());
        let start = sb.group_start(first).0 + u64::from(sb.group_has_superblock(first));
        // With blocks of 1 KiB the superblock is in block 1, though in bigalloc group 0 starts with
        // block 0.
        let shifted = first.0 == 0 && sb.block_size.bytes() == 1024 && sb.first_data_block == 0;
        BlockNumber(start + u64::from(shifted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_share_a_slot_are_told_apart() {
        let tables = InodeTables::new(u32::MAX);
        let (low, high, beyond) =
            (GroupNumber(7), GroupNumber(7 + 3 * SLOTS), GroupNumber(7 + (SLOTS << 16)));
        tables.put(low, BlockNumber(0x1234_5678_9ABC));
        assert_eq!(
            [low, high, beyond].map(|group| tables.get(group)),
            [Some(BlockNumber(0x1234_5678_9ABC)), None, None]
        );
        tables.put(high, BlockNumber(1));
        tables.put(beyond, BlockNumber(2));
        assert_eq!([low, high, beyond].map(|group| tables.get(group)), [None, Some(BlockNumber(1)), None]);
    }
}
