//! Block groups of a file system that may be changed: their descriptors as they are now.
//!
//! # Data
//! The descriptor in memory is the truth. A block of the device has the descriptors of many groups, which many threads change at once: so who
//! changes one first in a transaction puts it into the block, and who changes it later leaves that to the commit ([`Groups::finish`]),
//! which puts the last state there before the transaction is taken over. What is committed has descriptors that fit their
//! bitmaps, and nobody reads them from the blocks while they are changed.
//!
//! # Who protects what
//! A group's lock guards its descriptor and its bitmaps. The list of changed groups has a lock of its own, inside which nothing is taken.
//! The commit takes one after the other, when no handle is inside: so nobody who has one of them waits for the commit.
//!
//! # Guarantees
//! - *Credits.* The block is among those of the transaction from the first change on, which has paid for it.
//! - *No read at a commit.* From then on it is pinned, so that it is in memory.

use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupDesc, GroupNumber, Incompat, Superblock};
use dentree_jbd2::{LastChanges, Tid};
use dentree_lockmeter::{Class, Mutex, MutexGuard};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex as PlainMutex, MutexGuard as PlainGuard, PoisonError};

/// All block groups.
pub(crate) struct Groups {
    all: Box<[Group]>,
    /// Groups that the running transaction has changed, each once.
    changed: PlainMutex<Vec<GroupNumber>>,
    sb: Superblock,
}

/// A block group. On lines of its own: other threads change its neighbours.
#[repr(align(128))]
struct Group {
    desc: Mutex<Kept>,
    /// No inode of the group before this one is free, and none at all where it is the one behind the last: who looks for one asks for no
    /// lock then. A hint, relaxed; written under the lock.
    first_free_inode: AtomicU32,
}

/// A descriptor.
pub(crate) struct Kept {
    /// As it is now.
    pub(crate) desc: GroupDesc,
    /// Where it lies: the block, and which of that block's it is.
    place: (BlockNumber, usize),
    /// The last transaction that has put it into its block.
    put_in: Option<Tid>,
    /// It was changed since.
    is_newer: bool,
}

impl Groups {
    pub(crate) fn new(fs: &Ext4, descs: Vec<GroupDesc>) -> Groups {
        let class = Class::named("block group");
        let all = (0..).zip(descs).map(|(number, desc)| Group {
            first_free_inode: AtomicU32::new(if desc.free_inodes == 0 { fs.sb.inodes_per_group } else { 0 }),
            desc: Mutex::new(
                class,
                Kept { desc, place: fs.descriptor_place(GroupNumber(number)), put_in: None, is_newer: false },
            ),
        });
        Groups { all: all.collect(), changed: PlainMutex::default(), sb: fs.sb.clone() }
    }

    fn group(&self, group: GroupNumber) -> &Group {
        &self.all[usize::try_from(group.0).unwrap_or(usize::MAX)]
    }

    /// Locks a group, which is below `sb.groups`.
    pub(crate) fn lock(&self, group: GroupNumber) -> MutexGuard<'_, Kept> {
        self.group(group).desc.lock()
    }

    /// The same, if nobody has its lock.
    pub(crate) fn try_lock(&self, group: GroupNumber) -> Option<MutexGuard<'_, Kept>> {
        self.all.get(usize::try_from(group.0).ok()?)?.desc.try_lock()
    }

    /// From where on to look for a free inode of a group; the number of its inodes where none is.
    pub(crate) fn first_free_inode(&self, group: GroupNumber) -> &AtomicU32 {
        &self.group(group).first_free_inode
    }

    /// Free inodes, as the descriptors say.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.all.iter().map(|group| u64::from(group.desc.lock().desc.free_inodes)).sum()
    }

    fn changed(&self) -> PlainGuard<'_, Vec<GroupNumber>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `next` the descriptor of a group by a handle of transaction `tid`. `put` puts it into its block.
    pub(crate) fn replace<E>(
        &self,
        group: GroupNumber,
        kept: &mut Kept,
        next: GroupDesc,
        tid: Tid,
        put: impl FnOnce(BlockNumber, &dyn Fn(&mut [u8])) -> Result<(), E>,
    ) -> Result<(), E> {
        if kept.put_in == Some(tid) {
            (kept.desc, kept.is_newer) = (next, true);
            return Ok(());
        }
        let (block, within) = kept.place;
        put(block, &|bytes| self.encode(bytes, within, group, &next))?;
        (kept.desc, kept.put_in, kept.is_newer) = (next, Some(tid), false);
        self.changed().push(group);
        Ok(())
    }

    fn encode(&self, bytes: &mut [u8], within: usize, group: GroupNumber, desc: &GroupDesc) {
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
            desc.encode(bytes, group, &self.sb);
        }
    }

    /// Puts the descriptors into their blocks that have changed since that was last done in the transaction which is taken over.
    pub(crate) fn finish(&self, last: &mut LastChanges<'_>) -> io::Result<()> {
        let changed = std::mem::take(&mut *self.changed());
        for group in changed {
            let mut kept = self.lock(group);
            if std::mem::take(&mut kept.is_newer) {
                let (block, within) = kept.place;
                last.update(block.0, |bytes| self.encode(bytes, within, group, &kept.desc))?;
            }
        }
        Ok(())
    }
}

/// Where inode tables begin, of groups whose descriptors were read: a table never moves, and each inode that is read asks for its.
///
/// The slot of a group is that of its low bits. It holds the group's other bits, 16 of them, over the table's block, which is
/// below 2^48 and never 0. A slot is all there is to a fact, so relaxed loads and stores do.
pub(crate) struct InodeTables(Box<[AtomicU64]>);

/// Enough for 512 GiB of 4 KiB blocks; of more, groups take each other's slots.
const SLOTS: u32 = 1 << 12;

impl InodeTables {
    pub(crate) fn new(groups: u32) -> InodeTables {
        InodeTables((0..groups.clamp(1, SLOTS)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The slot of a group, and what it holds above a table's block; `None` for a group whose number is too large to be told from others.
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
    /// The block in which the inode table of a group, which is below `sb.groups`, begins.
    pub(crate) fn inode_table(&self, group: GroupNumber) -> Result<BlockNumber> {
        if let Some(table) = self.inode_tables.get(group) {
            return Ok(table);
        }
        let table = self.group(group)?.inode_table;
        self.inode_tables.put(group, table);
        Ok(table)
    }

    /// The descriptor of a group; `group` is below `sb.groups`.
    pub(crate) fn group(&self, group: GroupNumber) -> Result<GroupDesc> {
        let (block, within) = self.descriptor_place(group);
        let place = Structure::GroupDescriptor(group).at(block);
        let buffer = self.metadata(block, place)?;
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        let bytes = buffer.chunks_exact(size).nth(within).unwrap_or_default();
        GroupDesc::parse(bytes, group, &self.sb).map_err(|problem| place.corrupt(problem))
    }

    /// The block that a descriptor lies in, and which of that block's it is.
    pub(crate) fn descriptor_place(&self, group: GroupNumber) -> (BlockNumber, usize) {
        let within = usize::try_from(group.0 % self.sb.descs_per_block()).unwrap_or(usize::MAX);
        (self.descriptor_block(group), within)
    }

    /// Behind the superblock; with meta_bg, those of a meta block group (as many groups as a block holds
    /// descriptors) lie in its first group, behind that group's superblock if it has one.
    fn descriptor_block(&self, group: GroupNumber) -> BlockNumber {
        let sb = &self.sb;
        let meta_group = group.0 / sb.descs_per_block();
        if !sb.incompat.has(Incompat::META_BG) || meta_group < sb.first_meta_bg {
            return BlockNumber(self.superblock_at.0 + 1 + u64::from(meta_group));
        }
        let first = GroupNumber(meta_group * sb.descs_per_block());
        let start = sb.group_start(first).0 + u64::from(sb.group_has_superblock(first));
        // The superblock lies in block 1 with blocks of 1 KiB, also where group 0 begins with block 0 (bigalloc).
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
