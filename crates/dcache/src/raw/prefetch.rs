//! Asking for all lines of a walk before the first is read.
//!
//! With sticky seeds all buckets of a path follow from its bytes, so those of its last components can be under way at once, and
//! after them the records that they name: two waits for memory. What lies above is shared by many paths, and was asked for in vain:
//! of a tree with a fan of twelve, the directories of the last level but one are an eleventh of all entries, and all above them less
//! than a hundredth. For what is in the
//! processor's caches already it costs more than it gives (003 of the sources found the same of the kernel's
//! prefetch), so `Auto` finds out: of every [`PERIOD`] walks of a thread one is timed with and one without, and
//! the rest do what has been faster lately. A cache so small that it must be hot is not even tried.

use super::{Core, Id, chunks::prefetch, index::Extent, leap::Route, name::PATH_MAX};
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

/// What a walk is likely to wait for: the last component's hash, and that of the one before.
#[derive(Clone, Copy, Default)]
struct Aims(Option<u32>, Option<u32>);

impl<H: Handle> Core<H> {
    /// Asks for the lines of a few walks from `start`, at most [`TOGETHER`]: first for the buckets of their last two components, then for
    /// the records that they name, and for the dentries of the last ones. What lies above is shared by many paths.
    #[inline(never)]
    pub(crate) fn prefetch_walks(&self, start: Id, routes: &mut [Route<'_, '_>]) {
        let extent = self.index.extent();
        let seed = self.record(start).seed();
        let mut aims = [Aims::default(); TOGETHER];
        for (route, aims) in routes.iter_mut().zip(&mut aims) {
            let text = route.text;
            let path = &text.bytes[text.skip_slashes(0)..];
            if !(1..=PATH_MAX).contains(&path.len()) {
                continue;
            }
            let last = self.hasher.path(seed, path);
            route.set_aim(seed, last);
            self.index.prefetch(extent, last);
            let before = path.iter().rposition(|&byte| byte == b'/').filter(|&len| len != 0);
            let before = before.map(|len| self.hasher.path(seed, &path[..len]));
            before.into_iter().for_each(|hash| self.index.prefetch(extent, hash));
            *aims = Aims(Some(last), before);
        }
        for Aims(last, before) in &aims[..routes.len().min(TOGETHER)] {
            let likely = |hash: &u32| self.index.likely(extent, *hash).next();
            if let Some(id) = last.as_ref().and_then(likely) {
                prefetch(self.record(id));
                prefetch(self.dentry(id));
            }
            before.as_ref().and_then(likely).into_iter().for_each(|id| prefetch(self.record(id)));
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
