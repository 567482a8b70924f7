//! Counting blocks and inodes, and writing the file system.

use super::MkfsError;
use super::content::Files;
use super::geometry::base_blocks;
use super::layout::Layout;
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    GroupDesc, GroupFlags, GroupNumber, Incompat, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, set_bits,
};
use std::collections::BTreeMap;
use std::ops::Range;

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Bytes cleared at both ends: Btrfs has its signature at 64 KiB, ZFS and RAID within 256 KiB of
/// either end.
const SIGNATURES: u64 = 512 << 10;

/// Writes all structures, flushes, then writes the primary superblock.
pub(super) fn write(
    device: &dyn BlockDevice,
    sb: &mut Superblock,
    layout: &mut Layout,
    files: &Files,
    reads_as_zeros: bool,
) -> Result<(), MkfsError> {
    let out = Output { device, log_block_size: sb.block_size.log2(), reads_as_zeros };
    let size = device.size();
    out.zero("the first blocks", 0, SIGNATURES.min(size))?;
    out.zero("the last blocks", size.saturating_sub(SIGNATURES), size)?;
    let journal: u64 = layout.journal.iter().map(|run| run.end - run.start).sum();
    // With blocks of 1 KiB, block 0 is in no group. Block counts have 32 bits.
    sb.overhead_clusters = sb.first_data_block + u32::try_from(journal).unwrap_or(0);
    for group in (0..sb.groups).map(GroupNumber) {
        write_bitmaps(&out, sb, layout, group)?;
    }
    zero_tables(&out, sb, layout)?;
    write_inodes(&out, sb, layout, files)?;
    for run in &layout.journal {
        out.zero_blocks("the journal", run.clone())?;
    }
    for (block, bytes) in &files.blocks {
        out.put("the first files", *block, bytes)?;
    }
    write_copies(&out, sb, layout)?;
    out.flush()?;
    sb.block_group_nr = 0;
    out.put_bytes("the superblock", SUPERBLOCK_OFFSET, &encoded(sb))?;
    out.flush()
}

struct Output<'a> {
    device: &'a dyn BlockDevice,
    log_block_size: u32,
    reads_as_zeros: bool,
}

impl Output<'_> {
    fn put_bytes(&self, what: &'static str, offset: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        self.device.write_at(offset, bytes).map_err(|source| MkfsError::Device { what, source })
    }

    /// Skips zeros if the device reads as zeros.
    fn put(&self, what: &'static str, block: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        if self.reads_as_zeros && bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.put_bytes(what, block << self.log_block_size, bytes)
    }

    fn zero_blocks(&self, what: &'static str, blocks: Range<u64>) -> Result<(), MkfsError> {
        self.zero(what, blocks.start << self.log_block_size, blocks.end << self.log_block_size)
    }

    fn zero(&self, what: &'static str, mut from: u64, to: u64) -> Result<(), MkfsError> {
        while !self.reads_as_zeros && from < to {
            let left = usize::try_from(to - from).unwrap_or(ZEROS.len());
            let some = &ZEROS[..left.min(ZEROS.len())];
            self.put_bytes(what, from, some)?;
            from += u64::try_from(some.len()).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), MkfsError> {
        self.device.flush().map_err(|source| MkfsError::Device { what: "the device's cache", source })
    }
}

fn encoded(sb: &Superblock) -> [u8; SUPERBLOCK_SIZE] {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    sb.encode(&mut bytes);
    bytes
}

fn number(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// Also sets the counts and flags of descriptor and superblock.
fn write_bitmaps(
    out: &Output<'_>,
    sb: &mut Superblock,
    layout: &mut Layout,
    group: GroupNumber,
) -> Result<(), MkfsError> {
    let Some(desc) = layout.groups.get_mut(number(u64::from(group.0))) else { return Ok(()) };
    let start = sb.group_start(group).0;
    let blocks = u64::from(sb.blocks_in_group(group));
    let used = layout.space.count(start..start + blocks);
    let inodes = if group.0 == 0 { layout.last_inode } else { 0 };
    // Neither exceeds a group.
    desc.free_blocks = u32::try_from(blocks - used).unwrap_or(0);
    desc.free_inodes = sb.inodes_per_group - inodes;
    desc.used_dirs = if group.0 == 0 { 2 } else { 0 };
    if sb.has_group_checksums() {
        desc.itable_unused = desc.free_inodes;
        desc.flags = flags(sb, group, used, out.reads_as_zeros);
    }
    sb.free_blocks_count += u64::from(desc.free_blocks);
    sb.free_inodes_count += desc.free_inodes;
    sb.overhead_clusters += overhead(sb, group);
    let bits = sb.block_size.in_memory() * 8;
    if !desc.flags.has(GroupFlags::BLOCK_UNINIT) {
        let mut bitmap = vec![0; bits / 8];
        for run in layout.space.used(start..start + blocks) {
            set_bits(&mut bitmap, number(run.start - start), number(run.end - start));
        }
        set_bits(&mut bitmap, number(blocks), bits);
        desc.block_bitmap_sum = sb.block_bitmap_sum(&bitmap).unwrap_or(0);
        out.put("a block bitmap", desc.block_bitmap.0, &bitmap)?;
    }
    if !desc.flags.has(GroupFlags::INODE_UNINIT) {
        let mut bitmap = vec![0; bits / 8];
        set_bits(&mut bitmap, 0, number(u64::from(inodes)));
        set_bits(&mut bitmap, number(u64::from(sb.inodes_per_group)), bits);
        desc.inode_bitmap_sum = sb.inode_bitmap_sum(&bitmap).unwrap_or(0);
        out.put("an inode bitmap", desc.inode_bitmap.0, &bitmap)?;
    }
    Ok(())
}

/// A group is uninitialized if its bitmaps follow from the layout: it holds only a superblock
/// backup and its own metadata, and is not the last, which may be short.
fn flags(sb: &Superblock, group: GroupNumber, used: u64, reads_as_zeros: bool) -> GroupFlags {
    let mut flags = GroupFlags::default();
    if group.0 == 0 || reads_as_zeros {
        flags = flags.with(GroupFlags::ITABLE_ZEROED);
    }
    if group.0 == 0 {
        return flags;
    }
    let own = if sb.incompat.has(Incompat::FLEX_BG) { 0 } else { 2 + sb.inode_table_blocks() };
    if group.0 + 1 < sb.groups && used == base_blocks(sb, group) + own {
        flags = flags.with(GroupFlags::BLOCK_UNINIT);
    }
    flags.with(GroupFlags::INODE_UNINIT)
}

fn overhead(sb: &Superblock, group: GroupNumber) -> u32 {
    // Below the block count, which has 32 bits.
    u32::try_from(base_blocks(sb, group) + 2 + sb.inode_table_blocks()).unwrap_or(0)
}

/// Zeroes tables that are read before a mount initializes them: the first, and without descriptor
/// checksums all.
fn zero_tables(out: &Output<'_>, sb: &Superblock, layout: &Layout) -> Result<(), MkfsError> {
    let read_first = if sb.has_group_checksums() { 1 } else { layout.groups.len() };
    for desc in layout.groups.iter().take(read_first) {
        let start = desc.inode_table.0;
        out.zero_blocks("an inode table", start..start + sb.inode_table_blocks())?;
    }
    Ok(())
}

fn write_inodes(out: &Output<'_>, sb: &Superblock, layout: &Layout, files: &Files) -> Result<(), MkfsError> {
    let Some(table) = layout.groups.first().map(|desc| desc.inode_table.0) else { return Ok(()) };
    let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (ino, inode) in &files.inodes {
        let offset = u64::from(ino.0 - 1) * u64::from(sb.inode_size);
        let block =
            blocks.entry(offset >> out.log_block_size).or_insert_with(|| vec![0; sb.block_size.in_memory()]);
        let within = number(offset & u64::from(sb.block_size.bytes() - 1));
        if let Some(place) = block.get_mut(within..within + number(u64::from(sb.inode_size))) {
            inode.encode(place, sb);
        }
    }
    for (at, bytes) in blocks {
        out.put("the first inodes", table + at, &bytes)?;
    }
    Ok(())
}

/// Writes the descriptors after the primary superblock, and the backups of both.
fn write_copies(out: &Output<'_>, sb: &mut Superblock, layout: &Layout) -> Result<(), MkfsError> {
    let descriptors = descriptors(sb, &layout.groups);
    for group in
        (0..sb.groups).map(GroupNumber).filter(|&group| sb.group_has_superblock(group)).collect::<Vec<_>>()
    {
        let start = sb.group_start(group).0;
        out.put("group descriptors", start + 1, &descriptors)?;
        if group.0 != 0 {
            // The field has 16 bits.
            sb.block_group_nr = u16::try_from(group.0).unwrap_or(u16::MAX);
            let mut block = vec![0; sb.block_size.in_memory()];
            block[..SUPERBLOCK_SIZE].copy_from_slice(&encoded(sb));
            out.put("a copy of the superblock", start, &block)?;
        }
    }
    Ok(())
}

fn descriptors(sb: &Superblock, groups: &[GroupDesc]) -> Vec<u8> {
    let mut bytes = vec![0; number(u64::from(sb.desc_blocks())) * sb.block_size.in_memory()];
    let size = number(u64::from(sb.desc_size));
    for ((desc, place), group) in groups.iter().zip(bytes.chunks_exact_mut(size)).zip(0..) {
        desc.encode(place, GroupNumber(group), sb);
    }
    bytes
}
