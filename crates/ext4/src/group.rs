//! Where group descriptors lie; they are read block by block, when an inode of the group is.

use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupDesc, GroupNumber, Incompat};

impl Ext4 {
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
