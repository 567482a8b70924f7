//! Asking for all lines of a walk before the first is read.
//!
//! With sticky seeds all buckets of a path follow from its bytes, so their lines can be under way at once, and
//! after them the records that they name: two waits for memory instead of two per component. For what is in the
//! processor's caches already it costs more than it gives (003 of the sources found the same of the kernel's
//! prefetch), so `Auto` finds out: of every [`PERIOD`] walks of a thread one is timed with and one without, and
//! the rest do what has been faster lately. A cache so small that it must be hot is not even tried.

use super::{Core, Id, chunks::prefetch, index::Extent, leap::Ladder};
use crate::sync::{AtomicU32, Ordering};
use crate::{Handle, PrefetchMode};
use std::time::Duration;

/// Walks of a thread per trial of either kind.
const PERIOD: u32 = 256;
/// The index size in buckets from which on trials are made: 32,000 entries, 2 MiB of records.
const LARGE: u32 = 4096;
/// Paths of a batch whose lines are asked for together. At 3 million entries 4, 8 and 16 take 48, 45 and 60 ns a
/// component (one run; 164 one path after the other).
pub(crate) const TOGETHER: usize = 8;

/// What a walk is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) prefetch: bool,
    /// Report how long it took.
    pub(crate) timed: bool,
}

/// What a thread has learnt. Single words of its seat.
#[derive(Default)]
pub(crate) struct Trials {
    walks: AtomicU32,
    /// Running means of the time for a walk, in sixteenths of a nanosecond.
    with: AtomicU32,
    without: AtomicU32,
}

impl Trials {
    fn plan(&self) -> Plan {
        let walks = self.walks.load(Ordering::Relaxed).wrapping_add(1);
        self.walks.store(walks, Ordering::Relaxed);
        match walks % PERIOD {
            0 => Plan { prefetch: true, timed: true },
            n if n == PERIOD / 2 => Plan { prefetch: false, timed: true },
            _ => {
                let prefetch = self.with.load(Ordering::Relaxed) < self.without.load(Ordering::Relaxed);
                Plan { prefetch, timed: false }
            }
        }
    }

    /// Learns from a timed walk.
    pub(crate) fn learn(&self, plan: Plan, took: Duration) {
        let mean = if plan.prefetch { &self.with } else { &self.without };
        let old = mean.load(Ordering::Relaxed);
        let took = u32::try_from(took.as_nanos() * 16).unwrap_or(u32::MAX / 2);
        // A walk that was interrupted must not count for more than any other.
        let took = if old == 0 { took } else { took.min(old.saturating_mul(4)) };
        mean.store(old - old / 16 + took / 16, Ordering::Relaxed);
    }
}

impl PrefetchMode {
    #[inline]
    pub(crate) fn plan(self, extent: Extent, trials: &Trials) -> Plan {
        match self {
            PrefetchMode::Off => Plan { prefetch: false, timed: false },
            PrefetchMode::On => Plan { prefetch: true, timed: false },
            PrefetchMode::Auto if extent.count() < LARGE => Plan { prefetch: false, timed: false },
            PrefetchMode::Auto => trials.plan(),
        }
    }
}

impl<H: Handle> Core<H> {
    /// Asks for the lines of a few walks from `start`: first for all buckets, then for the records that they name, and
    /// for the dentries of the last ones.
    #[inline(never)]
    pub(crate) fn prefetch_walks(&self, start: Id, ladders: &mut [Ladder<'_, '_>]) {
        let extent = self.index.extent();
        let seed = self.record(start).seed();
        for ladder in &mut *ladders {
            let at = ladder.text.skip_slashes(0);
            if at < ladder.text.bytes.len() {
                ladder.stand_at(&self.hasher, seed, at);
                ladder.hashes().for_each(|hash| self.index.prefetch(extent, hash));
            }
        }
        for ladder in ladders {
            let mut last = None;
            for hash in ladder.hashes() {
                last = self.index.likely(extent, hash).next();
                last.into_iter().for_each(|id| prefetch(self.record(id)));
            }
            last.into_iter().for_each(|id| prefetch(self.dentry(id)));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn lately(with: u64, without: u64) -> Trials {
        let trials = Trials::default();
        for _ in 0..PERIOD * 40 {
            let plan = trials.plan();
            if plan.timed {
                trials.learn(plan, Duration::from_nanos(if plan.prefetch { with } else { without }));
            }
        }
        trials
    }

    #[test]
    fn what_has_been_faster_lately_is_done() {
        assert!(lately(100, 300).plan().prefetch);
        assert!(!lately(300, 100).plan().prefetch);
    }

    #[test]
    fn one_interrupted_walk_changes_nothing() {
        let trials = lately(100, 300);
        trials.learn(Plan { prefetch: true, timed: true }, Duration::from_millis(10));
        assert!(trials.plan().prefetch);
    }
}
