//! Whether prefetching helps, judged by means and deviations of what a thread has measured.
//!
//! For hot lines prefetching costs more than it gains (003 of the sources found the same of the
//! kernel's `d_lookup`). So with [`Auto`](PrefetchMode::Auto), of every [`PERIOD`] batches of a
//! thread one is timed with and one without. The others use what was faster by more than both
//! deviations. A cache too small to be cold makes no trials.

use crate::PrefetchMode;
use crate::table::index::Extent;
use dentree_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const PERIOD: u32 = 64;
/// Smallest index that makes trials, in buckets: 32,000 entries, 2 MiB of records.
const LARGE: u32 = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) prefetch: bool,
    /// Report the duration.
    pub(crate) timed: bool,
}

/// The trials of one thread.
#[derive(Default)]
pub(crate) struct Trials {
    batches: AtomicU32,
    with: Estimate,
    without: Estimate,
    is_better_without: AtomicBool,
}

/// Running mean and mean deviation of the time of a batch, in nanoseconds (Jacobson, "Congestion
/// avoidance and control", 1988).
#[derive(Default)]
struct Estimate {
    mean: AtomicU32,
    deviation: AtomicU32,
}

impl Estimate {
    fn mean(&self) -> u32 {
        self.mean.load(Ordering::Relaxed)
    }

    fn deviation(&self) -> u32 {
        self.deviation.load(Ordering::Relaxed)
    }

    fn add(&self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX / 2);
        let (mean, deviation) = (self.mean(), self.deviation());
        if mean == 0 {
            self.mean.store(took, Ordering::Relaxed);
            return self.deviation.store(took / 2, Ordering::Relaxed);
        }
        // Limits the weight of a batch that was interrupted.
        let took = took.min(mean.saturating_mul(4));
        let off = took.abs_diff(mean);
        self.mean.store(mean - mean / 16 + took / 16, Ordering::Relaxed);
        self.deviation.store(deviation - deviation / 16 + off / 16, Ordering::Relaxed);
    }
}

impl Trials {
    fn plan(&self) -> Plan {
        let batches = self.batches.load(Ordering::Relaxed).wrapping_add(1);
        self.batches.store(batches, Ordering::Relaxed);
        match batches % PERIOD {
            0 => Plan { prefetch: true, timed: true },
            n if n == PERIOD / 2 => Plan { prefetch: false, timed: true },
            _ => Plan { prefetch: !self.is_better_without.load(Ordering::Relaxed), timed: false },
        }
    }

    pub(crate) fn learn(&self, plan: Plan, took: Duration) {
        if plan.prefetch {
            self.with.add(took)
        } else {
            self.without.add(took)
        }
        let (with, without) = (self.with.mean(), self.without.mean());
        // The error of a mean of about 32 samples is less than a fifth of their deviation.
        let error = (self.with.deviation() + self.without.deviation()) / 5;
        if with != 0 && without != 0 && with.abs_diff(without) > error {
            self.is_better_without.store(without < with, Ordering::Relaxed);
        }
    }
}

impl PrefetchMode {
    pub(crate) fn plan(self, extent: Extent, trials: &Trials) -> Plan {
        match self {
            PrefetchMode::Off => Plan { prefetch: false, timed: false },
            PrefetchMode::On => Plan { prefetch: true, timed: false },
            PrefetchMode::Auto if extent.count() < LARGE => Plan { prefetch: false, timed: false },
            PrefetchMode::Auto => trials.plan(),
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
    fn what_was_faster_lately_is_done() {
        assert!(lately(1000, 3000).plan().prefetch);
        assert!(!lately(3000, 1000).plan().prefetch);
    }

    #[test]
    fn one_interrupted_batch_changes_nothing() {
        let trials = lately(1000, 3000);
        trials.learn(Plan { prefetch: true, timed: true }, Duration::from_millis(10));
        assert!(trials.plan().prefetch);
    }

    #[test]
    fn a_difference_within_the_deviation_changes_nothing() {
        let trials = lately(1000, 3000);
        for i in 0..1000_u64 {
            let prefetch = i % 2 == 0;
            let noise = (i * 7919) % 2000;
            let took = Duration::from_nanos(1000 + noise + if prefetch { 20 } else { 0 });
            trials.learn(Plan { prefetch, timed: true }, took);
        }
        assert!(trials.plan().prefetch);
    }
}
