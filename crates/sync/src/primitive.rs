//! The primitives below this crate: `std`'s, `loom`'s or `shuttle`'s.

#[cfg(loom)]
pub use loom::{
    sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};

#[cfg(loom)]
pub(crate) use loom::{lazy_static, sync};
#[cfg(shuttle)]
pub(crate) use shuttle::{lazy_static, sync};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync;

/// A sequentially consistent fence under loom alone.
///
/// Loom treats `SeqCst` accesses as `AcqRel`. If two of them must be in one order with two of
/// another thread, each thread calls this between its two.
#[inline(always)]
pub fn fence_for_loom() {
    #[cfg(loom)]
    atomic::fence(atomic::Ordering::SeqCst);
}

/// A point where loom considers running another thread.
///
/// Loom revisits an operation only if a conflicting one of another thread was the *next* on that
/// variable, which a writer that reads a word before writing it hides. Here every call conflicts
/// with every other, and orders nothing.
#[inline(always)]
pub fn loom_switch_point() {
    #[cfg(loom)]
    {
        lazy_static! {
            static ref POINTS: atomic::AtomicU32 = atomic::AtomicU32::new(0);
        }
        POINTS.fetch_add(1, atomic::Ordering::Relaxed);
    }
}
