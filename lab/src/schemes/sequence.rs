//! A sequence count: readers find out that something changed under them.
//!
//! Writers exclude each other by a lock of their own and make the count odd meanwhile; fields are atomics, so a reader that
//! saw half a change only has to look again.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};

/// The count before reading; waits while it is odd.
///
/// Acquire: partner of the store in [`end`]. What the last change wrote is seen by whoever sees its count.
#[inline]
pub(super) fn begin(count: &AtomicU32) -> u32 {
    loop {
        let now = count.load(Acquire);
        if now.is_multiple_of(2) {
            return now;
        }
        std::thread::yield_now();
    }
}

/// Whether anything may have changed since [`begin`].
///
/// The acquire fence is partner of the release fence in [`start`]. If a read before it saw a value of a later change, this
/// load sees that change's odd count or a later one; if none did, what was read is from before.
#[inline]
pub(super) fn changed(count: &AtomicU32, since: u32) -> bool {
    fence(Acquire);
    count.load(Relaxed) != since
}

/// Makes a change; the caller holds the writers' lock.
pub(super) fn change<T>(count: &AtomicU32, change: impl FnOnce() -> T) -> T {
    start(count);
    let changed = change();
    end(count);
    changed
}

/// A change starts; the caller holds the writers' lock. Release fence: see [`changed`].
#[inline]
pub(super) fn start(count: &AtomicU32) {
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    fence(Release);
}

/// The change is done. Release: see [`begin`].
#[inline]
pub(super) fn end(count: &AtomicU32) {
    count.store(count.load(Relaxed).wrapping_add(1), Release);
}
