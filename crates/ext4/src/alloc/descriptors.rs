//! Where group descriptors lie; they are read block by block, when an inode of the group is.

use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupDesc, GroupNumber, Incompat};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
