//! A sequence count: readers detect concurrent changes.
//!
//! Writers exclude each other by a lock of their own and make the count odd meanwhile. The fields
//! are atomics: a reader that saw half a change only has to retry.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};

/// The count before reading; waits while it is odd.
///
/// Acquire: partner of the store in [`end`]. A reader that sees a change's count sees what the
/// change wrote.
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
/// The acquire fence is the partner of the release fence in [`start`]. If a read before it saw a
/// value of a later change, this load sees that change's odd count or a later one; otherwise all
/// values read are older.
#[inline]
pub(super) fn changed(count: &AtomicU32, since: u32) -> bool {
    fence(Acquire);
    count.load(Relaxed) != since
}

/// Repeats `find` until it succeeds, or fails without a change meanwhile.
pub(super) fn find<T>(count: &AtomicU32, find: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        let since = begin(count);
        let found = find();
        if found.is_some() || !changed(count, since) {
            return found;
        }
    }
}

/// Runs `change` as one change; the caller holds the writers' lock.
pub(super) fn change<T>(count: &AtomicU32, change: impl FnOnce() -> T) -> T {
    start(count);
    let changed = change();
    end(count);
    changed
}

/// Starts a change; the caller holds the writers' lock. Release fence: see [`changed`].
#[inline]
pub(super) fn start(count: &AtomicU32) {
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    fence(Release);
}

/// Ends a change. Release: see [`begin`].
#[inline]
pub(super) fn end(count: &AtomicU32) {
    count.store(count.load(Relaxed).wrapping_add(1), Release);
}
