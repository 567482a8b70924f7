//! The outcome of reading ahead, over all shards, which decides how much is read ahead next.
//!
//! Relaxed atomics, as no decision needs exact counts; `std`'s also under loom, as models need not
//! explore them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(crate) struct Feedback {
    used: AtomicU64,
    wasted: AtomicU64,
}

/// The outcome of reading ahead, see [`BufCache::ahead_outcome`](crate::BufCache::ahead_outcome).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AheadOutcome {
    /// Blocks that were requested later.
    pub used: u64,
    /// Blocks that were evicted before a request, not readable, or without room.
    pub wasted: u64,
}

impl Feedback {
    pub(crate) fn used(&self, count: u64) {
        self.used.fetch_add(count, Relaxed);
    }

    pub(crate) fn wasted(&self, count: u64) {
        if count > 0 {
            self.wasted.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn outcome(&self) -> AheadOutcome {
        AheadOutcome { used: self.used.load(Relaxed), wasted: self.wasted.load(Relaxed) }
    }
}
