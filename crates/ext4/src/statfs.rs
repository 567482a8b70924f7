//! `statfs(2)`.

use crate::Ext4;
use crate::txn::Writer;
use dentree_ext4_format::{Compat, Incompat};
use dentree_vfs::FsStat;

impl Ext4 {
    /// Current, or the superblock's if read-only.
    pub(crate) fn fs_stat(&self) -> FsStat {
        let sb = &self.sb;
        // Blocks reserved for content in memory count as used.
        let free = self.writer.as_ref().map_or(sb.free_blocks_count, |writer| writer.space.available());
        let blocks = sb.blocks_count.saturating_sub(self.overhead());
        let [low, high] = [0, 8].map(|at| {
            sb.uuid.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_le_bytes)
        });
        FsStat {
            block_size: sb.block_size.bytes(),
            blocks,
            blocks_free: free,
            blocks_available: free
                .saturating_sub(sb.reserved_blocks_count)
                .saturating_sub(self.delalloc_reserve()),
            inodes: u64::from(sb.inodes_count),
            inodes_free: self.writer.as_ref().map_or(u64::from(sb.free_inodes_count), Writer::free_inodes),
            name_max: 255,
            fsid: low ^ high,
        }
    }

    /// As in the kernel, only delayed allocation with extents reserves blocks.
    fn delalloc_reserve(&self) -> u64 {
        if self.sb.incompat.has(Incompat::EXTENTS) { self.reserved_for_metadata() } else { 0 }
    }

    /// Reserves 2%, at most 4096 clusters, for maps of content not allocated yet.
    pub(crate) fn reserved_for_metadata(&self) -> u64 {
        let sb = &self.sb;
        ((sb.blocks_count >> sb.log_cluster_ratio) / 50).min(4096) << sb.log_cluster_ratio
    }

    /// Uses what mke2fs or the kernel recorded, else the layout, without the journal.
    fn overhead(&self) -> u64 {
        let sb = &self.sb;
        if sb.overhead_clusters != 0 {
            return u64::from(sb.overhead_clusters) << sb.log_cluster_ratio;
        }
        let table_bytes = u64::from(sb.inodes_per_group) * u64::from(sb.inode_size);
        let each = 2 + sb.block_size.blocks_for(table_bytes);
        let reserved = if sb.compat.has(Compat::RESIZE_INODE) { sb.reserved_gdt_blocks } else { 0 };
        let copy = 1 + u64::from(sb.desc_blocks()) + u64::from(reserved);
        let groups = u64::from(sb.first_data_block) + each * u64::from(sb.groups);
        groups.saturating_add(copy.saturating_mul(sb.superblock_copies()))
    }
}
