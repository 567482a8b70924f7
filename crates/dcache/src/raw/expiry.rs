//! How long an entry is believed, for file systems that change behind the cache's back.
//!
//! - Each entry may have a *deadline*, in ticks of 10 ms since the cache was made.
//! - Each entry bears the *stamp* that the expiry counter had when the question was put whose answer it is. To
//!   expire all below a directory is to move the counter on and to note it as that directory's *horizon*: what
//!   lies below and has a lower stamp has expired. A walk carries the highest horizon that it has passed.
//!
//! A walk that begins below the root looks once at the horizons above its start, and only if anything was ever
//! expired. A rename takes the horizon along: what had expired stays so.
//!
//! **Detached directories.** What is below a directory that is not [reachable](Core::is_reachable) is not believed:
//! the directory may live on in another entry, through which its names are changed. So a walk that begins below the
//! root, and all that is done by a directory's number, first looks whether that one is reachable, as long as there are
//! directories that were unlinked and are not freed yet; mostly there are none. One look at the beginning
//! is enough for G1 and G2: what is cached below a directory that was reachable then was true then, as nothing that was
//! changed by another entry can have been changed before.
//!
//! The counter has 32 bits. Before it wraps, all entries are marked as expired and it begins anew
//! ([`Core::renumber`]); tests begin just below.

use super::{
    Core, Id,
    record::{Shape, settle_reads},
};
use crate::Handle;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Backoff, Mutex, Ordering, lock};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(10);
const FIRST: u32 = if cfg!(test) { u32::MAX - 3 } else { 1 };
/// Has expired whatever there is: no stamp reaches this.
pub(crate) const NEVER: u32 = u32::MAX;

/// See the module's text.
pub(crate) struct Expiry {
    stamp: AtomicU32,
    /// Whether any directory has a horizon.
    ever: AtomicBool,
    /// Directories that were unlinked and are not freed yet.
    detached: AtomicUsize,
    /// [dir lock of the parent] to write, for the directory that is closed.
    closings: AtomicU32,
    expiring: Mutex<()>,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    start: Duration,
}

/// What a question is put under: its answer is compared with what has happened since.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The value of the expiry counter.
    pub(crate) stamp: u32,
    /// How often a directory had been closed to some: a later one may be what the answer is about.
    closings: u32,
}

impl Expiry {
    pub(crate) fn new(clock: Box<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let start = clock();
        Expiry {
            stamp: AtomicU32::new(FIRST),
            ever: AtomicBool::new(false),
            detached: AtomicUsize::new(0),
            closings: AtomicU32::new(0),
            expiring: Mutex::default(),
            clock,
            start,
        }
    }

    /// The stamp for an answer to a question that is put now.
    pub(crate) fn stamp(&self) -> u32 {
        // Acquire: pairs with the Release in `expire_below`: the answer is newer than what was expired.
        self.stamp.load(Ordering::Acquire)
    }

    /// What a question that is put now is put under.
    pub(crate) fn ask(&self) -> Asked {
        Asked { stamp: self.stamp(), closings: self.closings.load(Ordering::Acquire) }
    }

    /// Says that not everybody may search some directory any more.
    pub(crate) fn count_closing(&self) {
        // Release, and Acquire in `ask`: an answer to a question that has seen this is newer.
        self.closings.fetch_add(1, Ordering::Release);
    }

    /// Whether the answer to a question may still say that everybody may search a directory. [dir lock of its parent]
    pub(crate) fn may_open(&self, asked: Asked) -> bool {
        self.closings.load(Ordering::Relaxed) == asked.closings
    }

    /// A stamp as it may be linked now: one from before a renumbering has expired.
    pub(crate) fn still(&self, stamp: u32) -> u32 {
        if stamp > self.stamp() { 0 } else { stamp }
    }

    fn now(&self) -> u32 {
        let ticks = (self.clock)().saturating_sub(self.start).as_millis() / TICK.as_millis();
        // 497 days on, entries with a time to live are no longer believed at all.
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// The deadline of an entry that is to be believed for `ttl`; 0 is never.
    pub(crate) fn deadline(&self, ttl: Option<Duration>) -> u32 {
        let Some(ttl) = ttl else { return 0 };
        let ticks = u32::try_from(ttl.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        self.now().saturating_add(ticks).max(1)
    }

    /// Whether the deadline is over.
    #[cold]
    pub(crate) fn is_past(&self, deadline: u32) -> bool {
        self.now() >= deadline
    }

    #[inline]
    pub(crate) fn ever(&self) -> bool {
        self.ever.load(Ordering::Acquire)
    }

    /// Counts a directory that is about to be unlinked: before that, so that nobody who comes to know of it afterwards
    /// takes anything below it for reachable.
    pub(crate) fn begin_detached(&self) {
        self.detached.fetch_add(1, Ordering::Relaxed);
    }

    /// The end of such a directory: nothing is below it.
    pub(crate) fn end_detached(&self) {
        self.detached.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn any_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed) != 0
    }
}

impl<H: Handle> Core<H> {
    /// Whether an entry that the caller holds has a name, and so have all directories above it up to the root.
    pub(crate) fn is_reachable(&self, id: Id) -> bool {
        let mut backoff = Backoff::default();
        loop {
            match self.reach(id) {
                Some(is_reachable) => return is_reachable,
                None => backoff.wait(),
            }
        }
    }

    /// The same, at an instant during the call; `None` where something on the way up was changed meanwhile.
    fn reach(&self, id: Id) -> Option<bool> {
        let (mut way, mut at) = (Vec::new(), id);
        let is_reachable = loop {
            if at == Id::ROOT {
                break true;
            }
            let record = self.record(at);
            way.push((at, record.begin()));
            if !record.shape().is_linked() {
                break false;
            }
            at = record.parent();
        };
        settle_reads();
        let is_unchanged = |&(id, seq): &(Id, u32)| seq & 1 == 0 && self.record(id).is_unchanged(seq);
        way.iter().all(is_unchanged).then_some(is_reachable)
    }

    /// Whether what is cached below a directory may be true. [dir lock]
    pub(crate) fn is_in_tree(&self, dir: Id) -> bool {
        !self.expiry.any_detached() || self.is_reachable(dir)
    }

    /// The same without waiting: `false` also where the way up is being changed.
    #[inline]
    pub(crate) fn is_surely_in_tree(&self, dir: Id) -> bool {
        dir == Id::ROOT || !self.expiry.any_detached() || self.reach(dir) == Some(true)
    }

    /// Whether what is known of a directory as a whole may be believed.
    pub(crate) fn is_believed(&self, dir: Id) -> bool {
        self.is_in_tree(dir) && self.record(dir).stamp() >= self.horizon_above(dir)
    }

    /// The highest horizon of the directories above `id`. [epoch], and `id` is held or found linked
    #[inline]
    pub(crate) fn horizon_above(&self, id: Id) -> u32 {
        if !self.expiry.ever() { 0 } else { self.climb_for_horizon(id) }
    }

    /// Reads each directory's parent before its horizon. A rename raises the moved directory's own horizon before
    /// it changes the parent (`Rewrite::place` is Release, `Record::parent` Acquire), so whoever sees the new
    /// parent sees what was taken along.
    #[cold]
    fn climb_for_horizon(&self, id: Id) -> u32 {
        if id == Id::ROOT {
            return 0;
        }
        let mut highest = 0;
        let mut dir = self.record(id).parent();
        while dir != Id::ROOT {
            let parent = self.record(dir).parent();
            highest = highest.max(self.record(dir).horizon());
            dir = parent;
        }
        highest.max(self.record(dir).horizon())
    }

    /// Makes everything below `dir` expired, in constant time. The caller holds it.
    pub(crate) fn expire_below(&self, dir: Id) {
        // A held entry keeps its kind.
        if !self.record(dir).shape().is_directory() {
            return;
        }
        let _expiring = lock(&self.expiry.expiring);
        if self.expiry.stamp() + 1 == NEVER {
            self.renumber();
        }
        // So that a completion ends before all of this, or finds out: `Core::finish_complete`.
        let _dir = self.lock_dir(dir);
        let next = self.expiry.stamp() + 1;
        let record = self.record(dir);
        record.set_horizon(next);
        self.rewrite(dir).flags(0, Shape::COMPLETE);
        self.expiry.ever.store(true, Ordering::Release);
        self.expiry.stamp.store(next, Ordering::Release);
    }

    /// Marks all entries as expired and begins to count anew. [expiring]
    fn renumber(&self) {
        let _root = self.lock_dir(Id::ROOT);
        // From here on new answers bear a stamp that has expired, and so does whatever was asked before and is
        // linked from here on (`Expiry::still`).
        self.expiry.stamp.store(0, Ordering::SeqCst);
        let slots = self.high_water();
        (1..slots).for_each(|id| self.records.get(id).expire());
        self.record(Id::ROOT).set_horizon(1);
        let is_directory = |id: &Id| self.record(*id).shape().is_directory();
        (2..slots).map(Id).filter(is_directory).for_each(|id| self.rewrite(id).forget_horizon());
        self.rewrite(Id::ROOT).flags(0, Shape::COMPLETE);
        self.expiry.stamp.store(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{Child, Dcache, Fill, Reason, Stopped, Walk, WalkOptions};

    /// Tests begin with a counter just below its end.
    #[test]
    fn expiry_goes_on_when_its_counter_begins_anew() {
        let cache = Dcache::builder().build(Child::directory(1_u64));
        let root = cache.root();
        // In a slot that was used before, for a generation that is not zero.
        cache.create(&root, b"before", Child::other(2));
        cache.invalidate(&root, b"before");
        cache.shrink_to(0);
        let other = cache.create(&root, b"other", Child::other(3));
        assert_ne!(other.id().generation(), 0);
        for round in 0..8 {
            let dir = cache.create(&root, b"dir", Child::directory(10 + round));
            cache.create(&dir, b"file", Child::other(20 + round));
            let walk = || cache.walk(&root, b"dir/file", WalkOptions::default(), |_| true);
            assert!(matches!(walk(), Walk::Found(_)), "{round}");
            cache.expire_subtree(&dir);
            assert!(matches!(walk(), Walk::Stopped(Stopped { why: Reason::Expired, .. })), "{round}");
            // Horizons begin anew; what files have in their place stays.
            let again =
                cache.lookup_or_fill(&root, b"other", || Ok::<_, ()>(Fill::Positive(Child::other(3))));
            assert!(again.is_ok_and(|again| again.is_some_and(|again| again == other)));
            let Walk::Found(seen) = cache.find(&root, b"other", WalkOptions::default(), |_| true) else {
                panic!("{round}")
            };
            assert_eq!((seen.id, seen.handle), (other.id(), 3), "{round}");
        }
        assert!(cache.core.expiry.stamp() < 8);
    }
}
