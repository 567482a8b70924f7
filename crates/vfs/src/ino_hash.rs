//! The hash of inode numbers for the inode cache: adjacent numbers share a shard and cache lines.
//!
//! Threads that create files allocate inodes in different parts of the inode tables. With this
//! hash, a thread's insertions stay for a while in one shard, on lines of its table that other
//! threads do not write. If each number were hashed separately, an insertion would write about six
//! lines that another thread has just written.
//!
//! The cache selects the shard by bits 32 and up, the slot by the lowest bits, and uses the seven
//! highest as a tag that tells entries of nearby slots apart. A range of 64 numbers shares a shard;
//! that is few enough to fill shards evenly. In it, groups of 8 numbers have adjacent slots and
//! independent tags.

use quick_cache::DefaultHashBuilder;
use std::hash::{BuildHasher, Hasher};

/// Adjacent numbers that share a shard, as a power of two.
const RANGE: u32 = 6;
/// Adjacent numbers that have adjacent slots, as a power of two.
const ADJACENT: u32 = 3;

const TAG: u64 = 0xFF << 56;
const SLOT: u64 = 0xFFFF_FFFF;
const SHARD: u64 = !(TAG | SLOT);

#[derive(Clone, Default)]
pub(crate) struct HashNumber(DefaultHashBuilder);

impl BuildHasher for HashNumber {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        NumberHasher { mixed: self.0.clone(), hash: 0 }
    }
}

/// The hash of the last number written.
pub(crate) struct NumberHasher {
    mixed: DefaultHashBuilder,
    hash: u64,
}

impl Hasher for NumberHasher {
    fn write_u64(&mut self, number: u64) {
        let mixed = |number: u64| self.mixed.hash_one(number);
        let slot = mixed(number >> ADJACENT) << ADJACENT | number & ((1 << ADJACENT) - 1);
        self.hash = mixed(number) & TAG | mixed(number >> RANGE) & SHARD | slot & SLOT;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.hash << 8 ^ u64::from(byte)));
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ino;
    use std::collections::HashSet;

    #[test]
    fn adjacent_numbers_share_a_shard_and_have_adjacent_slots() {
        let hasher = HashNumber::default();
        let hash = |number| hasher.hash_one(Ino(number));
        let range = 3 << RANGE..4 << RANGE;
        assert_eq!(range.clone().map(|number| hash(number) & SHARD).collect::<HashSet<_>>().len(), 1);
        let slots: HashSet<u64> = range.clone().map(|number| (hash(number) & SLOT) >> ADJACENT).collect();
        assert_eq!(slots.len(), 1 << (RANGE - ADJACENT), "one line for each group");
        assert_eq!(
            range.clone().map(|number| hash(number) & SLOT).collect::<HashSet<_>>().len(),
            range.count()
        );
    }

    #[test]
    fn shards_fill_evenly() {
        const SHARDS: usize = 8;
        let hasher = HashNumber::default();
        let mut filled = [0_u32; SHARDS];
        (0..100_000).for_each(|number| filled[(hasher.hash_one(Ino(number)) >> 32) as usize % SHARDS] += 1);
        assert!(filled.iter().all(|filled| (8_000..17_000).contains(filled)), "{filled:?}");
    }
}
