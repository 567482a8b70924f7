//! What came of reading ahead, of all shards together, for who decides how much to read ahead next.
//!
//! Both are statistics, no decision needs them exact, and they are touched only where something was read ahead: relaxed atomics, of `std`
//! under `loom` too, which then has nothing of them to explore.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the cache was made.
#[derive(Default)]
pub(crate) struct Feedback {
    used: AtomicU64,
    in_vain: AtomicU64,
}

/// What came of blocks that were to be read ahead, see [`BufCache::ahead_outcome`](crate::BufCache::ahead_outcome).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AheadOutcome {
    /// Asked for by somebody since.
    pub used: u64,
    /// Thrown out before anybody asked, not readable, or not read for want of room.
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
