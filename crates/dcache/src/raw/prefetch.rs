//! Asking for all lines of a walk before the first is read.
//!
//! With sticky seeds all buckets of a path follow from its bytes, so their lines can be under way at once, and
//! after them the records that they name: two waits for memory instead of two per component. For what is in the
//! processor's caches already it costs more than it gives (003 of the sources found the same of the kernel's
//! prefetch), so `Auto` finds out: of every [`PERIOD`] walks of a thread one is timed with and one without, and
//! the rest do what has been faster lately. A cache so small that it must be hot is not even tried.

use super::{Core, chunks::prefetch, index::Extent, name::Text, walk::Request};
use crate::sync::{AtomicU32, Ordering};
use crate::{Handle, PrefetchMode};
use std::time::Duration;

/// Walks of a thread per trial of either kind.
const PERIOD: u32 = 256;
/// The index size in buckets from which on trials are made: 32,000 entries, 2 MiB of records.
const LARGE: u32 = 4096;
/// Components whose lines are asked for; more would not be under way together anyway.
const AHEAD: usize = 16;
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
    /// Asks for the lines of up to [`TOGETHER`] walks: first for all buckets, then for the records that they name,
    /// and for the dentries of the last ones.
    #[inline(never)]
    pub(crate) fn prefetch_walks<'p>(&self, requests: impl Iterator<Item = Request<'p>>) {
        let extent = self.index.extent();
        let mut hashes = [[0; AHEAD]; TOGETHER];
        let mut counts = [0; TOGETHER];
        for ((request, hashes), count) in requests.zip(&mut hashes).zip(&mut counts) {
            *count = self.prefetch_buckets(extent, &request, hashes);
        }
        for (hashes, &count) in hashes.iter().zip(&counts) {
            for (i, &hash) in hashes[..count].iter().enumerate() {
                let Some(id) = self.index.likely(extent, hash).next() else { continue };
                prefetch(self.record(id));
                if i + 1 == count {
                    prefetch(self.dentry(id));
                }
            }
        }
    }

    /// Asks for the buckets that the path's components will be looked for in, if nothing above was renamed.
    fn prefetch_buckets(&self, extent: Extent, request: &Request<'_>, hashes: &mut [u32; AHEAD]) -> usize {
        let mut seed = self.record(request.start).seed();
        let text = Text::new(request.path);
        let mut at = text.skip_slashes(0);
        let mut count = 0;
        while at < request.path.len() && count < AHEAD {
            let (name, end) = self.hasher.split(seed, &text, at);
            hashes[count] = name.hash();
            self.index.prefetch(extent, name.hash());
            seed = name.seed();
            count += 1;
            at = text.skip_slashes(end);
        }
        count
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
