//! Block and inode bitmaps. Bit `n` is bit `n % 8` of byte `n / 8`; set means in use. Source:
//! kernel document `bitmaps.rst`.
//!
//! Bits after the group's last are set. The checksum covers a full group, not the whole block.

use crate::{SumChange, Superblock, crc32c, raw::split16};
use std::ops::Range;

/// Beyond, the checksum is computed from scratch.
const MOST_CHANGED: usize = 256;

impl Superblock {
    /// A descriptor's `block_bitmap_sum`; `None` without bitmap checksums.
    pub fn block_bitmap_sum(&self, bitmap: &[u8]) -> Option<u32> {
        self.bitmap_sum(bitmap, self.clusters_per_group())
    }

    /// A descriptor's `inode_bitmap_sum`; `None` without bitmap checksums.
    pub fn inode_bitmap_sum(&self, bitmap: &[u8]) -> Option<u32> {
        self.bitmap_sum(bitmap, self.inodes_per_group)
    }

    /// Updates `sum` after all bits of `changed` were flipped; `bitmap` is the result.
    pub fn changed_block_bitmap_sum(&self, sum: u32, changed: Range<usize>, bitmap: &[u8]) -> u32 {
        self.changed_sum(sum, changed, bitmap, self.clusters_per_group())
    }

    /// As [`changed_block_bitmap_sum`](Superblock::changed_block_bitmap_sum).
    pub fn changed_inode_bitmap_sum(&self, sum: u32, changed: Range<usize>, bitmap: &[u8]) -> u32 {
        self.changed_sum(sum, changed, bitmap, self.inodes_per_group)
    }

    fn changed_sum(&self, sum: u32, changed: Range<usize>, bitmap: &[u8], bits: u32) -> u32 {
        let bytes = usize::try_from(bits / 8).unwrap_or(usize::MAX);
        let end = changed.end.div_ceil(8);
        if !self.has_metadata_csum() || changed.is_empty() {
            return sum;
        }
        if changed.len() > MOST_CHANGED || end > bytes {
            return self.bitmap_sum(bitmap, bits).unwrap_or(sum);
        }
        let difference = masks(changed.start, changed.end).fold(0, |sum, (_, mask)| crc32c(sum, &[mask]));
        let change = SumChange::at(bytes - end).of(difference);
        sum ^ if self.is_64bit() { change } else { u32::from(split16(change).1) }
    }

    fn bitmap_sum(&self, bitmap: &[u8], bits: u32) -> Option<u32> {
        let len = usize::try_from(bits / 8).unwrap_or(usize::MAX);
        let sum = self.checksum_seed.sum(bitmap.get(..len).unwrap_or(bitmap));
        // Short descriptors store the low half.
        let stored = if self.is_64bit() { sum } else { u32::from(split16(sum).1) };
        self.has_metadata_csum().then_some(stored)
    }
}

/// Sets the bits `from..to`; ignores those after the bitmap.
pub fn set_bits(bitmap: &mut [u8], from: usize, to: usize) {
    for (at, mask) in masks(from, to) {
        if let Some(byte) = bitmap.get_mut(at) {
            *byte |= mask;
        }
    }
}

/// Clears the bits `from..to`; ignores those after the bitmap.
pub fn clear_bits(bitmap: &mut [u8], from: usize, to: usize) {
    for (at, mask) in masks(from, to) {
        if let Some(byte) = bitmap.get_mut(at) {
            *byte &= !mask;
        }
    }
}

/// Whether the bits `from..to` are set.
pub fn all_set(bitmap: &[u8], from: usize, to: usize) -> bool {
    masks(from, to).all(|(at, mask)| bitmap.get(at).is_some_and(|byte| byte & mask == mask))
}

/// Bytes with a mask of their bits in `from..to`.
fn masks(from: usize, to: usize) -> impl Iterator<Item = (usize, u8)> {
    (from / 8..to.div_ceil(8)).map(move |at| {
        let low = if at == from / 8 { 0xFF << (from % 8) } else { 0xFF_u32 };
        let high = if at == to / 8 { (1 << (to % 8)) - 1 } else { 0xFF_u32 };
        (at, (low & high & 0xFF) as u8)
    })
}

/// A run of clear bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeRun {
    /// First bit.
    pub first: usize,
    /// Number of bits.
    pub len: usize,
}

/// The first run of `want` clear bits; without one, the longest, maybe empty.
pub fn find_free(bitmap: &[u8], from: usize, to: usize, want: usize) -> FreeRun {
    let mut longest = FreeRun::default();
    let mut at = from;
    while longest.len < want {
        let first = next_bit(bitmap, at, to, false);
        if first >= to {
            break;
        }
        let end = next_bit(bitmap, first, to.min(first.saturating_add(want)), true);
        if end - first > longest.len {
            longest = FreeRun { first, len: end - first };
        }
        at = end;
    }
    longest
}

/// All runs of clear bits in `from..to`.
pub fn free_runs(bitmap: &[u8], from: usize, to: usize) -> impl Iterator<Item = FreeRun> {
    let mut at = from;
    std::iter::from_fn(move || {
        let first = next_bit(bitmap, at, to, false);
        at = next_bit(bitmap, first, to, true);
        (first < at).then_some(FreeRun { first, len: at - first })
    })
}

/// The first bit with value `set`, or `to`. Bits after the bitmap have neither value.
fn next_bit(bitmap: &[u8], from: usize, to: usize, set: bool) -> usize {
    let flip = if set { 0 } else { u64::MAX };
    let mut at = from;
    while at < to {
        let rest = bitmap.get(at / 64 * 8..).unwrap_or_default();
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut word = [if set { 0 } else { 0xFF }; 8];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            word
        });
        let wanted = (u64::from_le_bytes(word) ^ flip) >> (at % 64);
        if wanted != 0 {
            return (at + wanted.trailing_zeros() as usize).min(to);
        }
        at = (at / 64 + 1) * 64;
    }
    to
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

    proptest::proptest! {
        #[test]
        fn runs_are_found_like_bit_by_bit(
            bytes in proptest::collection::vec(proptest::prelude::prop_oneof![
                proptest::prelude::Just(0_u8), proptest::prelude::Just(0xFF), proptest::prelude::any::<u8>()
            ], 24),
            from in 0..192_usize, len in 0..192_usize, want in 1..100_usize,
        ) {
            let to = (from + len).min(192);
            let is_set = |bit: usize| bytes[bit / 8] >> (bit % 8) & 1 == 1;
            let run = |first: usize| (first..to).take_while(|&bit| !is_set(bit)).count().min(want);
            let longest = (from..to).map(run).max().unwrap_or(0);
            let found = find_free(&bytes, from, to, want);
            proptest::prop_assert_eq!(found.len, longest);
            if longest > 0 {
                proptest::prop_assert_eq!(Some(found.first), (from..to).find(|&first| run(first) == longest));
            }
            proptest::prop_assert_eq!(all_set(&bytes, from, to), (from..to).all(is_set));
            let mut cleared = bytes.clone();
            clear_bits(&mut cleared, from, to);
            for bit in 0..192 {
                let now = cleared[bit / 8] >> (bit % 8) & 1 == 1;
                proptest::prop_assert_eq!(now, is_set(bit) && !(from..to).contains(&bit));
            }
        }
    }
}
