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

use dentree_sync::lockstat::Class;
use dentree_sync::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};

/// Shared by threads that make inodes, each writing a cache line of its own.
pub(crate) struct Making(BiasedRwLock);

impl Making {
    pub(crate) fn new() -> Making {
        Making(BiasedRwLock::new(Class::named("inodes being made")))
    }

    /// An inode is being made while the guard lives.
    pub(crate) fn begin(&self) -> BiasedReadGuard<'_> {
        self.0.read()
    }

    /// Waits until nothing is being made, and keeps it so.
    pub(crate) fn stop(&self) -> BiasedWriteGuard<'_> {
        self.0.write()
    }
}
