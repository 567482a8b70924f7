//! Inodes that are being made, and numbers that are looked at by themselves meanwhile.
//!
//! A name leads to a number that is in use. A number by itself may be free, or taken for a file
//! that is being made and is not in the cache yet: loaded then, there would be two inodes of one
//! number. So nothing is made while a number is looked at that is not in the cache.
//!
//! | state                         | protected by                                                  |
//! |-------------------------------|---------------------------------------------------------------|
//! | an inode from its number's allocation to its place in the cache | [`Making`], shared          |
//! | a number looked at by itself  | [`Making`], exclusive; taken before the cache's place for it  |
//!
//! Lock order: a thread that makes an inode takes [`Making`] last, and inside it waits for
//! evictions and the file system alone. A thread that has it exclusively waits for the same, and
//! for one that has an inode alone (I4), which takes no lock of `vfs`.

use dentree_lockmeter::{Crowd, Seated};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Shared by threads that make inodes, each writing a cache line of its own.
#[derive(Default)]
pub(crate) struct Making {
    lock: RwLock<()>,
    crowd: Crowd,
}

/// An inode is being made.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum Made<'a> {
    Seated(Seated<'a>),
    Locked(RwLockReadGuard<'a, ()>),
}

impl Making {
    pub(crate) fn begin(&self) -> Made<'_> {
        if let Some(seat) = self.crowd.sit() {
            return Made::Seated(seat);
        }
        let shared = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        self.crowd.note_shared();
        Made::Locked(shared)
    }

    /// Waits until nothing is being made, and keeps it so.
    pub(crate) fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        let alone = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.crowd.clear();
        alone
    }
}
