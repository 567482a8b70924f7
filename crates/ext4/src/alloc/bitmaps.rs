//! Read-ahead of bitmaps.
//!
//! An allocation goes from group to group, and an inode's blocks lie in its group. So a miss of a
//! bitmap, or the first use of one read ahead, requests both bitmaps of its group and of the next
//! ones. With flex_bg most are adjacent: a request or two read them.

use crate::Ext4;
use crate::read_ahead::joined;
use dentree_bufcache::Runs;
use dentree_ext4_format::{GroupDesc, GroupFlags, GroupNumber};

/// Groups read ahead.
const GROUPS: usize = 8;

impl Ext4 {
    /// The bitmaps to read together with one of `group`, whose descriptor the caller has locked.
    pub(crate) fn bitmaps_ahead(&self, group: GroupNumber, desc: &GroupDesc) -> Runs {
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
            // Only trylock: a thread with another group's lock may wait for this one's.
            if let Some(desc) = writer.try_group(next) {
                add(&desc);
            }
        }
        blocks.sort_unstable();
        joined(blocks.into_iter().map(|block| block..block + 1), 0)
    }
}
