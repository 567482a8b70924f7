//! The outcome of reading ahead, over all shards, which decides how much is read ahead next.
//!
//! No decision needs the counts exact, and only reading ahead touches them: relaxed atomics,
//! `std`'s under loom too, so that models have nothing to explore.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the cache was created.
#[derive(Default)]
pub(crate) struct Feedback {
    used: AtomicU64,
    in_vain: AtomicU64,
}

/// The outcome of reading ahead, see [`BufCache::ahead_outcome`](crate::BufCache::ahead_outcome).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AheadOutcome {
    /// Blocks that were requested later.
    pub used: u64,
    /// Blocks that were evicted before a request, not readable, or without room.
    pub in_vain: u64,
}

impl Feedback {
    pub(crate) fn used(&self, count: u64) {
        self.used.fetch_add(count, Relaxed);
    }

    pub(crate) fn in_vain(&self, count: u64) {
        if count > 0 {
            self.in_vain.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn outcome(&self) -> AheadOutcome {
        AheadOutcome { used: self.used.load(Relaxed), in_vain: self.in_vain.load(Relaxed) }
    }
}
