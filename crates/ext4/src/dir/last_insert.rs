//! The position of each leaf's last insertion, after which there is mostly space.
//!
//! Without it an insertion walks half of the leaf's entries, a chain of cache misses. A split packs
//! a leaf, so its free space is after the last entry and stays there while entries are only added.
//!
//! # Data
//! One word per leaf: its block, and the start of the entry added last. Leaves may share a word,
//! which names its leaf.
//!
//! # Who protects what
//! The leaf's lock (`lock.rs`), for readers too. A change of the leaf clears its word; an insertion
//! then sets it. Relaxed: the lock orders accesses.

use dentree_ext4_format::BlockNumber;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 4096;
/// Low bits: the entry's position / 4. High bits: the block.
const PLACE_BITS: u32 = 16;

pub(crate) struct LastInserts(Box<[AtomicU64]>);

impl LastInserts {
    pub(crate) fn new() -> LastInserts {
        LastInserts((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, leaf: BlockNumber) -> &AtomicU64 {
        &self.0[usize::try_from(leaf.0 % WORDS as u64).unwrap_or(0)]
    }

    pub(super) fn get(&self, leaf: BlockNumber) -> Option<usize> {
        let word = self.word(leaf).load(Relaxed);
        let place = word & ((1 << PLACE_BITS) - 1);
        (word != 0 && word >> PLACE_BITS == leaf.0).then(|| usize::try_from(4 * place).unwrap_or(usize::MAX))
    }

    pub(super) fn set(&self, leaf: BlockNumber, start: usize) {
        let place = u64::try_from(start / 4).unwrap_or(u64::MAX);
        // A block number has 48 bits.
        if place >> PLACE_BITS == 0 && leaf.0 >> (u64::BITS - PLACE_BITS) == 0 {
            self.word(leaf).store(leaf.0 << PLACE_BITS | place, Relaxed);
        }
    }

    /// Called for a leaf that changes, and a block that becomes one.
    pub(super) fn clear(&self, leaf: BlockNumber) {
        let word = self.word(leaf);
        if word.load(Relaxed) >> PLACE_BITS == leaf.0 {
            word.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_that_share_a_word_are_told_apart() {
        let last = LastInserts::new();
        let (one, other) = (BlockNumber(7), BlockNumber(7 + WORDS as u64));
        last.set(one, 4084);
        assert_eq!((last.get(one), last.get(other)), (Some(4084), None));
        last.clear(other);
        assert_eq!(last.get(one), Some(4084));
        last.set(other, 0);
        assert_eq!((last.get(one), last.get(other)), (None, Some(0)));
        last.clear(other);
        assert_eq!(last.get(other), None);
        last.set(BlockNumber(1 << 48), 12);
        last.set(BlockNumber(0), 1 << 18);
        assert_eq!((last.get(BlockNumber(1 << 48)), last.get(BlockNumber(0))), (None, None));
    }
}
