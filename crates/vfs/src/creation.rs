//! Excludes the creation of inodes while an inode is loaded by number.
//!
//! A name leads to a number in use. A number from a file handle may be free, or allocated to a file
//! that is being created and not cached yet: to load it would make two inodes of one number. So no
//! inode is created while a number without a name is looked up and not cached.
//!
//! | state                                                      | protected by            |
//! |------------------------------------------------------------|-------------------------|
//! | an inode, from allocation of its number until it is cached | [`Creation`], shared    |
//! | a number that is loaded without a name                     | [`Creation`], exclusive |
//!
//! The exclusive lock is taken before the inode cache's placeholder for the number.
//!
//! Lock order: a thread takes [`Creation`] last, and waits under it for evictions and the file
//! system only. An exclusive holder waits for these, and for a thread that owns an inode
//! exclusively (I4), which takes no lock of `vfs`.

use dentree_sync::lockstat::Class;
use dentree_sync::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};

/// Shared in biased mode, in which each thread writes its own cache line.
pub(crate) struct Creation(BiasedRwLock);

impl Creation {
    pub(crate) fn new() -> Creation {
        Creation(BiasedRwLock::new(Class::named("creations of inodes")))
    }

    pub(crate) fn begin(&self) -> BiasedReadGuard<'_> {
        self.0.read()
    }

    /// Waits for the end of creations and blocks new ones.
    pub(crate) fn stop(&self) -> BiasedWriteGuard<'_> {
        self.0.write()
    }
}
