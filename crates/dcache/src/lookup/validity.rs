//! When a cached entry is valid although its directory may have changed in another entry.
//!
//! **Detached directories.** Entries below a directory that is not
//! [reachable](crate::DentryRef::is_reachable) are not valid: the directory may be cached in
//! another entry, through which its names change. So a walk from below the root, and each operation
//! on a directory's number, first checks that the directory is reachable, unless no detached
//! directory exists, which is usual. One check suffices for G1 and G2: a reachable directory has no
//! second entry through which its names could have changed before.
//!
//! **Revoked search permission.** A lookup may return a directory that everyone may search. A
//! [`set_search`](crate::Dcache::set_search) that revoked it since the lookup began makes the
//! result outdated. So each lookup compares the number of revocations at its beginning and end.

use dentree_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct Validity {
    /// Directories that are unlinked but not freed.
    detached: AtomicUsize,
    /// Number of revocations. [dir lock of the directory's parent] to write
    revocations: AtomicU32,
}

/// The number of revocations when a lookup began.
#[derive(Clone, Copy)]
pub(crate) struct Revocations(u32);

impl Validity {
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
