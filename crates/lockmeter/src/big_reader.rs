//! A big-reader lock: one reader slot per CPU, after `brlock` of Linux 2.4.
//!
//! ```text
//! writer ─► [ writing ]                      set by the writer that is in or wants in
//! slots  ─► [ readers | readers | … ]        one cache line each; a reader counts itself in its own
//! ```
//! Who protects what: `value` by `writing` and all slots at zero, or by one slot above zero and `writing` clear.
//!
//! A reader touches a line of its own CPU only, so that readers do not slow each other; a writer visits every slot.
//! Slots are dealt to threads in turn, as many as there are CPUs: asking which CPU this is would cost more than the lock, and
//! the answer may be old when it arrives. Two threads may share a slot, which costs time, never safety.
//!
//! Known limits: a writer that waits keeps new readers out, so a reader must not read again while it holds the
//! lock (debug builds panic on it).

use crate::sync::{AtomicBool, AtomicU32, Ordering, sequentially_consistent, thread_number, wait_until};
use crate::{Class, Hold, Mode, Request};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// The readers of one slot, on two lines because CPUs fetch lines in pairs.
#[repr(align(128))]
struct Slot(AtomicU32);

/// A value that is read by many CPUs without a shared line, and written rarely.
pub struct BigReaderLock<T> {
    class: Class,
    writing: AtomicBool,
    slots: Box<[Slot]>,
    value: UnsafeCell<T>, // [writing, slots]
}

// SAFETY: readers on several threads hold `&T` at once, hence `T: Sync`; a writer alone holds `&mut T` on whatever
// thread it runs, hence `T: Send`. That the two exclude each other is argued at `enter`.
unsafe impl<T: Send + Sync> Sync for BigReaderLock<T> {}

impl<T> BigReaderLock<T> {
    /// An unlocked lock with one slot per CPU that records under `class`.
    pub fn new(class: Class, value: T) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_slots(class, value, cpus)
    }

    /// The same with `slots` reader slots, at least one.
    pub fn with_slots(class: Class, value: T, slots: usize) -> Self {
        let slots = (0..slots.max(1)).map(|_| Slot(AtomicU32::new(0))).collect();
        Self { class, writing: AtomicBool::new(false), slots, value: UnsafeCell::new(value) }
    }

    /// Waits until no writer is in or waiting, and keeps writers out.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> BigReaderGuard<'_, T> {
        let mut request = Request::blocking(self.class, Mode::BigRead, self, Location::caller());
        let slot = &self.slots[thread_number() % self.slots.len()].0;
        if !self.enter(slot) {
            request.waits();
            while !self.enter(slot) {
                wait_until(|| !self.writing.load(Ordering::Relaxed));
            }
        }
        BigReaderGuard { lock: self, slot, hold: request.granted(), stays: PhantomData }
    }

    /// Waits for the writer before, keeps new readers out, and waits for the readers that are in.
    #[track_caller]
    pub fn write(&self) -> BigWriterGuard<'_, T> {
        let mut request = Request::blocking(self.class, Mode::BigWrite, self, Location::caller());
        if !self.claim() {
            request.waits();
            while !self.claim() {
                wait_until(|| !self.writing.load(Ordering::Relaxed));
            }
        }
        sequentially_consistent();
        for Slot(readers) in &self.slots {
            // SeqCst: see `enter`. It also acquires what the readers released on leaving.
            if readers.load(Ordering::SeqCst) != 0 {
                request.waits();
                wait_until(|| readers.load(Ordering::SeqCst) == 0);
            }
        }
        BigWriterGuard { lock: self, hold: request.granted(), stays: PhantomData }
    }

    /// Counts the reader in, unless a writer is in or waiting.
    ///
    /// Why a reader and a writer are never both in: the reader adds to its slot and then loads `writing`; the
    /// writer stores `writing` (in [`claim`](Self::claim)) and then loads the slots; all four are `SeqCst`, so they have one order.
    /// If the writer's store came before the reader's load, the reader sees it and backs out. If the reader's load came
    /// first, so did its add, and the writer's load of the slot sees it and waits until the reader has left.
    ///
    /// The load also acquires: partner of the release store in [`BigWriterGuard`]'s drop, whose writes the reader must see.
    #[inline]
    fn enter(&self, slot: &AtomicU32) -> bool {
        slot.fetch_add(1, Ordering::SeqCst);
        sequentially_consistent();
        if !self.writing.load(Ordering::SeqCst) {
            return true;
        }
        // Nothing was read: no order is needed on the way out.
        slot.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Becomes the one writer. Acquire (part of `SeqCst`): partner of the release store of the writer before.
    fn claim(&self) -> bool {
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
    hold: Hold,
    stays: PhantomData<*const ()>, // counted in the table of the thread that took it
}

impl<T> Deref for BigReaderGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this reader is counted in a slot and no writer has a guard (see `enter`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for BigReaderGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.hold.ends();
        // Release: partner of the writer's load of the slot. If the writer sees the slot without this reader, all that
        // the reader read was read before.
        self.slot.fetch_sub(1, Ordering::Release);
    }
}

/// Everybody else is kept out until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct BigWriterGuard<'a, T> {
    lock: &'a BigReaderLock<T>,
    hold: Hold,
    stays: PhantomData<*const ()>, // counted in the table of the thread that took it
}

impl<T> Deref for BigWriterGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this is the one writer and no reader has a guard (see `enter`).
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
        self.hold.ends();
        // Release: partner of the loads in `enter` and `claim`.
        self.lock.writing.store(false, Ordering::Release);
    }
}
