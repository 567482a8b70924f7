//! Locking that ignores poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic leaves the protected maps consistent: each operation on one is a single call.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
