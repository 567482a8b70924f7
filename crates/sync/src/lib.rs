//! Locks, atomics and threads for every crate: one facade over `std`, `loom` and `shuttle`.
//!
//! Under `--cfg loom` and `--cfg shuttle` they are the checker's: the checked code is the code that
//! ships.
//!
//! | type | purpose |
//! |---|---|
//! | [`Mutex`], [`RwLock`], [`Condvar`] | `std`'s without poisoning |
//! | [`ReaderBias`] | readers of a lock write only their own cache line (BRAVO) |
//! | [`thread_slot`] | small numbers of threads, for choosing a slot |
//! | [`Padded`] | a value alone on its cache lines |
//! | [`Backoff`] | spins, then yields |
//! | [`lockstat`] | named locks, which a recorder can observe; lock order checks |
//!
//! # Poisoning
//! There is none: the data is consistent whenever its lock is free, or a panic stops all threads
//! that use it. A crate with the latter says so.
//!
//! # Known limits
//! `loom` has no time: a timed wait never times out.

#![forbid(unsafe_code)]

mod backoff;
mod biased;
mod locks;
pub mod lockstat;
mod padded;
mod primitive;
pub mod thread_slot;

pub use backoff::Backoff;
pub use biased::{BiasedReader, ReaderBias};
pub use locks::{Condvar, Mutex, RwLock};
pub use padded::Padded;
pub use primitive::{
    Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic, fence_for_loom, loom_switch_point, thread,
    thread_local,
};
