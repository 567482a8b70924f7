//! Named locks without the feature `lockstat`: no code, no size.

use std::panic::Location;

use super::Kind;

/// The name of a kind of lock, not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class;

impl Class {
    /// The class of this name.
    #[must_use]
    pub fn named(_: &'static str) -> Self {
        Self
    }
}

/// A request for a lock, not observed.
#[derive(Debug)]
pub struct Request;

impl Request {
    /// By a thread that waits if it must.
    #[inline]
    pub fn blocking<L>(_: Class, _: Kind, _: &L, _: &'static Location<'static>) -> Self {
        Self
    }

    /// By a thread that does not wait.
    #[inline]
    pub fn attempt<L>(_: Class, _: Kind, _: &L, _: &'static Location<'static>) -> Self {
        Self
    }

    /// The lock is taken; the thread waits.
    #[inline]
    pub fn waits(&mut self) {}

    /// The lock is taken; the thread continues without it.
    #[inline]
    pub fn failed(self) {}

    /// The thread has the lock.
    #[inline]
    pub fn acquired(self) -> Held {
        Held
    }
}

/// A lock that a thread holds.
#[derive(Debug)]
pub struct Held;

impl Held {
    /// The thread is about to release it.
    #[inline]
    pub fn ends(&mut self) {}
}
