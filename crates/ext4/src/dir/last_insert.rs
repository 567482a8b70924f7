//! Where the last entry of a leaf was put: there is room behind it, most of the time.
//!
//! Who adds an entry to a leaf would go through half of its entries, each of which says where the next one begins; in a large directory they come from
//! memory, line by line. A split packs a leaf, so that all its room is behind the last entry, and so it stays while entries are only added.
//!
//! # Data
//! A word for each leaf, which those share whose blocks are so many apart: the leaf's block, and the byte at which the entry begins that was added
//! last. No two leaves of a file system have one block, so a word is of the leaf that it names.
//!
//! # Who protects what
//! Who changes a leaf holds it (`lock.rs`) and forgets its word first; who has added an entry notes it. Who asks holds the leaf, too. So a word
//! is true of the leaf as it is. Relaxed: the leaf's lock orders those of one leaf, and others do not believe them.

use dentree_ext4_format::BlockNumber;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 4096;
/// The lowest bits are a quarter of the byte; the block stands above them.
const PLACE_BITS: u32 = 16;

/// The last entries of leaves.
pub(crate) struct LastEntries(Box<[AtomicU64]>);

impl LastEntries {
    pub(crate) fn new() -> LastEntries {
        LastEntries((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, leaf: BlockNumber) -> &AtomicU64 {
        &self.0[usize::try_from(leaf.0 % WORDS as u64).unwrap_or(0)]
    }

    /// At which byte the entry begins that was added last to a leaf, if that is known.
    pub(super) fn of(&self, leaf: BlockNumber) -> Option<usize> {
        let word = self.word(leaf).load(Relaxed);
        let place = word & ((1 << PLACE_BITS) - 1);
        (word != 0 && word >> PLACE_BITS == leaf.0).then(|| usize::try_from(4 * place).unwrap_or(usize::MAX))
    }

    /// Notes the entry that was added last.
    pub(super) fn note(&self, leaf: BlockNumber, start: usize) {
        let place = u64::try_from(start / 4).unwrap_or(u64::MAX);
        // A block number has 48 bits.
        if place >> PLACE_BITS == 0 && leaf.0 >> (u64::BITS - PLACE_BITS) == 0 {
            self.word(leaf).store(leaf.0 << PLACE_BITS | place, Relaxed);
        }
    }

    /// Says that a leaf is changed, or another block becomes one.
    pub(super) fn forget(&self, leaf: BlockNumber) {
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
        let last = LastEntries::new();
        let (one, other) = (BlockNumber(7), BlockNumber(7 + WORDS as u64));
        last.note(one, 4084);
        assert_eq!((last.of(one), last.of(other)), (Some(4084), None));
        last.forget(other);
        assert_eq!(last.of(one), Some(4084));
        last.note(other, 0);
        assert_eq!((last.of(one), last.of(other)), (None, Some(0)));
        last.forget(other);
        assert_eq!(last.of(other), None);
        last.note(BlockNumber(1 << 48), 12);
        last.note(BlockNumber(0), 1 << 18);
        assert_eq!((last.of(BlockNumber(1 << 48)), last.of(BlockNumber(0))), (None, None));
    }
}
