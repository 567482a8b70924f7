//! Excludes creations while an inode is loaded by number.
//!
//! A number from a file handle may be free, or allocated to a file that is not cached yet: to load
//! it would make two inodes of one number.
//!
//! | state                                                      | protected by            |
//! |------------------------------------------------------------|-------------------------|
//! | an inode, from allocation of its number until it is cached | [`Creation`], shared    |
//! | a number that is loaded without a name                     | [`Creation`], exclusive |
//!
//! Lock order: last, but before the inode cache's placeholder. A holder waits only for the file
//! system, evictions, and owners of an inode (I4), which take no lock of `vfs`.

use dentree_sync::lockstat::{Class, NamedReadGuard, NamedRwLock, NamedWriteGuard};

pub(crate) struct Creation(NamedRwLock<()>);

impl Creation {
    pub(crate) fn new() -> Creation {
        Creation(NamedRwLock::new(Class::named("inode creation"), ()))
    }

    pub(crate) fn begin(&self) -> NamedReadGuard<'_, ()> {
        self.0.read()
    }

    /// Waits for creations and blocks new ones.
    pub(crate) fn stop(&self) -> NamedWriteGuard<'_, ()> {
        self.0.write()
    }
}
