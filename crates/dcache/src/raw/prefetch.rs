//! Asking for all lines of a walk before the first is read.
//!
//! With sticky seeds all buckets of a path follow from its bytes, so those of its last two components can be under way at once, and
//! after them the records that they name: two waits for memory. What lies above is shared by many paths, and was asked for in vain:
//! of a tree with a fan of twelve, the directories of the last level but one are an eleventh of all entries, and all above them less
//! than a hundredth. A batch has two waits more, each of them one for all of its walks, and needs fewer lines: what is above a
//! component its record tells, without a bucket of its own.
//!
//! For what is in the processor's caches already it costs more than it gives (003 of the sources found the same of the kernel's
//! prefetch), so `Auto` finds out: of every [`PERIOD`] walks of a thread one is timed with and one without, and
//! the rest do what has been faster lately. A cache so small that it must be hot is not even tried.
//!
//! A thread learns likewise whether looking at notes (`notes.rs`) helps, but without a clock: it counts how many of its looks ended a walk.

use super::{Core, Id, chunks::prefetch, index::Extent, leap::Route, walk::Request};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{Handle, PrefetchMode};
use std::time::Duration;

/// Walks of a thread per trial of either kind.
const PERIOD: u32 = 256;
/// The index size in buckets from which on trials are made: 32,000 entries, 2 MiB of records.
const LARGE: u32 = 4096;
/// One of so many walks of a thread is a sample of whether notes help.
const SAMPLED: u64 = 64;
const IN_VAIN: u32 = 1 << 16;
/// How many looks the mean is of, about.
const MEMORY: u64 = 64;
/// So many looks in vain cost more than the others save: a look is a line that has to be waited for, where one that helps saves all but
/// a few of those that a cold walk waits for.
const HOPELESS: u32 = IN_VAIN / 16 * 15;
/// Paths of a batch whose lines are asked for together. At 3 million entries 16 take 0.85 of the time a component that 8 do (medians of eleven
/// rounds, twice each, on a busy machine).
pub(crate) const TOGETHER: usize = 16;

/// Directories above the last component whose records a batch asks for. All others are few.
const ABOVE: usize = 2;

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
    /// Running mean of the looks at notes that ended no walk, of [`IN_VAIN`].
    in_vain: AtomicU32,
    /// How many walks there had been after the last one that was not ended by a note.
    ended_otherwise: AtomicU64,
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

    /// Whether a walk is to look at what others have noted, if the thread has done so many before.
    #[inline(always)]
    pub(crate) fn look(&self, walks: u64) -> bool {
        self.notes_help() || walks.is_multiple_of(SAMPLED)
    }

    #[inline(always)]
    fn notes_help(&self) -> bool {
        self.in_vain.load(Ordering::Relaxed) <= HOPELESS
    }

    /// Learns from a walk that was not ended by a note, if it has [looked](Self::look), and from all since the last one, which were.
    pub(crate) fn learn_from_notes(&self, walks: u64) {
        let ended = walks.wrapping_sub(self.ended_otherwise.load(Ordering::Relaxed));
        self.ended_otherwise.store(walks + 1, Ordering::Relaxed);
        let step = |mean: u32, in_vain: u32| mean - mean / MEMORY as u32 + in_vain / MEMORY as u32;
        let before = self.in_vain.load(Ordering::Relaxed);
        let mean = (0..ended.min(MEMORY)).fold(before, |mean, _| step(mean, 0));
        let mean = if self.look(walks) { step(mean, IN_VAIN) } else { mean };
        if mean != before {
            self.in_vain.store(mean, Ordering::Relaxed);
        }
    }

    /// Learns nothing from walks that did not ask whether to look.
    pub(crate) fn leave_out(&self, walks: u64) {
        self.ended_otherwise.store(walks, Ordering::Relaxed);
    }

    /// Of how many climbs one takes a note: fewer where notes do not help.
    pub(crate) fn patience(&self, usually: u64) -> u64 {
        if self.notes_help() { usually } else { 8 * usually }
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
    /// Asks for the lines of a walk: for the buckets of its last two components at once, then for the records that they name, and for the
    /// dentry of the last one where that is to be held.
    #[inline(never)]
    pub(crate) fn prefetch_walk(&self, request: &Request<'_>, route: &mut Route<'_, '_>) {
        let extent = self.index.extent();
        let seed = self.record(request.start).seed();
        let Some(path) = route.plain_part() else { return };
        let last = self.hasher.path(seed, path);
        route.set_aim(seed, last);
        self.index.prefetch(extent, last);
        let before = path.iter().rposition(|&byte| byte == b'/').filter(|&len| len != 0);
        let before = before.map(|len| self.hasher.path(seed, &path[..len]));
        before.into_iter().for_each(|hash| self.index.prefetch(extent, hash));
        if let Some(id) = self.index.likely(extent, last).next() {
            prefetch(self.record(id));
            prefetch(self.used(id));
            if request.holds {
                prefetch(self.dentry(id));
            }
        }
        let before = before.and_then(|hash| self.index.likely(extent, hash).next());
        before.into_iter().for_each(|id| prefetch(self.record(id)));
    }

    /// Asks for the lines of a few walks from `start`, at most [`TOGETHER`]: for the buckets of their last components, then for the records
    /// that they name, then for the records of the directories above, and for dentries where records do not tell handles. Each wait is one for
    /// all walks, so those directories need not be looked for in buckets of their own.
    #[inline(never)]
    pub(crate) fn prefetch_walks(&self, start: Id, routes: &mut [Route<'_, '_>]) {
        let extent = self.index.extent();
        let seed = self.record(start).seed();
        let mut ids = [Id::NONE; TOGETHER];
        for route in routes.iter_mut() {
            let Some(path) = route.plain_part() else { continue };
            let hash = self.hasher.path(seed, path);
            route.set_aim(seed, hash);
            self.index.prefetch(extent, hash);
        }
        for (route, id) in routes.iter().zip(&mut ids) {
            let found = route.aimed().and_then(|hash| self.index.likely(extent, hash).next());
            if let Some(found) = found {
                prefetch(self.record(found));
                prefetch(self.used(found));
                *id = found;
            }
        }
        for above in 0..ABOVE {
            for id in ids.iter_mut().filter(|id| **id != Id::NONE) {
                let record = self.record(*id);
                if above == 0 && record.shape().hides_handle() {
                    prefetch(self.dentry(*id));
                }
                *id = record.parent();
                prefetch(self.record(*id));
            }
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

    /// Does walks, of which notes end those for which `helps` holds if they are looked at; tells how many looked.
    fn looks(trials: &Trials, walks: std::ops::Range<u64>, helps: impl Fn(u64) -> bool) -> u64 {
        let mut looked = 0;
        for walk in walks {
            let is_looking = trials.look(walk);
            looked += u64::from(is_looking);
            if !(is_looking && helps(walk)) {
                trials.learn_from_notes(walk);
            }
        }
        looked
    }

    #[test]
    fn notes_are_looked_at_while_they_help() {
        let trials = Trials::default();
        assert!(looks(&trials, 0..10_000, |walk| walk % 4 == 0) == 10_000, "one of a few is enough");
        assert!(looks(&trials, 10_000..20_000, |_| false) < 600);
        assert_eq!(looks(&trials, 20_000..26_400, |_| false), 100, "samples");
        assert!(looks(&trials, 26_400..36_400, |_| true) > 8_000);
    }

    #[test]
    fn walks_that_did_not_ask_teach_nothing() {
        let trials = Trials::default();
        looks(&trials, 0..10_000, |_| false);
        trials.leave_out(1_000_000);
        assert_eq!(looks(&trials, 1_000_001..1_006_401, |_| false), 100);
    }

    #[test]
    fn one_interrupted_walk_changes_nothing() {
        let trials = lately(100, 300);
        trials.learn(Plan { prefetch: true, timed: true }, Duration::from_millis(10));
        assert!(trials.plan().prefetch);
    }
}
