//! The locks and threads: of `std`, or of `loom` where it checks every interleaving.

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::thread;

/// Locks. What the mutexes of this crate protect is whole whenever they are free, so poison means nothing here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for so long at most, if that is limited. Returns whether the time was up.
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Option<Duration>,
) -> (MutexGuard<'a, T>, bool) {
    match most {
        // Time does not pass in loom.
        Some(most) if cfg!(not(loom)) => {
            let (guard, outcome) = condvar.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
            (guard, outcome.timed_out())
        }
        _ => (wait(condvar, guard), false),
    }
}
