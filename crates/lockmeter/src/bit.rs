//! A lock in one bit of a word.
//!
//! The kernel keeps such locks in the heads of hash chains (`hlist_bl`) and beside reference counts (`lockref`),
//! where a word for the lock alone would cost more than it locks. What the bit protects is its owner's to say:
//! the guard gives access to nothing. The other bits of the word may be changed by anybody at any time, but only
//! by read-modify-write, or the lock bit is lost.

use crate::sync::{AtomicU32, Ordering, wait_until};
use crate::{Class, Hold, Mode, Request};
use std::marker::PhantomData;
use std::panic::Location;

/// How to lock a bit: which one, and under which name it records. Copied where it is needed; the word is elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct BitLock {
    class: Class,
    mask: u32,
}

impl BitLock {
    /// The lock in bit `bit` (0 to 31) of whatever word it is given; bits above 31 count from 0 again.
    #[must_use]
    pub fn new(class: Class, bit: u32) -> Self {
        Self { class, mask: 1_u32.rotate_left(bit) }
    }

    /// Waits for the bit of `word`.
    #[track_caller]
    #[inline]
    pub fn lock<'a>(&self, word: &'a AtomicU32) -> BitGuard<'a> {
        let mut request = Request::blocking(self.class, Mode::Bit, word, Location::caller());
        if !self.take(word) {
            request.waits();
            while !self.take(word) {
                wait_until(|| !self.is_locked(word));
            }
        }
        self.guard(word, request.granted())
    }

    /// Takes the bit of `word` if nobody holds it.
    #[track_caller]
    #[inline]
    pub fn try_lock<'a>(&self, word: &'a AtomicU32) -> Option<BitGuard<'a>> {
        let request = Request::attempt(self.class, Mode::Bit, word, Location::caller());
        if self.take(word) {
            return Some(self.guard(word, request.granted()));
        }
        request.refused();
        None
    }

    /// Whether somebody holds the bit of `word`.
    #[inline]
    #[must_use]
    pub fn is_locked(&self, word: &AtomicU32) -> bool {
        word.load(Ordering::Relaxed) & self.mask != 0
    }

    /// Acquire: partner of the release in [`BitGuard`]'s drop. If that came first, this reads a word that follows it
    /// in the word's release sequence, whatever was done to the other bits since (read-modify-writes all), and
    /// sees all that the holder wrote; if not, the bit is set and this fails, having changed nothing.
    #[inline]
    fn take(&self, word: &AtomicU32) -> bool {
        word.fetch_or(self.mask, Ordering::Acquire) & self.mask == 0
    }

    #[inline]
    fn guard<'a>(&self, word: &'a AtomicU32, hold: Hold) -> BitGuard<'a> {
        BitGuard { word, mask: self.mask, hold, stays: PhantomData }
    }
}

/// The bit is held until this is dropped.
#[must_use = "the bit is released when the guard is dropped"]
#[derive(Debug)]
pub struct BitGuard<'a> {
    word: &'a AtomicU32,
    mask: u32,
    hold: Hold,
    stays: PhantomData<*const ()>, // counted in the table of the thread that took it
}

impl Drop for BitGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.hold.ends();
        // Release: partner of the `fetch_or` in `take`.
        self.word.fetch_and(!self.mask, Ordering::Release);
    }
}
