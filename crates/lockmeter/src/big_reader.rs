//! A big-reader lock: one reader slot per CPU, after `brlock` of Linux 2.4.
//!
//! ```text
//! writer ─► [ writing ]                      set by the writer that is in or waits
//! slots  ─► [ readers | readers | … ]        one cache line each, where readers count themselves
//! ```
//! `value` is protected by `writing` with all slots at zero, or by one slot above zero with
//! `writing` clear.
//!
//! A reader touches a line of its own slot, so readers do not slow each other; a writer visits
//! every slot. Slots are chosen by thread: asking for the CPU costs more than the lock, and the
//! result may be stale. Threads may share a slot, which costs time, never safety.
//!
//! Known limits: a waiting writer keeps new readers out, so a reader must not read again while it
//! holds the lock (debug builds panic on it).

use crate::wait::wait_until;
use dentree_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dentree_sync::lockstat::{Class, Held, Kind, Request};
use dentree_sync::{Padded, fence_for_loom, thread_slot};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// The readers of one slot.
type Slot = Padded<AtomicU32>;

/// A value that is read by many CPUs without a shared line, and written rarely.
pub struct BigReaderLock<T> {
    class: Class,
    writing: AtomicBool,
    slots: Box<[Slot]>,
    value: UnsafeCell<T>, // [writing, slots]
}

// SAFETY: readers on several threads hold `&T` at once, hence `T: Sync`; a writer alone holds `&mut
// T` on any thread, hence `T: Send`. `enter` argues that the two exclude each other.
unsafe impl<T: Send + Sync> Sync for BigReaderLock<T> {}

impl<T> BigReaderLock<T> {
    /// An unlocked lock with one slot per CPU.
    pub fn new(class: Class, value: T) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_slots(class, value, cpus)
    }

    /// The same with `slots` reader slots, at least one.
    pub fn with_slots(class: Class, value: T, slots: usize) -> Self {
        let slots = (0..slots.max(1)).map(|_| Padded(AtomicU32::new(0))).collect();
        Self { class, writing: AtomicBool::new(false), slots, value: UnsafeCell::new(value) }
    }

    /// Waits until no writer is in or waits, and keeps writers out.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> BigReaderGuard<'_, T> {
        let mut request = Request::blocking(self.class, Kind::BigRead, self, Location::caller());
        let Padded(slot) = &self.slots[thread_slot::index(self.slots.len())];
        if !self.enter(slot) {
            request.waits();
            while !self.enter(slot) {
                wait_until(|| !self.writing.load(Ordering::Relaxed));
            }
        }
        BigReaderGuard { lock: self, slot, held: request.acquired(), not_send: PhantomData }
    }

    /// Waits for the writer that is in, keeps new readers out, and waits for the readers that are
    /// in.
    #[track_caller]
    pub fn write(&self) -> BigWriterGuard<'_, T> {
        let mut request = Request::blocking(self.class, Kind::BigWrite, self, Location::caller());
        if !self.begin_write() {
            request.waits();
            while !self.begin_write() {
                wait_until(|| !self.writing.load(Ordering::Relaxed));
            }
        }
        fence_for_loom();
        for Padded(readers) in &self.slots {
            // SeqCst: see `enter`. It also acquires what the readers released on leaving.
            if readers.load(Ordering::SeqCst) != 0 {
                request.waits();
                wait_until(|| readers.load(Ordering::SeqCst) == 0);
            }
        }
        BigWriterGuard { lock: self, held: request.acquired(), not_send: PhantomData }
    }

    /// Counts the reader in, unless a writer is in or waits.
    ///
    /// A reader and a writer are never both in: the reader adds to its slot, then loads `writing`;
    /// the writer stores `writing` (in [`begin_write`](Self::begin_write)), then loads the slots;
    /// all four are `SeqCst`, so they have one order. If the writer's store came before the
    /// reader's load, the reader sees it and backs out. Otherwise the reader's add precedes the
    /// writer's load of the slot, which sees it and waits.
    ///
    /// The load also acquires: partner of the release store in [`BigWriterGuard`]'s drop.
    #[inline]
    fn enter(&self, slot: &AtomicU32) -> bool {
        slot.fetch_add(1, Ordering::SeqCst);
        fence_for_loom();
        if !self.writing.load(Ordering::SeqCst) {
            return true;
        }
        // Nothing was read: no order is needed on the way out.
        slot.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Becomes the one writer. Acquire (part of `SeqCst`): partner of the last writer's release
    /// store.
    fn begin_write(&self) -> bool {
        self.writing.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

impl<T> fmt::Debug for BigReaderLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BigReaderLock").field("class", &self.class).finish_non_exhaustive()
    }
}

/// Writers are kept out until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct BigReaderGuard<'a, T> {
    lock: &'a BigReaderLock<T>,
    slot: &'a AtomicU32,
    held: Held,
    not_send: PhantomData<*const ()>, // reported by the thread that took it
}

impl<T> Deref for BigReaderGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this reader is counted in a slot, and no writer has a guard
        // (see `enter`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for BigReaderGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ends();
        // Release: partner of the writer's load of the slot. If the writer sees the slot without
        // this reader, its reads came before.
        self.slot.fetch_sub(1, Ordering::Release);
    }
}

/// All others are kept out until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct BigWriterGuard<'a, T> {
    lock: &'a BigReaderLock<T>,
    held: Held,
    not_send: PhantomData<*const ()>, // reported by the thread that took it
}

impl<T> Deref for BigWriterGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this is the one writer and no reader has a guard (see
        // `enter`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BigWriterGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` rules out other references through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BigWriterGuard<'_, T> {
    fn drop(&mut self) {
        self.held.ends();
        // Release: partner of the loads in `enter` and `begin_write`.
        self.lock.writing.store(false, Ordering::Release);
    }
}
