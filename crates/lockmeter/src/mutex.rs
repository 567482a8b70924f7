//! The standard library's mutex, metered.

use crate::{Class, Hold, Mode, Request};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{self, PoisonError, TryLockError};

/// A value behind a metered lock that sleeps. A holder that panics leaves the value as it is: nothing is poisoned.
#[derive(Debug)]
pub struct Mutex<T> {
    class: Class,
    inner: sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked lock that records under `class`.
    pub fn new(class: Class, value: T) -> Self {
        Self { class, inner: sync::Mutex::new(value) }
    }

    /// Waits for the lock.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Taken before anything else is read of its line: that comes from another thread once then, to be written.
        let inner = self.take();
        let mut request = Request::blocking(self.class, Mode::Mutex, self, Location::caller());
        let inner = inner.unwrap_or_else(|| {
            request.waits();
            self.inner.lock().unwrap_or_else(PoisonError::into_inner)
        });
        MutexGuard { inner, hold: request.granted() }
    }

    /// Takes the lock if nobody holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let request = Request::attempt(self.class, Mode::Mutex, self, Location::caller());
        match self.take() {
            Some(inner) => Some(MutexGuard { inner, hold: request.granted() }),
            None => {
                request.refused();
                None
            }
        }
    }

    #[inline]
    fn take(&self) -> Option<sync::MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The lock is held until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    inner: sync::MutexGuard<'a, T>, // dropped first: counting comes after unlocking
    hold: Hold,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.hold.ends();
    }
}
