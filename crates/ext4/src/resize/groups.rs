//! New groups, and the last one that becomes longer.

use super::geometry::own_blocks;
use crate::alloc::{copies_in, is_in_meta_group};
use crate::{Ext4, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupFlags, GroupNumber, Problem, Superblock, all_set, clear_bits, set_bits,
};

/// A new group: its metadata follows its copies of superblock and descriptors.
pub(super) fn new_group(sb: &Superblock, group: GroupNumber) -> GroupDesc {
    let first = sb.group_start(group).0 + copies_in(sb, group);
    let has_sums = sb.has_group_checksums();
    let bitmap = block_bitmap(sb, group);
    GroupDesc {
        block_bitmap: BlockNumber(first),
        inode_bitmap: BlockNumber(first + 1),
        inode_table: BlockNumber(first + 2),
        free_blocks: sb.blocks_in_group(group).saturating_sub(used_blocks(sb, group)),
        free_inodes: sb.inodes_per_group,
        used_dirs: 0,
        itable_unused: if has_sums { sb.inodes_per_group } else { 0 },
        flags: flags(sb, group),
        block_bitmap_sum: sb.block_bitmap_sum(&bitmap).unwrap_or(0),
        inode_bitmap_sum: 0,
    }
}

/// With checksums, bitmaps and table follow from the layout. The last group's block bitmap is
/// written, as mke2fs does it.
fn flags(sb: &Superblock, group: GroupNumber) -> GroupFlags {
    match (sb.has_group_checksums(), group.0 + 1 == sb.groups) {
        (false, _) => GroupFlags::default(),
        (true, true) => GroupFlags::INODE_UNINIT,
        (true, false) => GroupFlags::INODE_UNINIT.with(GroupFlags::BLOCK_UNINIT),
    }
}

/// At most a group.
fn used_blocks(sb: &Superblock, group: GroupNumber) -> u32 {
    u32::try_from(own_blocks(sb, group)).unwrap_or(u32::MAX)
}

fn block_bitmap(sb: &Superblock, group: GroupNumber) -> Vec<u8> {
    bitmap(sb, used_blocks(sb, group), sb.blocks_in_group(group))
}

/// A bitmap with the first bits set, and those past a number of bits.
fn bitmap(sb: &Superblock, used: u32, of: u32) -> Vec<u8> {
    let mut bytes = vec![0; sb.block_size.in_memory()];
    let (bits, index) = (bytes.len() * 8, |bit| usize::try_from(bit).unwrap_or(usize::MAX));
    set_bits(&mut bytes, 0, index(used));
    set_bits(&mut bytes, index(of), bits);
    bytes
}

/// Writes the bitmaps of a new group and its inode table, as far as they are read before a mount
/// initializes them.
pub(super) fn write_new_group(
    device: &dyn BlockDevice,
    sb: &Superblock,
    (group, desc): (GroupNumber, &GroupDesc),
) -> Result<()> {
    let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
    let at = |block: BlockNumber| block.0 << sb.block_size.log2();
    if !desc.flags.has(GroupFlags::BLOCK_UNINIT) {
        device.write_at(at(desc.block_bitmap), &block_bitmap(sb, group)).map_err(|e| place.io_write(e))?;
    }
    if sb.has_group_checksums() {
        return Ok(());
    }
    let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
    let inodes = bitmap(sb, 0, sb.inodes_per_group);
    device.write_at(at(desc.inode_bitmap), &inodes).map_err(|e| place.io_write(e))?;
    let table = desc.inode_table.0;
    (table..table + sb.inode_table_blocks()).try_for_each(|block| zero(device, sb, BlockNumber(block)))
}

/// Makes a block read as zeros. A hole of a file stays one.
pub(super) fn zero(device: &dyn BlockDevice, sb: &Superblock, block: BlockNumber) -> Result<()> {
    let place = Structure::InodeTable.at(block);
    let (at, mut bytes) = (block.0 << sb.block_size.log2(), vec![0; sb.block_size.in_memory()]);
    device.read_at(at, &mut bytes).map_err(|source| place.io(source))?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    bytes.fill(0);
    device.write_at(at, &bytes).map_err(|source| place.io_write(source))
}

/// Frees what the last group is longer. Returns its new block bitmap; `None` where that follows
/// from the layout, or does not change.
pub(super) fn lengthen(
    fs: &Ext4,
    sb: &Superblock,
    group: GroupNumber,
    desc: &mut GroupDesc,
) -> Result<Option<(u64, Vec<u8>)>> {
    let (was, is) = (fs.sb.blocks_in_group(group), sb.blocks_in_group(group));
    desc.free_blocks += is - was;
    if was == is || sb.has_group_checksums() && desc.flags.has(GroupFlags::BLOCK_UNINIT) {
        return Ok(None);
    }
    let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
    let mut bytes = fs.metadata(desc.block_bitmap, place)?.to_vec();
    if let Some(sum) = sb.block_bitmap_sum(&bytes) {
        Problem::check_sum(desc.block_bitmap_sum, sum).map_err(|problem| place.corrupt(problem))?;
    }
    let [was, is] = [was, is].map(|bit| usize::try_from(bit).unwrap_or(usize::MAX));
    if !all_set(&bytes, was, is) {
        let problem = Problem::Missing { what: "set bits past the group's last block" };
        return Err(place.corrupt(problem));
    }
    clear_bits(&mut bytes, was, is);
    desc.block_bitmap_sum = sb.block_bitmap_sum(&bytes).unwrap_or(0);
    Ok(Some((desc.block_bitmap.0, bytes)))
}

/// The places of a block of descriptors: the one that is used, then its copies.
pub(super) fn places(sb: &Superblock, index: u32) -> Vec<(GroupNumber, u64)> {
    let per_block = sb.descs_per_block();
    let first = GroupNumber(index * per_block);
    let behind = |group: GroupNumber, skip: u64| (group, sb.group_start(group).0 + skip);
    if is_in_meta_group(sb, first) {
        let all = [0, 1, per_block - 1].map(|within| GroupNumber(first.0 + within));
        let those = all.into_iter().filter(|group| group.0 < sb.groups);
        return those.map(|group| behind(group, u64::from(sb.group_has_superblock(group)))).collect();
    }
    let all = (0..sb.groups).map(GroupNumber);
    let those = all.filter(|&group| sb.group_has_superblock(group) && !is_in_meta_group(sb, group));
    those.map(|group| behind(group, 1 + u64::from(index))).collect()
}
