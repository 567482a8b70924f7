//! Group descriptors. Source: kernel document `group_descr.rst`.

use crate::raw::{join, join16, raw_layout, split, split16};
use crate::{BlockNumber, GroupNumber, Incompat, Problem, Superblock, crc16};
use zerocopy::{FromBytes, FromZeros, little_endian as le};

/// Offset of `bg_checksum`.
const CHECKSUM_AT: usize = 0x1E;

raw_layout! {
    /// `struct ext4_group_desc` without 64bit.
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
    /// The 64bit half of `struct ext4_group_desc`, offsets from 0x20.
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

/// `bg_flags`. Only with descriptor checksums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupFlags(pub u16);

impl GroupFlags {
    /// Inode bitmap and table are uninitialized.
    pub const INODE_UNINIT: GroupFlags = GroupFlags(0x1);
    /// The block bitmap is uninitialized; it follows from the layout.
    pub const BLOCK_UNINIT: GroupFlags = GroupFlags(0x2);
    /// Unused inodes are zeroed.
    pub const ITABLE_ZEROED: GroupFlags = GroupFlags(0x4);

    /// Whether all of `flags` are set.
    pub fn has(self, flags: GroupFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Adds `flags`.
    pub fn with(self, flags: GroupFlags) -> GroupFlags {
        GroupFlags(self.0 | flags.0)
    }

    /// Removes `flags`.
    pub fn without(self, flags: GroupFlags) -> GroupFlags {
        GroupFlags(self.0 & !flags.0)
    }
}

/// A group descriptor. Only the inode table's location is validated; see
/// [`check`](GroupDesc::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// Block bitmap.
    pub block_bitmap: BlockNumber,
    /// Inode bitmap.
    pub inode_bitmap: BlockNumber,
    /// Inode table's first block.
    pub inode_table: BlockNumber,
    /// Free clusters.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Unused inodes at the end of the table.
    pub itable_unused: u32,
    /// Uninitialized parts.
    pub flags: GroupFlags,
    /// [`Superblock::block_bitmap_sum`].
    pub block_bitmap_sum: u32,
    /// [`Superblock::inode_bitmap_sum`].
    pub inode_bitmap_sum: u32,
}

impl GroupDesc {
    /// Parses `desc_size` bytes, and verifies the checksum.
    pub fn parse(bytes: &[u8], group: GroupNumber, sb: &Superblock) -> Result<GroupDesc, Problem> {
        let short = || Problem::Short { what: "a group descriptor", need: 32, have: bytes.len() };
        let (low, rest) = RawGroupDescLow::ref_from_prefix(bytes).map_err(|_| short())?;
        let zeros = RawGroupDescHigh::new_zeroed();
        let high = if sb.is_64bit() {
            RawGroupDescHigh::ref_from_prefix(rest).map_err(|_| short())?.0
        } else {
            &zeros
        };
        if let Some(computed) = checksum(bytes, group, sb) {
            Problem::check_sum(u32::from(low.bg_checksum.get()), u32::from(computed))?;
        }
        let desc = GroupDesc {
            block_bitmap: BlockNumber(join(high.bg_block_bitmap_hi, low.bg_block_bitmap_lo)),
            inode_bitmap: BlockNumber(join(high.bg_inode_bitmap_hi, low.bg_inode_bitmap_lo)),
            inode_table: BlockNumber(join(high.bg_inode_table_hi, low.bg_inode_table_lo)),
            free_blocks: join16(high.bg_free_blocks_count_hi, low.bg_free_blocks_count_lo),
            free_inodes: join16(high.bg_free_inodes_count_hi, low.bg_free_inodes_count_lo),
            used_dirs: join16(high.bg_used_dirs_count_hi, low.bg_used_dirs_count_lo),
            itable_unused: join16(high.bg_itable_unused_hi, low.bg_itable_unused_lo),
            flags: GroupFlags(low.bg_flags.get()),
            block_bitmap_sum: join16(high.bg_block_bitmap_csum_hi, low.bg_block_bitmap_csum_lo),
            inode_bitmap_sum: join16(high.bg_inode_bitmap_csum_hi, low.bg_inode_bitmap_csum_lo),
        };
        sb.check_blocks("bg_inode_table", desc.inode_table, sb.inode_table_blocks())?;
        Ok(desc)
    }

    /// Checks what readers do not need: the bitmaps' locations, and the counts.
    pub fn check(&self, group: GroupNumber, sb: &Superblock) -> Result<(), Problem> {
        let places = [
            ("bg_block_bitmap", self.block_bitmap, 1),
            ("bg_inode_bitmap", self.inode_bitmap, 1),
            ("bg_inode_table", self.inode_table, sb.inode_table_blocks()),
        ];
        for (field, first, count) in places {
            sb.check_blocks(field, first, count)?;
            // With flex_bg they may be in other groups.
            if !sb.incompat.has(Incompat::FLEX_BG) {
                let start = sb.group_start(group).0;
                let end = start + u64::from(sb.blocks_in_group(group));
                Problem::check_range(field, first.0, start, end.saturating_sub(count))?;
            }
        }
        let clusters = sb.blocks_in_group(group).div_ceil(1 << sb.log_cluster_ratio);
        let at_most = |field, count, max| Problem::check_range(field, u64::from(count), 0, u64::from(max));
        at_most("bg_free_blocks_count", self.free_blocks, clusters)?;
        at_most("bg_free_inodes_count", self.free_inodes, sb.inodes_per_group)?;
        at_most("bg_used_dirs_count", self.used_dirs, sb.inodes_per_group - self.free_inodes)?;
        at_most("bg_itable_unused", self.itable_unused, self.free_inodes)
    }

    /// Writes all fields and the checksum over `desc_size` bytes; other bytes do not change.
    pub fn encode(&self, bytes: &mut [u8], group: GroupNumber, sb: &Superblock) {
        let mut unused = RawGroupDescHigh::new_zeroed();
        let Ok((low, rest)) = RawGroupDescLow::mut_from_prefix(bytes) else { return };
        let high = match RawGroupDescHigh::mut_from_prefix(rest) {
            Ok((high, _)) if sb.is_64bit() => high,
            _ => &mut unused,
        };
        let wide = |value: BlockNumber, upper: &mut le::U32, lower: &mut le::U32| {
            let (high, low) = split(value.0);
            upper.set(high);
            lower.set(low);
        };
        wide(self.block_bitmap, &mut high.bg_block_bitmap_hi, &mut low.bg_block_bitmap_lo);
        wide(self.inode_bitmap, &mut high.bg_inode_bitmap_hi, &mut low.bg_inode_bitmap_lo);
        wide(self.inode_table, &mut high.bg_inode_table_hi, &mut low.bg_inode_table_lo);
        let wide = |value: u32, upper: &mut le::U16, lower: &mut le::U16| {
            let (high, low) = split16(value);
            upper.set(high);
            lower.set(low);
        };
        wide(self.free_blocks, &mut high.bg_free_blocks_count_hi, &mut low.bg_free_blocks_count_lo);
        wide(self.free_inodes, &mut high.bg_free_inodes_count_hi, &mut low.bg_free_inodes_count_lo);
        wide(self.used_dirs, &mut high.bg_used_dirs_count_hi, &mut low.bg_used_dirs_count_lo);
        wide(self.itable_unused, &mut high.bg_itable_unused_hi, &mut low.bg_itable_unused_lo);
        wide(self.block_bitmap_sum, &mut high.bg_block_bitmap_csum_hi, &mut low.bg_block_bitmap_csum_lo);
        wide(self.inode_bitmap_sum, &mut high.bg_inode_bitmap_csum_hi, &mut low.bg_inode_bitmap_csum_lo);
        low.bg_flags.set(self.flags.0);
        if let Some(sum) = checksum(bytes, group, sb)
            && let Some(field) = bytes.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)
        {
            field.copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// `None`: the file system has no checksums.
fn checksum(bytes: &[u8], group: GroupNumber, sb: &Superblock) -> Option<u16> {
    let before = bytes.get(..CHECKSUM_AT).unwrap_or_default();
    let after = bytes.get(CHECKSUM_AT + 2..).unwrap_or_default();
    let number = group.0.to_le_bytes();
    if sb.has_metadata_csum() {
        let head = sb.checksum_seed.sum(&number);
        let sum = [before, &[0, 0], after].iter().fold(head, |sum, part| crate::crc32c(sum, part));
        Some(split16(sum).1)
    } else if sb.has_group_checksums() {
        let parts = [&sb.uuid, &number[..], before, after];
        Some(parts.iter().fold(!0, |sum, part| crc16(sum, part)))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockSize, Incompat, RoCompat};

    fn superblock(incompat: Incompat, ro_compat: RoCompat) -> Superblock {
        Superblock {
            incompat,
            ro_compat,
            blocks_count: 65536,
            groups: 8,
            inodes_per_group: 2048,
            inodes_count: 16384,
            desc_size: if incompat.has(Incompat::BITS64) { 64 } else { 32 },
            ..Superblock::new(BlockSize::from_log_block_size(0).unwrap(), [3; 16])
        }
    }

    fn desc() -> GroupDesc {
        GroupDesc {
            block_bitmap: BlockNumber(300),
            inode_bitmap: BlockNumber(301),
            inode_table: BlockNumber(302),
            free_blocks: 7000,
            free_inodes: 2000,
            used_dirs: 48,
            itable_unused: 1999,
            flags: GroupFlags::ITABLE_ZEROED,
            block_bitmap_sum: 0x1234,
            inode_bitmap_sum: 0x5678,
        }
    }

    #[test]
    fn encoding_and_parsing_are_inverse_with_every_kind_of_checksum() {
        for (incompat, ro_compat) in [
            (Incompat::BITS64, RoCompat::METADATA_CSUM),
            (Incompat::BITS64, RoCompat::GDT_CSUM),
            (Incompat(0), RoCompat::METADATA_CSUM),
            (Incompat(0), RoCompat::GDT_CSUM),
            (Incompat(0), RoCompat(0)),
        ] {
            let sb = superblock(incompat, ro_compat);
            let mut bytes = vec![0; usize::try_from(sb.desc_size).unwrap()];
            desc().encode(&mut bytes, GroupNumber(5), &sb);
            assert_eq!(GroupDesc::parse(&bytes, GroupNumber(5), &sb), Ok(desc()));
            let elsewhere = GroupDesc::parse(&bytes, GroupNumber(6), &sb);
            assert_eq!(elsewhere.is_err(), sb.has_group_checksums(), "the sum is of the group, too");
        }
    }

    #[test]
    fn bitmap_checksums_have_32_bits_only_in_long_descriptors() {
        let long = superblock(Incompat::BITS64, RoCompat::METADATA_CSUM);
        let short = superblock(Incompat(0), RoCompat::METADATA_CSUM);
        let bitmap = [0x55; 1024];
        assert_eq!(short.block_bitmap_sum(&bitmap), long.block_bitmap_sum(&bitmap).map(|sum| sum & 0xFFFF));
        assert_eq!(superblock(Incompat(0), RoCompat::GDT_CSUM).inode_bitmap_sum(&bitmap), None);
    }

    #[test]
    fn a_bitmaps_checksum_follows_changed_bits() {
        for incompat in [Incompat::BITS64, Incompat(0)] {
            let sb = superblock(incompat, RoCompat::METADATA_CSUM);
            let mut bitmap = [0x55; 1024];
            let mut sum = sb.inode_bitmap_sum(&bitmap).unwrap();
            // With 2048 inodes per group the last bits are not in the checksum.
            for bits in
                [0..1, 1..2, 7..9, 8..16, 5..5, 3..259, 4..261, 0..2048, 2047..2048, 2040..2050, 2048..2049]
            {
                bits.clone().for_each(|bit| bitmap[bit / 8] ^= 1 << (bit % 8));
                sum = sb.changed_inode_bitmap_sum(sum, bits.clone(), &bitmap);
                assert_eq!(Some(sum), sb.inode_bitmap_sum(&bitmap), "bits {bits:?}");
            }
        }
        let unsummed = superblock(Incompat(0), RoCompat::GDT_CSUM);
        assert_eq!(unsummed.changed_block_bitmap_sum(0x1234, 3..4, &[0; 1024]), 0x1234);
    }

    #[test]
    fn counts_above_the_groups_size_and_bitmaps_outside_are_refused() {
        let sb = superblock(Incompat::BITS64, RoCompat::METADATA_CSUM);
        assert_eq!(desc().check(GroupNumber(0), &sb), Ok(()));
        for break_it in [
            (|desc| desc.block_bitmap = BlockNumber(0)) as fn(&mut GroupDesc),
            |desc| desc.inode_bitmap = BlockNumber(65536),
            |desc| desc.free_blocks = 8193,
            |desc| desc.free_inodes = 2049,
            |desc| desc.used_dirs = 49,
            |desc| desc.itable_unused = 2001,
        ] {
            let mut desc = desc();
            break_it(&mut desc);
            assert!(desc.check(GroupNumber(0), &sb).is_err(), "{desc:?}");
        }
    }
}
