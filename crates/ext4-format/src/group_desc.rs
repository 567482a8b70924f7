//! Group descriptors: kernel document `group_descr.rst`.

use crate::raw::{join, raw_layout};
use crate::{BlockNumber, GroupNumber, Problem, RoCompat, Superblock, crc16};
use zerocopy::{FromBytes, little_endian as le};

/// Where `bg_checksum` lies: sums leave it out or take it as zero.
const CHECKSUM_AT: usize = 0x1E;

raw_layout! {
    /// The first half of `struct ext4_group_desc`: all of it without 64bit.
    RawGroupDescLow, size 0x20 {
        0x00 bg_block_bitmap_lo: le::U32,
        0x04 bg_inode_bitmap_lo: le::U32,
        0x08 bg_inode_table_lo: le::U32,
        0x0C bg_free_blocks_count_lo: le::U16,
        0x0E bg_free_inodes_count_lo: le::U16,
        0x10 bg_used_dirs_count_lo: le::U16,
        0x12 bg_flags: le::U16,
        0x14 bg_exclude_bitmap_lo: le::U32,
        0x18 bg_block_bitmap_csum_lo: le::U16,
        0x1A bg_inode_bitmap_csum_lo: le::U16,
        0x1C bg_itable_unused_lo: le::U16,
        0x1E bg_checksum: le::U16,
    }
}

raw_layout! {
    /// The second half of `struct ext4_group_desc`, offsets from 0x20.
    RawGroupDescHigh, size 0x20 {
        0x00 bg_block_bitmap_hi: le::U32,
        0x04 bg_inode_bitmap_hi: le::U32,
        0x08 bg_inode_table_hi: le::U32,
        0x0C bg_free_blocks_count_hi: le::U16,
        0x0E bg_free_inodes_count_hi: le::U16,
        0x10 bg_used_dirs_count_hi: le::U16,
        0x12 bg_itable_unused_hi: le::U16,
        0x14 bg_exclude_bitmap_hi: le::U32,
        0x18 bg_block_bitmap_csum_hi: le::U16,
        0x1A bg_inode_bitmap_csum_hi: le::U16,
        0x1C bg_reserved: le::U32,
    }
}

/// A group descriptor whose inode table lies within the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// First block of the inode table.
    pub inode_table: BlockNumber,
}

impl GroupDesc {
    /// Parses the descriptor of `group` from its `desc_size` bytes and verifies its checksum.
    pub fn parse(bytes: &[u8], group: GroupNumber, sb: &Superblock) -> Result<GroupDesc, Problem> {
        let short = || Problem::Short { what: "a group descriptor", need: 32, have: bytes.len() };
        let (low, rest) = RawGroupDescLow::ref_from_prefix(bytes).map_err(|_| short())?;
        let high = if sb.is_64bit() {
            Some(RawGroupDescHigh::ref_from_prefix(rest).map_err(|_| short())?.0)
        } else {
            None
        };
        verify(bytes, low.bg_checksum.get(), group, sb)?;
        let inode_table = match high {
            Some(high) => join(high.bg_inode_table_hi, low.bg_inode_table_lo),
            None => u64::from(low.bg_inode_table_lo.get()),
        };
        let inode_table = BlockNumber(inode_table);
        let table_bytes = u64::from(sb.inodes_per_group) * u64::from(sb.inode_size);
        sb.check_blocks("bg_inode_table", inode_table, sb.block_size.blocks_for(table_bytes))?;
        Ok(GroupDesc { inode_table })
    }
}

fn verify(bytes: &[u8], stored: u16, group: GroupNumber, sb: &Superblock) -> Result<(), Problem> {
    let before = bytes.get(..CHECKSUM_AT).unwrap_or_default();
    let after = bytes.get(CHECKSUM_AT + 2..).unwrap_or_default();
    let number = group.0.to_le_bytes();
    let computed = if sb.has_metadata_csum() {
        let head = sb.checksum_seed.sum(&number);
        let sum = [before, &[0, 0], after].iter().fold(head, |sum, part| crate::crc32c(sum, part));
        sum & 0xFFFF
    } else if sb.ro_compat.has(RoCompat::GDT_CSUM) {
        let parts = [&sb.uuid, &number[..], before, after];
        u32::from(parts.iter().fold(!0, |sum, part| crc16(sum, part)))
    } else {
        return Ok(());
    };
    Problem::check_sum(u32::from(stored), computed)
}
