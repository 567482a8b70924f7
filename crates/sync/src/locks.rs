//! `std`'s locks without poisoning.

use std::sync::{PoisonError, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

use crate::primitive::{MutexGuard, RwLockReadGuard, RwLockWriteGuard, sync};

fn unless_blocked<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A value for one thread at a time.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// An unlocked mutex.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the mutex.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        unless_blocked(self.0.try_lock())
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// An unlocked lock.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Waits until there is no writer. A thread must not read twice, as a writer may wait in
    /// between.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is neither writer nor reader.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads if there is no writer.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        unless_blocked(self.0.try_read())
    }

    /// Writes if there is neither writer nor reader.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        unless_blocked(self.0.try_write())
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads sleep here until another one changes what a [`Mutex`] protects.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Without waiters.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Without waiters.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Releases the mutex, sleeps until a notification, and takes the mutex again. May wake early.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`wait`](Self::wait), at most for `at_most`. Returns whether that has passed.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        at_most: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        match at_most {
            Some(at_most) if cfg!(not(any(loom, shuttle))) => {
                let woken = self.0.wait_timeout(guard, at_most);
                let (guard, outcome) = woken.unwrap_or_else(PoisonError::into_inner);
                (guard, outcome.timed_out())
            }
            _ => (self.wait(guard), false),
        }
    }

    /// Waits while `condition` holds, at most for `at_most`. Returns whether it still holds.
    pub fn wait_while_for<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        at_most: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let end = Instant::now() + at_most;
        while condition(&mut guard) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (guard, true);
            }
            (guard, _) = self.wait_for(guard, Some(left));
        }
        (guard, false)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
