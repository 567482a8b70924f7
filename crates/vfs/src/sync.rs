//! Locking that outlives a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere leaves these maps consistent: each operation on one is one call.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
