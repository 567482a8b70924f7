//! The primitives that the cache is built of: `std`'s in what ships, loom's or shuttle's under
//! `--cfg loom` and `--cfg shuttle`. The code above does not know which, so what the checkers
//! explore is what ships.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

use std::sync::PoisonError;

/// Locks, also behind a panic of another thread: no critical section of this crate runs foreign
/// code, so none can be left half done by one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits a moment for another writer: spins at first, then lets others run.
///
/// Only writers wait like this, for sections of a few dozen instructions.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    const SPINS: u32 = 6;

    pub(crate) fn wait(&mut self) {
        if cfg!(any(loom, shuttle)) || self.0 >= Self::SPINS {
            yield_now();
        } else {
            for _ in 0..1 << self.0 {
                std::hint::spin_loop();
            }
            self.0 += 1;
        }
    }
}

/// A place where loom shall consider to run another thread.
///
/// Loom goes back to an operation only if a conflicting one of another thread was the *next* on
/// that variable. A writer that reads a word before it writes it, as those of the index do, hides
/// from it by its own reading: models of the index ended after one execution. Here each conflicts
/// with each, and orders nothing.
#[inline(always)]
pub(crate) fn switch_point() {
    #[cfg(loom)]
    {
        loom::lazy_static! { static ref POINTS: AtomicU32 = AtomicU32::new(0); }
        POINTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// A value alone on its cache lines (two: processors fetch them in pairs).
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// A small number that belongs to the calling thread until it ends; numbers are used again, lowest
/// first.
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod thread_number {
    use super::{Mutex, Ordering, lock};
    use std::{cell::Cell, collections::BTreeSet};

    static FREED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    static LIMIT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

    const UNASSIGNED: u32 = u32::MAX;

    thread_local! {
        // Apart from `LEASE`, which needs a destructor and so costs a check of its state at each
        // use.
        static NUMBER: Cell<u32> = const { Cell::new(UNASSIGNED) };
        static LEASE: Lease = Lease(NUMBER.get());
    }

    struct Lease(u32);

    impl Drop for Lease {
        fn drop(&mut self) {
            NUMBER.set(UNASSIGNED);
            lock(&FREED).insert(self.0);
        }
    }

    #[inline]
    pub(crate) fn get() -> u32 {
        match NUMBER.get() {
            UNASSIGNED => assign(),
            number => number,
        }
    }

    #[cold]
    fn assign() -> u32 {
        let number = lock(&FREED).pop_first().unwrap_or_else(|| LIMIT.fetch_add(1, Ordering::SeqCst));
        NUMBER.set(number);
        // Where the thread is past its destructors the number is never given back: a leak of one
        // slot.
        let _ = LEASE.try_with(|_| ());
        number
    }

    /// One more than the highest number ever given.
    pub(crate) fn limit() -> u32 {
        LIMIT.load(Ordering::SeqCst)
    }
}

#[cfg(any(loom, shuttle))]
pub(crate) mod thread_number {
    /// Models run few threads; each test numbers its own.
    pub(crate) const LIMIT: u32 = 4;

    #[cfg(loom)]
    loom::thread_local! { static NUMBER: std::cell::Cell<u32> = std::cell::Cell::new(next()); }
    #[cfg(shuttle)]
    shuttle::thread_local! { static NUMBER: std::cell::Cell<u32> = std::cell::Cell::new(next()); }
    #[cfg(loom)]
    loom::lazy_static! { static ref NEXT: super::AtomicU32 = super::AtomicU32::new(0); }
    #[cfg(shuttle)]
    shuttle::lazy_static! { static ref NEXT: super::AtomicU32 = super::AtomicU32::new(0); }

    fn next() -> u32 {
        let number = NEXT.fetch_add(1, super::Ordering::SeqCst);
        assert!(number < LIMIT, "a model has at most {LIMIT} threads that use the cache");
        number
    }

    pub(crate) fn get() -> u32 {
        NUMBER.with(std::cell::Cell::get)
    }

    pub(crate) fn limit() -> u32 {
        LIMIT
    }
}
