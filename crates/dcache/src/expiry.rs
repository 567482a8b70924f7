//! When a cached entry is still valid: deadlines, revoked search permission, detached directories.
//!
//! Each entry may have a *deadline*, in ticks of 10 ms since the cache was made. It is for file
//! systems whose names change without the cache being told.
//!
//! **Revoked search permission.** A lookup may return a directory that everyone may search. If
//! [`set_search`](crate::Dcache::set_search) has revoked that for some directory since the lookup
//! began, the result is out of date and must not grant it again. So each lookup records how many
//! revocations there were before it, and compares at the end.
//!
//! **Detached directories.** Entries below a directory that is not [reachable](Core::is_reachable)
//! are not valid: the same directory may be cached in another entry too, and its names change
//! through that one. So a walk that begins below the root, and each operation on a directory's
//! number, first checks that this directory is reachable. The check is skipped while no directory
//! is unlinked and not yet freed, which is the usual case. One check at the beginning is enough for
//! G1 and G2: a directory that is reachable then has no second entry through which its names could
//! have changed before.

use std::time::Duration;

use dentree_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Expiry {
    /// Directories that were unlinked and are not freed yet.
    detached: AtomicUsize,
    /// How often search permission was revoked. [dir lock of the directory's parent] to write
    revocations: AtomicU32,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    start: Duration,
}

/// How many revocations there were when a lookup began.
#[derive(Clone, Copy)]
pub(crate) struct Asked(u32);

impl Expiry {
    pub(crate) fn new(clock: Box<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let start = clock();
        Expiry { detached: AtomicUsize::new(0), revocations: AtomicU32::new(0), clock, start }
    }

    /// To be called before the file system is asked.
    pub(crate) fn ask(&self) -> Asked {
        Asked(self.revocations.load(Ordering::Acquire))
    }

    /// Counts a revocation.
    pub(crate) fn revoke_search(&self) {
        // Release, and Acquire in `ask`: a lookup that has seen this began after it.
        self.revocations.fetch_add(1, Ordering::Release);
    }

    /// Whether the result of a lookup may still grant search to everyone. [dir lock of the
    /// directory's parent]
    pub(crate) fn may_grant_search(&self, Asked(revocations): Asked) -> bool {
        self.revocations.load(Ordering::Relaxed) == revocations
    }

    /// The present tick.
    pub(crate) fn now(&self) -> u32 {
        let ticks = (self.clock)().saturating_sub(self.start).as_millis() / TICK.as_millis();
        // After 497 days every entry with a time to live has expired.
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// The deadline of an entry that is valid for `ttl`; 0 for one that does not expire.
    pub(crate) fn deadline(&self, ttl: Option<Duration>) -> u32 {
        let Some(ttl) = ttl else { return 0 };
        let ticks = u32::try_from(ttl.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        self.now().saturating_add(ticks).max(1)
    }

    /// Whether a deadline has passed.
    #[cold]
    pub(crate) fn is_past(&self, deadline: u32) -> bool {
        self.now() >= deadline
    }

    /// Counts a directory that is about to be unlinked. It comes before the unlinking, so that no
    /// thread skips the check once the directory is detached.
    pub(crate) fn begin_detached(&self) {
        self.detached.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts off such a directory when it is freed, with nothing below it.
    pub(crate) fn end_detached(&self) {
        self.detached.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether any directory is detached.
    #[inline]
    pub(crate) fn any_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed) != 0
    }
}
