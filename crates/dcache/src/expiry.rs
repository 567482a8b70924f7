//! When a cached entry is still valid: deadlines, revoked search permission, detached directories.
//!
//! An entry may have a *deadline*, in ticks of 10 ms since the cache was made, for file systems
//! that do not report changes.
//!
//! **Revoked search permission.** A lookup may return a directory that everyone may search. A
//! [`set_search`](crate::Dcache::set_search) that revoked it since the lookup began makes the
//! result outdated. So each lookup compares the number of revocations at its beginning and end.
//!
//! **Detached directories.** Entries below a directory that is not [reachable](Core::is_reachable)
//! are not valid: the directory may be cached in another entry, through which its names change. So
//! a walk from below the root, and each operation on a directory's number, first checks that the
//! directory is reachable, unless no detached directory exists, which is usual. One check suffices
//! for G1 and G2: a reachable directory has no second entry through which its names could have
//! changed before.

use std::time::Duration;

use dentree_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Expiry {
    /// Directories that are unlinked but not freed.
    detached: AtomicUsize,
    /// Number of revocations. [dir lock of the directory's parent] to write
    revocations: AtomicU32,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    start: Duration,
}

/// The number of revocations when a lookup began.
#[derive(Clone, Copy)]
pub(crate) struct Revocations(u32);

impl Expiry {
    pub(crate) fn new(clock: Box<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let start = clock();
        Expiry { detached: AtomicUsize::new(0), revocations: AtomicU32::new(0), clock, start }
    }

    /// Call it before the file system.
    pub(crate) fn revocations(&self) -> Revocations {
        Revocations(self.revocations.load(Ordering::Acquire))
    }

    pub(crate) fn revoke_search(&self) {
        // Release, and Acquire in `revocations`: a lookup that has seen this began after it.
        self.revocations.fetch_add(1, Ordering::Release);
    }

    /// Whether a lookup's result may grant search to everyone. [dir lock of the directory's parent]
    pub(crate) fn may_grant_search(&self, Revocations(revocations): Revocations) -> bool {
        self.revocations.load(Ordering::Relaxed) == revocations
    }

    pub(crate) fn now(&self) -> u32 {
        let ticks = (self.clock)().saturating_sub(self.start).as_millis() / TICK.as_millis();
        // After 497 days every entry with a time to live has expired.
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// 0 for an entry without `ttl`.
    pub(crate) fn deadline(&self, ttl: Option<Duration>) -> u32 {
        let Some(ttl) = ttl else { return 0 };
        let ticks = u32::try_from(ttl.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        self.now().saturating_add(ticks).max(1)
    }

    #[cold]
    pub(crate) fn is_past(&self, deadline: u32) -> bool {
        self.now() >= deadline
    }

    /// Counts a directory before it is unlinked, so that no thread skips the check for a detached
    /// one.
    pub(crate) fn begin_detached(&self) {
        self.detached.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts it when it is freed, with nothing below it.
    pub(crate) fn end_detached(&self) {
        self.detached.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn any_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed) != 0
    }
}
