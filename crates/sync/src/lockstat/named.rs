//! Mutex and reader-writer lock with a class.

use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::{Class, Held, Kind, Request};
use crate::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tells waits from other requests. Off in models, which record nothing.
const TRIES_FIRST: bool = cfg!(all(feature = "lockstat", not(loom)));

/// A [`Mutex`] with a class.
#[derive(Debug)]
pub struct NamedMutex<T> {
    class: Class,
    inner: Mutex<T>,
}

impl<T> NamedMutex<T> {
    /// An unlocked mutex.
    pub fn new(class: Class, value: T) -> Self {
        Self { class, inner: Mutex::new(value) }
    }

    /// Waits for the mutex.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> NamedMutexGuard<'_, T> {
        // Before the class is read, so that the cache line is fetched once, for writing.
        let inner = if TRIES_FIRST { self.inner.try_lock() } else { None };
        let mut request = Request::blocking(self.class, Kind::Mutex, self, Location::caller());
        let inner = inner.unwrap_or_else(|| {
            request.waits();
            self.inner.lock()
        });
        NamedMutexGuard { inner, held: request.acquired() }
    }

    /// Takes the mutex if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<NamedMutexGuard<'_, T>> {
        let request = Request::attempt(self.class, Kind::Mutex, self, Location::caller());
        match self.inner.try_lock() {
            Some(inner) => Some(NamedMutexGuard { inner, held: request.acquired() }),
            None => {
                request.failed();
                None
            }
        }
    }
}

/// The mutex is held until this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct NamedMutexGuard<'a, T> {
    inner: MutexGuard<'a, T>, // dropped before `held`
    held: Held,
}

impl<T> Deref for NamedMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for NamedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for NamedMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ends();
    }
}

/// A [`RwLock`] with a class; reads and writes are recorded apart.
#[derive(Debug)]
pub struct NamedRwLock<T> {
    class: Class,
    inner: RwLock<T>,
}

impl<T> NamedRwLock<T> {
    /// An unlocked lock.
    pub fn new(class: Class, value: T) -> Self {
        Self { class, inner: RwLock::new(value) }
    }

    /// Waits until there is no writer. A thread must not read twice, as a writer may wait in
    /// between.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> NamedReadGuard<'_, T> {
        let mut request = Request::blocking(self.class, Kind::Read, self, Location::caller());
        let inner = if TRIES_FIRST { self.inner.try_read() } else { None };
        let inner = inner.unwrap_or_else(|| {
            request.waits();
            self.inner.read()
        });
        NamedReadGuard { inner, held: request.acquired() }
    }

    /// Waits until there is neither writer nor reader.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> NamedWriteGuard<'_, T> {
        let mut request = Request::blocking(self.class, Kind::Write, self, Location::caller());
        let inner = if TRIES_FIRST { self.inner.try_write() } else { None };
        let inner = inner.unwrap_or_else(|| {
            request.waits();
            self.inner.write()
        });
        NamedWriteGuard { inner, held: request.acquired() }
    }
}

/// A read, until this is dropped.
#[must_use = "the read ends when the guard is dropped"]
#[derive(Debug)]
pub struct NamedReadGuard<'a, T> {
    inner: RwLockReadGuard<'a, T>, // dropped before `held`
    held: Held,
}

impl<T> Deref for NamedReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Drop for NamedReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ends();
    }
}

/// A write, until this is dropped.
#[must_use = "the write ends when the guard is dropped"]
#[derive(Debug)]
pub struct NamedWriteGuard<'a, T> {
    inner: RwLockWriteGuard<'a, T>, // dropped before `held`
    held: Held,
}

impl<T> Deref for NamedWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for NamedWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for NamedWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ends();
    }
}
