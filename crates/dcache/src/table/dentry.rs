//! The written part of an entry, beside its record under the same number: references, siblings,
//! handle.
//!
//! | field | guard |
//! |---|---|
//! | `refs` | itself |
//! | `long` | [dir lock of the parent] to write, [epoch] to read |
//! | `next`, `prev` | [dir lock of the parent]; `next` of a free slot: [pool lock] |
//! | `first_child`, `changes` | [dir lock of this directory] |
//! | `handle` | [immutable] from before the entry is linked until no one can reach it; [epoch] to read unheld |
//!
//! **Reference count.** One word, so that "it is not held, and nothing is below it" is one
//! compare-and-swap:
//!
//! ```text
//! 63 DEAD      not an entry: free, waiting for the grace period, or being made
//! 62 DETACHED  no longer in the index: dies with its last reference
//! 32…61        pins: one for each entry whose parent this is
//!  0…31        users: one for each `DentryRef`
//! ```

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

/// See the module's text. Neighbours share lines: a slot's neighbours were mostly linked by the
/// same thread.
#[repr(C)]
pub(crate) struct Dentry<H> {
    refs: AtomicU64,
    long: AtomicPtr<Box<[u8]>>,
    first_child: AtomicU32,
    next: AtomicU32,
    prev: AtomicU32,
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
            first_child: AtomicU32::default(),
            next: AtomicU32::default(),
            prev: AtomicU32::default(),
            changes: AtomicU32::default(),
            handle: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

// SAFETY: atomics of zero bytes are zero, a null pointer is one, and `MaybeUninit` takes any bytes.
// What `long` and `handle` own is dropped by `clear`, which the pool and `Core::drop` call.
unsafe impl<H> Zeroed for Dentry<H> {}

// SAFETY: `handle` is written and taken only while the entry is dead, when no other thread reads it
// (`set_handle` and `clear` say so); all else is atomic. Handles are dropped by any thread, so `H`
// must be `Send`.
unsafe impl<H: Send + Sync> Sync for Dentry<H> {}

/// What letting go of a reference leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Others hold it.
    Others,
    /// It is not held any more; it stays cached.
    Unused,
    /// It was detached and now is dead: the caller has to retire it.
    Dead,
}

impl<H> Dentry<H> {
    /// Adds a user unless the entry is dead; tells whether it is the first one.
    #[inline]
    pub(crate) fn hold(&self) -> Option<bool> {
        // Acquire: pairs with `revive`, whose entry this may be.
        let before = self.refs.fetch_add(USER, Ordering::Acquire);
        if before & DEAD == 0 {
            return Some(before & USERS == 0);
        }
        // A thread that brings the slot to life meanwhile leaves this count in it (`revive`,
        // `end_change`).
        self.refs.fetch_sub(USER, Ordering::Relaxed);
        None
    }

    /// Keeps others from taking references, if there are `users` of them and nothing is below. [dir
    /// lock of the parent]
    pub(crate) fn begin_change(&self, users: u64) -> bool {
        self.kill(users * USER)
    }

    /// Ends what [`begin_change`](Self::begin_change) began, with so many more users.
    pub(crate) fn end_change(&self, users: u64) {
        // Release: pairs with `hold`. An addition: others may be about to find out that they came
        // in between.
        self.refs.fetch_add((users * USER).wrapping_sub(DEAD), Ordering::Release);
    }

    /// Adds a user to an entry that the caller holds.
    pub(crate) fn hold_again(&self) {
        self.refs.fetch_add(USER, Ordering::Relaxed);
    }

    /// Lets go of a user's reference.
    #[inline]
    pub(crate) fn release(&self) -> Left {
        // Release: what the user did with the entry is before its end; pairs with the Acquire in
        // `kill`.
        let before = self.refs.fetch_sub(USER, Ordering::Release);
        match before & USERS {
            USER if before == DETACHED | USER && self.kill(DETACHED) => Left::Dead,
            USER => Left::Unused,
            _ => Left::Others,
        }
    }

    /// Counts a child. The caller holds this entry.
    pub(crate) fn pin(&self) {
        self.refs.fetch_add(PIN, Ordering::Relaxed);
    }

    /// Counts a child off; tells whether that was the end of this entry.
    pub(crate) fn unpin(&self) -> bool {
        // Release: as in `release`.
        let before = self.refs.fetch_sub(PIN, Ordering::Release);
        before == DETACHED | PIN && self.kill(DETACHED)
    }

    /// Ends a linked entry that is not held and has nothing below. [dir lock of the parent]
    pub(crate) fn kill_unused(&self) -> bool {
        self.kill(0)
    }

    fn kill(&self, expected: u64) -> bool {
        // Acquire: pairs with the Release of the last holder.
        self.refs.compare_exchange(expected, expected | DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Says that the entry is no longer in the index; tells whether that was its end.
    pub(crate) fn detach(&self) -> bool {
        let before = self.refs.fetch_or(DETACHED, Ordering::Relaxed);
        before == 0 && self.kill(DETACHED)
    }

    /// Makes an entry of a dead slot.
    pub(crate) fn revive(&self, held: bool, detached: bool) {
        let refs = if held { USER } else { 0 } | if detached { DETACHED } else { 0 };
        // Release: pairs with `hold`. An addition, as in `end_change`.
        self.refs.fetch_add(refs.wrapping_sub(DEAD), Ordering::Release);
    }

    pub(crate) fn mark_dead(&self) {
        self.refs.store(DEAD, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        // Acquire: pairs with `revive`: of a slot that lives again the later generation is seen.
        self.refs.load(Ordering::Acquire) & DEAD != 0
    }

    /// Whether nothing speaks against evicting it. Only a hint.
    pub(crate) fn is_evictable(&self) -> bool {
        self.refs.load(Ordering::Relaxed) == 0
    }

    /// Makes the slot of an entry that has died one that can be revived.
    pub(crate) fn retire(&self) {
        self.refs.fetch_and(!DETACHED, Ordering::Relaxed);
    }

    /// Gives a dead slot its handle and long name.
    ///
    /// # Safety
    /// The slot must be one that only the caller can reach.
    pub(crate) unsafe fn fill(&self, handle: Option<H>, long: Option<LongName>) {
        if let Some(handle) = handle {
            // SAFETY: as the caller promises.
            unsafe { (*self.handle.get()).write(handle) };
        }
        self.first_child.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.prev.store(0, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
        self.swap_long(long);
    }

    /// Gives an entry that changes in place its handle.
    ///
    /// # Safety
    /// No other thread may read the handle, and the one that was here must need no drop.
    pub(crate) unsafe fn set_handle(&self, handle: Option<H>) {
        if let Some(handle) = handle {
            // SAFETY: as the caller promises.
            unsafe { (*self.handle.get()).write(handle) };
        }
    }

    /// The handle of a positive entry.
    ///
    /// # Safety
    /// The entry must be positive, and held or found linked under the caller's pin.
    #[inline]
    pub(crate) unsafe fn handle(&self) -> &H {
        // SAFETY: written before the entry was linked, which the caller has seen; taken only in
        // `clear`, after the last reference and a grace period.
        unsafe { (*self.handle.get()).assume_init_ref() }
    }

    /// Takes what a dead slot owns.
    ///
    /// # Safety
    /// No other thread may reach the slot: its grace period is over. `positive` must tell whether
    /// [`fill`](Self::fill) gave it a handle that has not been taken since.
    pub(crate) unsafe fn clear(&self, positive: bool) -> (Option<H>, Option<LongName>) {
        // SAFETY: initialised by `fill`, and never read again before the next `fill`.
        let handle = positive.then(|| unsafe { (*self.handle.get()).assume_init_read() });
        (handle, self.swap_long(None))
    }

    /// Exchanges the long name. Readers may still be on the old one: retire it. [dir lock of the
    /// parent]
    pub(crate) fn swap_long(&self, long: Option<LongName>) -> Option<LongName> {
        let new = long.map_or(std::ptr::null_mut(), Box::into_raw);
        // Release: the bytes are seen with their address; pairs with `long_name`. Acquire for the
        // old ones.
        let old = self.long.swap(new, Ordering::AcqRel);
        // SAFETY: `long` only ever holds null or a box that was given up to it, and this took it
        // out.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }

    /// The full name where it is a long one. [epoch]
    ///
    /// # Safety
    /// The caller must be inside the epoch for as long as it uses the answer, or keep the entry
    /// held and unrenamed (dir lock of the parent).
    pub(crate) unsafe fn long_name(&self) -> Option<&[u8]> {
        // Acquire: pairs with `swap_long`. SAFETY: a box that was once here is freed only a grace
        // period later.
        unsafe { self.long.load(Ordering::Acquire).as_ref() }.map(|name| &**name)
    }

    /// How often entries of this directory were lost or changed. [dir lock]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_change(&self) {
        self.changes.store(self.changes().wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn first_child(&self) -> Id {
        Id(self.first_child.load(Ordering::Relaxed))
    }

    pub(crate) fn set_first_child(&self, id: Id) {
        self.first_child.store(id.0, Ordering::Relaxed);
    }

    pub(crate) fn next(&self) -> Id {
        Id(self.next.load(Ordering::Relaxed))
    }

    pub(crate) fn set_next(&self, id: Id) {
        self.next.store(id.0, Ordering::Relaxed);
    }

    pub(crate) fn prev(&self) -> Id {
        Id(self.prev.load(Ordering::Relaxed))
    }

    pub(crate) fn set_prev(&self, id: Id) {
        self.prev.store(id.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn entry() -> Dentry<u64> {
        let dentry = Dentry::default();
        dentry.mark_dead();
        dentry.revive(false, false);
        dentry
    }

    #[test]
    fn a_held_entry_cannot_be_killed_and_a_dead_one_cannot_be_held() {
        let dentry = entry();
        assert_eq!(dentry.hold(), Some(true));
        assert_eq!(dentry.hold(), Some(false));
        assert!(!dentry.kill_unused());
        assert_eq!(dentry.release(), Left::Others);
        assert_eq!(dentry.release(), Left::Unused);
        assert!(dentry.kill_unused());
        assert_eq!(dentry.hold(), None);
    }

    #[test]
    fn a_detached_entry_dies_with_its_last_reference_of_either_sort() {
        let dentry = entry();
        dentry.hold();
        dentry.pin();
        assert!(!dentry.detach());
        assert_eq!(dentry.release(), Left::Unused);
        assert!(dentry.unpin());

        let dentry = entry();
        dentry.hold();
        dentry.pin();
        assert!(!dentry.detach());
        assert!(!dentry.unpin());
        assert_eq!(dentry.release(), Left::Dead);

        assert!(entry().detach());
    }
}
