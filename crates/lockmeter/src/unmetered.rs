//! The meter where the feature `meter` is off: nothing, of no size.

use std::panic::Location;

/// A name under which figures would be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class;

impl Class {
    /// The class of this name.
    #[must_use]
    pub fn named(_: &'static str) -> Self {
        Self
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Spin,
    Mutex,
    Bit,
    Read,
    Write,
    BigRead,
    BigWrite,
}

pub(crate) struct Request;

impl Request {
    #[inline]
    pub(crate) fn blocking<L>(_: Class, _: Mode, _: &L, _: &'static Location<'static>) -> Self {
        Self
    }
    #[inline]
    pub(crate) fn attempt<L>(_: Class, _: Mode, _: &L, _: &'static Location<'static>) -> Self {
        Self
    }
    #[inline]
    pub(crate) fn waits(&mut self) {}
    #[inline]
    pub(crate) fn refused(self) {}
    #[inline]
    pub(crate) fn granted(self) -> Hold {
        Hold
    }
}

#[derive(Debug)]
pub(crate) struct Hold;

impl Hold {
    #[inline]
    pub(crate) fn ends(&mut self) {}
}
