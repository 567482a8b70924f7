//! Layout of all structures, as by mke2fs. Bitmaps and inode tables are in their group; with
//! `flex_bg` those of sixteen groups are in the first. Then follow root, `lost+found`, the resize
//! inode's block and the orphan file. The journal is in the middle, for short seeks.

use super::MkfsError;
use super::geometry::{base_blocks, journal_blocks, lost_and_found_blocks, orphan_file_blocks};
use super::space::UsedBlocks;
use dentree_ext4_format::{BlockNumber, Compat, GroupDesc, GroupFlags, GroupNumber, Superblock};
use std::ops::Range;

/// The first unreserved inodes.
pub(super) const LOST_AND_FOUND: u32 = 11;
pub(super) const ORPHAN_FILE: u32 = 12;

pub(super) struct Layout {
    pub(super) groups: Vec<GroupDesc>,
    pub(super) space: UsedBlocks,
    pub(super) root: Range<u64>,
    pub(super) lost_and_found: Range<u64>,
    /// The resize inode's indirect block.
    pub(super) resize: Option<u64>,
    pub(super) orphans: Range<u64>,
    pub(super) journal: Vec<Range<u64>>,
    pub(super) last_inode: u32,
}

impl Layout {
    pub(super) fn of(sb: &Superblock, bytes: u64) -> Result<Layout, MkfsError> {
        let too_small = || MkfsError::TooSmall { bytes };
        let mut space = UsedBlocks::default();
        for group in (0..sb.groups).map(GroupNumber) {
            let start = sb.group_start(group).0;
            let base = base_blocks(sb, group);
            if base > u64::from(sb.blocks_in_group(group)) {
                return Err(too_small());
            }
            space.allocate(start..start + base);
        }
        let groups = place_tables(sb, &mut space).ok_or_else(too_small)?;
        place_files(sb, groups, space).ok_or_else(too_small)
    }
}

fn place_tables(sb: &Superblock, space: &mut UsedBlocks) -> Option<Vec<GroupDesc>> {
    let mut groups = Vec::new();
    while groups.len() < usize::try_from(sb.groups).ok()? {
        let first = u32::try_from(groups.len()).ok()?;
        let together = sb.groups_per_flex.min(sb.groups - first);
        let goal = sb.group_start(GroupNumber(first)).0;
        let mut place = |len: u64| {
            (0..together).map(|_| space.allocate_in_group(sb, goal, len)).collect::<Option<Vec<u64>>>()
        };
        let block_bitmaps = place(1)?;
        let inode_bitmaps = place(1)?;
        let inode_tables = place(sb.inode_table_blocks())?;
        for ((block_bitmap, inode_bitmap), inode_table) in
            block_bitmaps.into_iter().zip(inode_bitmaps).zip(inode_tables)
        {
            groups.push(GroupDesc {
                block_bitmap: BlockNumber(block_bitmap),
                inode_bitmap: BlockNumber(inode_bitmap),
                inode_table: BlockNumber(inode_table),
                free_blocks: 0,
                free_inodes: 0,
                used_dirs: 0,
                itable_unused: 0,
                flags: GroupFlags::default(),
                block_bitmap_sum: 0,
                inode_bitmap_sum: 0,
            });
        }
    }
    Some(groups)
}

fn place_files(sb: &Superblock, groups: Vec<GroupDesc>, mut space: UsedBlocks) -> Option<Layout> {
    let start = u64::from(sb.first_data_block);
    let mut place = |len: u64| {
        let first = space.allocate_in_group(sb, start, len)?;
        Some(first..first + len)
    };
    let root = place(1)?;
    let lost_and_found = place(lost_and_found_blocks(sb.block_size))?;
    let resize = if sb.compat.has(Compat::RESIZE_INODE) { Some(place(1)?.start) } else { None };
    let has_orphans = sb.compat.has(Compat::ORPHAN_FILE);
    let orphans = place(if has_orphans { orphan_file_blocks(sb.blocks_count) } else { 0 })?;
    let journal = if sb.compat.has(Compat::HAS_JOURNAL) {
        let middle = sb.group_start(GroupNumber(sb.groups / 2)).0;
        space.allocate_runs(sb, middle, u64::from(journal_blocks(sb.blocks_count)))?
    } else {
        Vec::new()
    };
    let last_inode = if has_orphans { ORPHAN_FILE } else { LOST_AND_FOUND };
    Some(Layout { groups, space, root, lost_and_found, resize, orphans, journal, last_inode })
}
