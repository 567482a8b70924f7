//! The standard library's atomics, or loom's where its tests run: the code under test is the code that ships.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};

/// Turns of a waiter before it gives its CPU away: the holder may be waiting for that very CPU, which a kernel
/// spin lock rules out by disabling preemption.
#[cfg(not(loom))]
const TURNS_MAX: u32 = 128;

/// A panic elsewhere does no harm to what is guarded.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until `moved` is notified.
pub(crate) fn wait<'a, T>(moved: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    moved.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `free`, which looks without writing.
#[cold]
pub(crate) fn wait_until(free: impl Fn() -> bool) {
    #[cfg(not(loom))]
    for turn in 1_u32.. {
        if free() {
            return;
        }
        if turn % TURNS_MAX == 0 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    #[cfg(loom)]
    while !free() {
        loom::thread::yield_now();
    }
}

/// What `SeqCst` accesses on both sides of this call promise already; loom takes them for `AcqRel`, so under
/// loom the fence stands in for the promise.
#[inline]
pub(crate) fn sequentially_consistent() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A small number of this thread's own, for choosing a slot.
#[cfg(not(loom))]
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Loom's threads share one slot: the harder case, and the same in every execution.
#[cfg(loom)]
pub(crate) fn thread_number() -> usize {
    0
}
