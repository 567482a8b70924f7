//! Block and inode bitmaps: kernel document `bitmaps.rst`. Bit `n` is bit `n % 8` of byte `n / 8`; set is in use.
//!
//! A bitmap takes a block, also where a group has fewer bits: those behind the last are set, and not summed beyond the group's regular size.

use crate::{Superblock, raw::split16};

impl Superblock {
    /// What `block_bitmap_sum` of a descriptor must be for this bitmap; `None` where bitmaps are not summed.
    pub fn block_bitmap_sum(&self, bitmap: &[u8]) -> Option<u32> {
        self.bitmap_sum(bitmap, self.clusters_per_group())
    }

    /// The same of an inode bitmap.
    pub fn inode_bitmap_sum(&self, bitmap: &[u8]) -> Option<u32> {
        self.bitmap_sum(bitmap, self.inodes_per_group)
    }

    fn bitmap_sum(&self, bitmap: &[u8], bits: u32) -> Option<u32> {
        let len = usize::try_from(bits / 8).unwrap_or(usize::MAX);
        let sum = self.checksum_seed.sum(bitmap.get(..len).unwrap_or(bitmap));
        // A short descriptor has room for the low half.
        let stored = if self.is_64bit() { sum } else { u32::from(split16(sum).1) };
        self.has_metadata_csum().then_some(stored)
    }
}

/// Sets the bits from `from` to before `to`; those that the bitmap does not have are passed over.
pub fn set_bits(bitmap: &mut [u8], from: usize, to: usize) {
    let (first, last) = (from / 8, to / 8);
    for at in first..=last {
        let low = if at == first { 0xFF << (from % 8) } else { 0xFF_u32 };
        let high = if at == last { (1 << (to % 8)) - 1 } else { 0xFF_u32 };
        if let Some(byte) = bitmap.get_mut(at) {
            *byte |= (low & high & 0xFF) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_bits_of_the_range_are_set() {
        for (from, to) in [(0, 0), (0, 1), (3, 5), (3, 8), (0, 8), (7, 9), (5, 32), (8, 24), (30, 40)] {
            let mut bitmap = [0; 4];
            set_bits(&mut bitmap, from, to);
            for bit in 0..32 {
                let is_set = bitmap[bit / 8] >> (bit % 8) & 1 == 1;
                assert_eq!(is_set, (from..to).contains(&bit), "bit {bit} of {from}..{to}");
            }
        }
    }
}
