//! The locks: of `std`, or of `loom` where it checks every interleaving.

use std::sync::PoisonError;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::thread_local;

/// Locks. No critical section in this crate can panic half way, so poison means nothing here.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// A small number of this thread's own, for choosing a seat.
#[cfg(not(loom))]
#[inline]
pub(crate) fn thread_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Loom numbers its threads from 0 in every execution.
#[cfg(loom)]
pub(crate) fn thread_number() -> usize {
    let id = format!("{:?}", loom::thread::current().id());
    id.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| 10 * number + usize::from(digit - b'0'))
}

/// How many seats there are.
#[cfg(not(loom))]
pub(crate) fn seats() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One for each thread of a model, but for the third.
#[cfg(loom)]
pub(crate) fn seats() -> usize {
    2
}
