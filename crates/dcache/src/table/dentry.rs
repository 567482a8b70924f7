//! The written part of an entry: references, siblings, handle. It has the number of its record.
//!
//! | field | guard |
//! |---|---|
//! | `refs` | itself |
//! | `long` | [dir lock of the parent] to write, [epoch] to read |
//! | `next`, `prev` | [dir lock of the parent]; `next` of a free slot: [pool lock] |
//! | `first_child`, `changes` | [dir lock of this directory] |
//! | `handle` | [immutable] while the entry is positive or held; [epoch] to read it unheld |
//!
//! **Reference count.** One word, so that one compare-and-swap tests "not held and no children":
//!
//! ```text
//! 63 DEAD      not an entry: free, waiting for the grace period, or being made
//! 62 DETACHED  no longer in the index: dies with its last reference
//! 32…61        pins: one for each entry whose parent this is
//!  0…31        users: one for each `DentryRef`
//! ```
//!
//! A thread that finds an entry DEAD has added a user already, and releases it. The slot may have
//! come to life meanwhile: then that user is one like any other. It may be the first and the last,
//! and the entry may die with it. So each operation that brings a slot to life returns whether it
//! has users, for [`Stats::held`](crate::Stats::held).

use crate::table::chunks::Zeroed;
use crate::table::id::Id;
use dentree_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::{cell::UnsafeCell, mem::MaybeUninit};

const USER: u64 = 1;
const USERS: u64 = u32::MAX as u64;
const PIN: u64 = 1 << 32;
const DETACHED: u64 = 1 << 62;
const DEAD: u64 = 1 << 63;

/// A name that does not fit the record. Boxed twice, so that one atomic word points at it.
pub(crate) type LongName = Box<Box<[u8]>>;

/// The number of another entry, or none.
#[derive(Default)]
pub(crate) struct Link(AtomicU32);

impl Link {
    pub(crate) fn get(&self) -> Id {
        Id(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, id: Id) {
        self.0.store(id.0, Ordering::Relaxed);
    }
}

/// Neighbours share cache lines: mostly the same thread has linked them.
#[repr(C)]
pub(crate) struct Dentry<H> {
    refs: AtomicU64,
    long: AtomicPtr<Box<[u8]>>,
    pub(crate) first_child: Link,
    pub(crate) next: Link,
    pub(crate) prev: Link,
    changes: AtomicU32,
    handle: UnsafeCell<MaybeUninit<H>>,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Dentry<u64>>() == 40);

impl<H> Default for Dentry<H> {
    fn default() -> Self {
        Dentry {
            refs: AtomicU64::default(),
            long: AtomicPtr::default(),
            first_child: Link::default(),
            next: Link::default(),
            prev: Link::default(),
            changes: AtomicU32::default(),
            handle: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

// SAFETY: atomics of zero bytes are zero, a null pointer is one, and `MaybeUninit` takes any bytes.
// `clear`, which the pool and `Core::drop` call, drops what `long` and `handle` own.
unsafe impl<H> Zeroed for Dentry<H> {}

// SAFETY: `handle` is written and taken only while the entry is dead and no other thread reads it
// (`set_handle` and `clear`); all else is atomic. Any thread may drop a handle, so `H` must be
// `Send`.
unsafe impl<H: Send + Sync> Sync for Dentry<H> {}

/// Result of dropping a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    Held,
    /// Not held, and still cached.
    Unused,
    /// Detached and now dead: the caller has to retire it.
    Dead,
}

impl<H> Dentry<H> {
    /// Adds a user, and returns whether it is the first one. `None` if the entry is dead: the
    /// caller has to [`release`](Self::release) it all the same.
    #[inline]
    pub(crate) fn hold(&self) -> Option<bool> {
        // Acquire: pairs with the Release in `revive`: its fields are seen.
        let before = self.refs.fetch_add(USER, Ordering::Acquire);
        (before & DEAD == 0).then_some(before & USERS == 0)
    }

    /// Excludes new references if there are exactly `users` of them and no children. [dir lock of
    /// the parent]
    pub(crate) fn begin_change(&self, users: u64) -> bool {
        self.kill(users * USER)
    }

    /// Ends [`begin_change`](Self::begin_change) and adds users. Returns whether there are any now.
    #[must_use]
    pub(crate) fn end_change(&self, users: u64) -> bool {
        self.come_to_life(users * USER)
    }

    /// Adds users or `DETACHED` to a dead entry. Returns whether it has users now.
    fn come_to_life(&self, refs: u64) -> bool {
        // Release: pairs with `hold`. An addition, as a failed `hold` may have added a user.
        let before = self.refs.fetch_add(refs.wrapping_sub(DEAD), Ordering::Release);
        (before + refs) & USERS != 0
    }

    pub(crate) fn hold_again(&self) {
        self.refs.fetch_add(USER, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn release(&self) -> Released {
        // Release: the user's accesses come before the entry's end; pairs with the Acquire in
        // `kill`.
        let before = self.refs.fetch_sub(USER, Ordering::Release);
        match before & (DEAD | USERS) {
            USER if before == DETACHED | USER && self.kill(DETACHED) => Released::Dead,
            USER => Released::Unused,
            _ => Released::Held,
        }
    }

    /// The caller holds this entry.
    pub(crate) fn pin(&self) {
        self.refs.fetch_add(PIN, Ordering::Relaxed);
    }

    /// Returns whether the entry died.
    pub(crate) fn unpin(&self) -> bool {
        // Release: as in `release`.
        let before = self.refs.fetch_sub(PIN, Ordering::Release);
        before == DETACHED | PIN && self.kill(DETACHED)
    }

    /// Kills an entry without users and children. [dir lock of the parent]
    pub(crate) fn kill_unused(&self) -> bool {
        self.kill(0)
    }

    fn kill(&self, expected: u64) -> bool {
        // Acquire: pairs with the Release of the last holder.
        self.refs.compare_exchange(expected, expected | DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Marks the entry as out of the index. Returns whether it died.
    pub(crate) fn detach(&self) -> bool {
        let before = self.refs.fetch_or(DETACHED, Ordering::Relaxed);
        before == 0 && self.kill(DETACHED)
    }

    /// Returns whether the entry has users.
    #[must_use]
    pub(crate) fn revive(&self, held: bool, detached: bool) -> bool {
        self.come_to_life(if held { USER } else { 0 } | if detached { DETACHED } else { 0 })
    }

    pub(crate) fn mark_dead(&self) {
        self.refs.store(DEAD, Ordering::Relaxed);
    }

    /// Only a hint.
    pub(crate) fn is_evictable(&self) -> bool {
        self.refs.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn retire(&self) {
        self.refs.fetch_and(!DETACHED, Ordering::Relaxed);
    }

    /// Sets handle and long name of a dead slot.
    ///
    /// # Safety
    /// Only the caller can reach the slot.
    pub(crate) unsafe fn fill(&self, handle: Option<H>, long: Option<LongName>) {
        if let Some(handle) = handle {
            // SAFETY: as the caller promises.
            unsafe { (*self.handle.get()).write(handle) };
        }
        [&self.first_child, &self.next, &self.prev].into_iter().for_each(|link| link.set(Id::NONE));
        self.changes.store(0, Ordering::Relaxed);
        self.swap_long(long);
    }

    /// Sets the handle of an entry that changes in place.
    ///
    /// # Safety
    /// No other thread reads the handle, and the old one needs no drop.
    pub(crate) unsafe fn set_handle(&self, handle: Option<H>) {
        if let Some(handle) = handle {
            // SAFETY: as the caller promises.
            unsafe { (*self.handle.get()).write(handle) };
        }
    }

    /// The handle of a positive entry.
    ///
    /// # Safety
    /// The entry is positive, and held or found linked under the caller's pin.
    #[inline]
    pub(crate) unsafe fn handle(&self) -> &H {
        // SAFETY: written before the entry was linked, which the caller has seen; taken only in
        // `clear`, after the last reference and a grace period.
        unsafe { (*self.handle.get()).assume_init_ref() }
    }

    /// Takes handle and long name out of a dead slot.
    ///
    /// # Safety
    /// No other thread can reach the slot: its grace period is over. `positive` tells whether it
    /// has a handle since [`fill`](Self::fill).
    pub(crate) unsafe fn clear(&self, positive: bool) -> (Option<H>, Option<LongName>) {
        // SAFETY: initialised by `fill`, and never read again before the next `fill`.
        let handle = positive.then(|| unsafe { (*self.handle.get()).assume_init_read() });
        (handle, self.swap_long(None))
    }

    /// Exchanges the long name. Retire the old one, as readers may use it. [dir lock of the parent]
    pub(crate) fn swap_long(&self, long: Option<LongName>) -> Option<LongName> {
        let new = long.map_or(std::ptr::null_mut(), Box::into_raw);
        // Release: the bytes are seen with their address; pairs with `long_name`. Acquire: so are
        // the old ones.
        let old = self.long.swap(new, Ordering::AcqRel);
        // SAFETY: `long` holds null or a box that it owns, and the swap took it out.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }

    /// The full name if it is long. [epoch]
    ///
    /// # Safety
    /// The caller is inside the epoch while it uses the name, or the entry is held and not renamed
    /// (dir lock of the parent).
    pub(crate) unsafe fn long_name(&self) -> Option<&[u8]> {
        // Acquire: pairs with `swap_long`. SAFETY: a box is freed a grace period after it was taken
        // out.
        unsafe { self.long.load(Ordering::Acquire).as_ref() }.map(|name| &**name)
    }

    /// Number of removals and changes of entries in this directory. [dir lock]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_change(&self) {
        self.changes.store(self.changes().wrapping_add(1), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn entry() -> Dentry<u64> {
        let dentry = Dentry::default();
        dentry.mark_dead();
        assert!(!dentry.revive(false, false));
        dentry
    }

    #[test]
    fn a_held_entry_cannot_be_killed_and_a_dead_one_cannot_be_held() {
        let dentry = entry();
        assert_eq!(dentry.hold(), Some(true));
        assert_eq!(dentry.hold(), Some(false));
        assert!(!dentry.kill_unused());
        assert_eq!(dentry.release(), Released::Held);
        assert_eq!(dentry.release(), Released::Unused);
        assert!(dentry.kill_unused());
        assert_eq!(dentry.hold(), None);
        assert_eq!(dentry.release(), Released::Held);
    }

    #[test]
    fn a_user_that_came_before_its_entry_is_one_like_any_other() {
        let dentry = entry();
        assert!(dentry.begin_change(0));
        assert_eq!(dentry.hold(), None);
        assert!(dentry.end_change(1));
        assert!(!dentry.detach());
        assert_eq!(dentry.release(), Released::Held);
        assert_eq!(dentry.release(), Released::Dead);
    }

    #[test]
    fn a_detached_entry_dies_with_its_last_reference_of_either_sort() {
        let dentry = entry();
        dentry.hold();
        dentry.pin();
        assert!(!dentry.detach());
        assert_eq!(dentry.release(), Released::Unused);
        assert!(dentry.unpin());

        let dentry = entry();
        dentry.hold();
        dentry.pin();
        assert!(!dentry.detach());
        assert!(!dentry.unpin());
        assert_eq!(dentry.release(), Released::Dead);

        assert!(entry().detach());
    }
}
