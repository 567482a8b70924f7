//! A spin lock: test and test-and-set.
//!
//! Who protects what: `value` by `locked`. Not fair: the study's kernels had the same kind (x86 `xchg` until 2.6.25), and
//! queue locks suffer more where a waiter may lose its CPU.

use crate::sync::{AtomicBool, Ordering, wait_until};
use crate::{Class, Hold, Mode, Request};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// A value behind a metered spin lock. Hold it briefly: who waits burns its CPU.
pub struct SpinLock<T> {
    class: Class,
    locked: AtomicBool,
    value: UnsafeCell<T>, // [locked]
}

// SAFETY: the value is reached only through a guard, and `locked` lets one guard exist at a time, so sharing the
// lock amounts to sending the value from holder to holder.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An unlocked lock that records under `class`.
    pub fn new(class: Class, value: T) -> Self {
        Self { class, locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut request = Request::blocking(self.class, Mode::Spin, self, Location::caller());
        if !self.take() {
            request.waits();
            while !self.take() {
                wait_until(|| !self.locked.load(Ordering::Relaxed));
            }
        }
        SpinGuard { lock: self, hold: request.granted(), stays: PhantomData }
    }

    /// Takes the lock if nobody holds it.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let request = Request::attempt(self.class, Mode::Spin, self, Location::caller());
        if self.take() {
            return Some(SpinGuard { lock: self, hold: request.granted(), stays: PhantomData });
        }
        request.refused();
        None
    }

    /// Acquire: partner of the release store in [`SpinGuard`]'s drop. If that store came first, this exchange reads
    /// it and sees all that the holder wrote; if not, it reads `true` and fails.
    #[inline]
    fn take(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").field("class", &self.class).finish_non_exhaustive()
    }
}

/// The lock is held until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    hold: Hold,
    stays: PhantomData<*const ()>, // counted in the table of the thread that took it
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread took `locked` and nobody else has a guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` rules out other references through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.hold.ends();
        // Release: partner of the exchange in `take`.
        self.lock.locked.store(false, Ordering::Release);
    }
}
