//! Excludes the creation of inodes while an inode is loaded by number.
//!
//! A name leads to a number that is in use. A number from a file handle may be free, or allocated
//! to a file that is being created and is not cached yet: loading it would make two inodes of one
//! number. So no inode is created while such a number is looked up and is not cached.
//!
//! | state                                                      | protected by            |
//! |------------------------------------------------------------|-------------------------|
//! | an inode, from allocation of its number until it is cached | [`Creation`], shared    |
//! | a number that is loaded without a name                     | [`Creation`], exclusive |
//!
//! The exclusive lock is taken before the inode cache's placeholder for the number.
//!
//! Lock order: a thread that creates an inode takes [`Creation`] last; while it holds it, it waits
//! for evictions and the file system only. An exclusive holder waits for these, and for a thread
//! that owns an inode exclusively (I4), which takes no lock of `vfs`.

use dentree_lockmeter::{Crowd, Seated};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of creations: shared in biased mode, in which each thread writes its own cache line.
#[derive(Default)]
pub(crate) struct Creation {
    lock: RwLock<()>,
    bias: ReaderBias,
}

/// Guard of a creation.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum CreationGuard<'a> {
    Biased(BiasedReader<'a>),
    Locked(RwLockReadGuard<'a, ()>),
}

impl Creation {
    pub(crate) fn begin(&self) -> CreationGuard<'_> {
        if let Some(seat) = self.bias.try_read() {
            return CreationGuard::Seated(seat);
        }
        let shared = self.lock.read();
        self.bias.note_slow_read();
        CreationGuard::Locked(shared)
    }

    /// Waits for the end of all creations, and blocks new ones.
    pub(crate) fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        let alone = self.lock.write();
        self.bias.revoke();
        alone
    }
}
