//! Named locks: a recorder can observe them, and debug builds check their order.
//!
//! Both need the feature `lockstat`. Without it a [`Class`] has no size, and a named lock is its
//! inner lock.
//!
//! | part | purpose |
//! |---|---|
//! | [`Class`] | the name of a kind of lock |
//! | [`NamedMutex`], [`NamedRwLock`] | [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock) with a class |
//! | [`Request`], [`Held`] | for further locks: one request, and the lock while it is held |
//! | [`Recorder`], [`start`], [`stop`] | the hook |
//!
//! # Cost
//! With the feature, without a recorder: a request loads one word that is never written, and a drop
//! of the guard tests a register.
//!
//! # Lock order
//! With `debug_assertions` each thread lists the named locks that it holds. "B was taken while A
//! was held" adds an arrow from A to B to a graph of classes. An arrow that closes a circle panics
//! with both places, before the thread waits. Locks of one class must be taken in ascending order
//! of their addresses. `try_lock` adds no arrow, as it cannot deadlock.

mod named;

#[cfg(not(feature = "lockstat"))]
mod off;
#[cfg(feature = "lockstat")]
mod on;
#[cfg(all(feature = "lockstat", debug_assertions))]
mod order;

pub use named::{NamedMutex, NamedMutexGuard, NamedReadGuard, NamedRwLock, NamedWriteGuard};

#[cfg(not(feature = "lockstat"))]
pub use off::{Class, Held, Request};
#[cfg(feature = "lockstat")]
pub use on::{Class, Held, Key, Recorder, Request, start, stop};

/// What is taken: the kind of lock, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A spin lock.
    Spin,
    /// A bit of a word.
    Bit,
    /// A [`NamedMutex`].
    Mutex,
    /// A big-reader lock, to read.
    BigRead,
    /// A big-reader lock, to write.
    BigWrite,
    /// A [`NamedRwLock`], to read.
    Read,
    /// A [`NamedRwLock`], to write.
    Write,
}
