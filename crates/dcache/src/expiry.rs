//! What is still believed: deadlines, for file systems that change behind the cache's back, and
//! detached directories.
//!
//! Each entry may have a *deadline*, in ticks of 10 ms since the cache was made.
//!
//! **Closings.** The answer to a question may say that everyone may search a directory. It must not
//! do so any more where the directory was closed to some since the question was put: so a question
//! notes how many closings there had been.
//!
//! **Detached directories.** What is below a directory that is not [reachable](Core::is_reachable)
//! is not believed: the directory may live on in another entry, through which its names are
//! changed. So a walk that begins below the root, and all that is done by a directory's number,
//! first looks whether that one is reachable, as long as there are directories that were unlinked
//! and are not freed yet; mostly there are none. One look at the beginning is enough for G1 and G2:
//! what is cached below a directory that was reachable then was true then, as nothing that was
//! changed by another entry can have been changed before.

use std::time::Duration;

use dentree_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const TICK: Duration = Duration::from_millis(10);

/// See the module's text.
pub(crate) struct Expiry {
    /// Directories that were unlinked and are not freed yet.
    detached: AtomicUsize,
    /// [dir lock of the parent] to write, for the directory that is closed.
    closings: AtomicU32,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    start: Duration,
}

/// How often a directory had been closed to some when a question was put.
#[derive(Clone, Copy)]
pub(crate) struct Asked(u32);

impl Expiry {
    pub(crate) fn new(clock: Box<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let start = clock();
        Expiry { detached: AtomicUsize::new(0), closings: AtomicU32::new(0), clock, start }
    }

    /// What a question that is put now is put under.
    pub(crate) fn ask(&self) -> Asked {
        Asked(self.closings.load(Ordering::Acquire))
    }

    /// Says that not everyone may search some directory any more.
    pub(crate) fn count_closing(&self) {
        // Release, and Acquire in `ask`: an answer to a question that has seen this is newer.
        self.closings.fetch_add(1, Ordering::Release);
    }

    /// Whether the answer to a question may still say that everyone may search a directory. [dir
    /// lock of its parent]
    pub(crate) fn may_open(&self, Asked(closings): Asked) -> bool {
        self.closings.load(Ordering::Relaxed) == closings
    }

    pub(crate) fn now(&self) -> u32 {
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

    /// Counts a directory that is about to be unlinked: before that, so that no thread that comes
    /// to know of it afterwards takes anything below it for reachable.
    pub(crate) fn begin_detached(&self) {
        self.detached.fetch_add(1, Ordering::Relaxed);
    }

    /// The end of such a directory: nothing is below it.
    pub(crate) fn end_detached(&self) {
        self.detached.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn any_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed) != 0
    }
}
