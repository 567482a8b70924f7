//! Where the inode cache keeps an inode: neighbours by number near each other.
//!
//! Threads that make files take inodes of different parts of the tables. What one of them puts into the cache lies in one shard for a while, and on lines
//! of that shard's table which the others leave alone meanwhile. Were each number hashed by itself, every insertion would write some six lines
//! that another thread has just written.
//!
//! The cache takes the shard by the bits of the hash from 32 on, the place in the shard's table by the lowest, and the tag that entries near one place
//! are told apart by from the seven highest. So a range of numbers shares a shard: a small one, that shards fill evenly. A few of these have
//! places side by side, and no two of those the same tag but by chance.

use quick_cache::DefaultHashBuilder;
use std::hash::{BuildHasher, Hasher};

/// Neighbours that share a shard, as a power of two.
const RANGE: u32 = 6;
/// Neighbours that have places side by side.
const SIDE_BY_SIDE: u32 = 3;

const TAG: u64 = 0xFF << 56;
const PLACE: u64 = 0xFFFF_FFFF;
const SHARD: u64 = !(TAG | PLACE);

/// Makes the hashes of numbers of inodes.
#[derive(Clone, Default)]
pub(crate) struct ByNumber(DefaultHashBuilder);

impl BuildHasher for ByNumber {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        NumberHasher { mixed: self.0.clone(), hash: 0 }
    }
}

/// Of what is hashed only the last number counts.
pub(crate) struct NumberHasher {
    mixed: DefaultHashBuilder,
    hash: u64,
}

impl Hasher for NumberHasher {
    fn write_u64(&mut self, number: u64) {
        let mixed = |number: u64| self.mixed.hash_one(number);
        let place = mixed(number >> SIDE_BY_SIDE) << SIDE_BY_SIDE | number & ((1 << SIDE_BY_SIDE) - 1);
        self.hash = mixed(number) & TAG | mixed(number >> RANGE) & SHARD | place & PLACE;
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
    fn neighbours_share_a_shard_and_have_places_side_by_side() {
        let by_number = ByNumber::default();
        let hash = |number| by_number.hash_one(Ino(number));
        let range = 3 << RANGE..4 << RANGE;
        assert_eq!(range.clone().map(|number| hash(number) & SHARD).collect::<HashSet<_>>().len(), 1);
        let places: HashSet<u64> =
            range.clone().map(|number| (hash(number) & PLACE) >> SIDE_BY_SIDE).collect();
        assert_eq!(places.len(), 1 << (RANGE - SIDE_BY_SIDE), "a line for each few");
        assert_eq!(
            range.clone().map(|number| hash(number) & PLACE).collect::<HashSet<_>>().len(),
            range.count()
        );
    }

    #[test]
    fn shards_fill_evenly() {
        const SHARDS: usize = 8;
        let by_number = ByNumber::default();
        let mut filled = [0_u32; SHARDS];
        (0..100_000)
            .for_each(|number| filled[(by_number.hash_one(Ino(number)) >> 32) as usize % SHARDS] += 1);
        assert!(filled.iter().all(|filled| (8_000..17_000).contains(filled)), "{filled:?}");
    }
}
