//! A spin lock: test and test-and-set.
//!
//! `locked` protects `value`. It is not fair: the study's kernels had the same kind (x86 `xchg`
//! until 2.6.25), and queue locks suffer more from a waiter that loses its CPU.

use crate::wait::wait_until;
use dentree_sync::atomic::{AtomicBool, Ordering};
use dentree_sync::lockstat::{Class, Held, Kind, Request};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// A value behind a spin lock. Hold it briefly: a waiter occupies its CPU.
pub struct SpinLock<T> {
    class: Class,
    locked: AtomicBool,
    value: UnsafeCell<T>, // [locked]
}

// SAFETY: the value is reached only through a guard, and `locked` lets one guard exist at a time,
// so sharing the lock amounts to sending the value from holder to holder.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An unlocked lock.
    pub fn new(class: Class, value: T) -> Self {
        Self { class, locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut request = Request::blocking(self.class, Kind::Spin, self, Location::caller());
        if !self.take() {
            request.waits();
            while !self.take() {
                wait_until(|| !self.locked.load(Ordering::Relaxed));
            }
        }
        SpinGuard { lock: self, held: request.acquired(), not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let request = Request::attempt(self.class, Kind::Spin, self, Location::caller());
        if self.take() {
            return Some(SpinGuard { lock: self, held: request.acquired(), not_send: PhantomData });
        }
        request.failed();
        None
    }

    /// Acquire: partner of the release store in [`SpinGuard`]'s drop. If that store came first,
    /// this exchange reads it and sees what the holder wrote; otherwise it reads `true` and fails.
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
    held: Held,
    not_send: PhantomData<*const ()>, // reported by the thread that took it
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread took `locked`, and there is no other guard.
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
        self.held.ends();
        // Release: partner of the exchange in `take`.
        self.lock.locked.store(false, Ordering::Release);
    }
}
