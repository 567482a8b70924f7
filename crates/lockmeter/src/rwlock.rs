//! The standard library's reader-writer lock, metered.

use crate::{Class, Hold, Mode, Request};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{self, PoisonError, TryLockError};

/// A value behind a metered lock that many may read or one may write, and that sleeps. Nothing is poisoned.
///
/// A reader must not read again while it holds the lock (debug builds panic on it): a writer may wait between.
#[derive(Debug)]
pub struct RwLock<T> {
    class: Class,
    inner: sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// An unlocked lock that records under `class`, reads and writes apart.
    pub fn new(class: Class, value: T) -> Self {
        Self { class, inner: sync::RwLock::new(value) }
    }

    /// Waits until no writer is in.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let mut request = Request::blocking(self.class, Mode::Read, self, Location::caller());
        let inner = match self.inner.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                request.waits();
                self.inner.read().unwrap_or_else(PoisonError::into_inner)
            }
        };
        ReadGuard { inner, hold: request.granted() }
    }

    /// Waits until nobody is in.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let mut request = Request::blocking(self.class, Mode::Write, self, Location::caller());
        let inner = match self.inner.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                request.waits();
                self.inner.write().unwrap_or_else(PoisonError::into_inner)
            }
        };
        WriteGuard { inner, hold: request.granted() }
    }
}

/// Writers are kept out until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard<'a, T> {
    inner: sync::RwLockReadGuard<'a, T>, // dropped first: counting comes after unlocking
    hold: Hold,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.hold.ends();
    }
}

/// Everybody else is kept out until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct WriteGuard<'a, T> {
    inner: sync::RwLockWriteGuard<'a, T>, // dropped first: counting comes after unlocking
    hold: Hold,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.hold.ends();
    }
}
