//! A lock in one bit of a word.
//!
//! The kernel has such locks in the heads of hash chains (`hlist_bl`) and beside reference counts
//! (`lockref`), where a word for the lock alone costs more than what it protects. The guard gives
//! access to nothing. Other bits may change at any time, but only by read-modify-write: a plain
//! store loses the lock bit.

use crate::wait::wait_until;
use dentree_sync::atomic::{AtomicU32, Ordering};
use dentree_sync::lockstat::{Class, Held, Kind, Request};
use std::marker::PhantomData;
use std::panic::Location;

/// How to lock a bit: its number and its class. The word is elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct BitLock {
    class: Class,
    mask: u32,
}

impl BitLock {
    /// The lock in bit `bit`, taken modulo 32.
    #[must_use]
    pub fn new(class: Class, bit: u32) -> Self {
        Self { class, mask: 1_u32.rotate_left(bit) }
    }

    /// Waits for the bit of `word`.
    #[track_caller]
    #[inline]
    pub fn lock<'a>(&self, word: &'a AtomicU32) -> BitGuard<'a> {
        let mut request = Request::blocking(self.class, Kind::Bit, word, Location::caller());
        if !self.take(word) {
            request.waits();
            while !self.take(word) {
                wait_until(|| !self.is_locked(word));
            }
        }
        self.guard(word, request.acquired())
    }

    /// Takes the bit of `word` if it is free.
    #[track_caller]
    #[inline]
    pub fn try_lock<'a>(&self, word: &'a AtomicU32) -> Option<BitGuard<'a>> {
        let request = Request::attempt(self.class, Kind::Bit, word, Location::caller());
        if self.take(word) {
            return Some(self.guard(word, request.acquired()));
        }
        request.failed();
        None
    }

    /// Whether the bit of `word` is taken.
    #[inline]
    #[must_use]
    pub fn is_locked(&self, word: &AtomicU32) -> bool {
        word.load(Ordering::Relaxed) & self.mask != 0
    }

    /// Acquire: partner of the release in [`BitGuard`]'s drop. If that came first, this reads a
    /// word of its release sequence, as changes of other bits are read-modify-writes, and sees what
    /// the holder wrote. Otherwise the bit is set, and this fails without a change.
    #[inline]
    fn take(&self, word: &AtomicU32) -> bool {
        word.fetch_or(self.mask, Ordering::Acquire) & self.mask == 0
    }

    #[inline]
    fn guard<'a>(&self, word: &'a AtomicU32, held: Held) -> BitGuard<'a> {
        BitGuard { word, mask: self.mask, held, not_send: PhantomData }
    }
}

/// The bit is held until this is dropped.
#[must_use = "the bit is released when the guard is dropped"]
#[derive(Debug)]
pub struct BitGuard<'a> {
    word: &'a AtomicU32,
    mask: u32,
    held: Held,
    not_send: PhantomData<*const ()>, // reported by the thread that took it
}

impl Drop for BitGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.held.ends();
        // Release: partner of the `fetch_or` in `take`.
        self.word.fetch_and(!self.mask, Ordering::Release);
    }
}
