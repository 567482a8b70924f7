//! Bitmaps of the groups that will be looked at next come in while one is waited for.
//!
//! Who takes blocks or inodes goes from group to group, in their order, until one has what is wanted, and an inode's blocks lie where the inode does.
//! So where a bitmap is missing, or one that was read ahead is used first, both bitmaps of its group and of those
//! behind it are asked for: with flex_bg most lie side by side, and come by a request or two.

use crate::Ext4;
use crate::read_ahead::joined;
use dentree_bufcache::Runs;
use dentree_ext4_format::{GroupDesc, GroupFlags, GroupNumber};

/// Groups behind one whose bitmap is read.
const GROUPS: usize = 8;

impl Ext4 {
    /// The bitmaps to read on account of one of a group, whose descriptor the caller has locked.
    pub(crate) fn bitmaps_behind(&self, group: GroupNumber, desc: &GroupDesc) -> Runs {
        let Some(writer) = &self.writer else { return Runs::new() };
        let mut blocks = Vec::new();
        let mut add = |desc: &GroupDesc| {
            let is_there = |flag| !self.sb.has_group_checksums() || !desc.flags.has(flag);
            if desc.free_blocks > 0 && is_there(GroupFlags::BLOCK_UNINIT) {
                blocks.push(desc.block_bitmap.0);
            }
            if desc.free_inodes > 0 && is_there(GroupFlags::INODE_UNINIT) {
                blocks.push(desc.inode_bitmap.0);
            }
        };
        add(desc);
        let behind = (group.0 + 1..self.sb.groups).chain(0..group.0);
        for next in behind.take(GROUPS).map(GroupNumber) {
            // Who has another group's lock may wait for this one's: what is locked is not asked for.
            if let Some(desc) = writer.try_group(next) {
                add(&desc);
            }
        }
        blocks.sort_unstable();
        joined(blocks.into_iter().map(|block| block..block + 1), 0)
    }
}
