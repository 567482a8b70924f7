//! Inodes that are asked for by their number alone, as file handles do.
//!
//! A name leads to a number that is in use. A number by itself may be free, or taken for a file that
//! is being made and is not in the cache yet: loaded then, there would be two inodes of one number.
//! So nothing is made while a number is looked at that is not in the cache.
//!
//! | state                         | protected by                                                  |
//! |-------------------------------|---------------------------------------------------------------|
//! | an inode from its number's allocation to its place in the cache | [`Making`], shared          |
//! | a number looked at by itself  | [`Making`], exclusive; taken before the cache's place for it  |
//!
//! Lock order: a thread that makes an inode takes [`Making`] last, and inside it waits for evictions
//! and the file system alone. A thread that has it exclusively waits for the same, and for one that
//! has an inode alone (I4), which takes no lock of `vfs`.

use crate::inode::Inode;
use crate::{Error, FileSystem, Ino, Result, Vfs};
use dentree_lockmeter::{Crowd, Seated};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        let alone = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.crowd.clear();
        alone
    }
}

impl<F: FileSystem> Vfs<F> {
    /// The inode with this number, whatever the number is: for clients that keep numbers while files
    /// come and go. They keep [`Attr::generation`](crate::Attr::generation) too, and compare it: a
    /// number is used again.
    ///
    /// Fails with [`Error::Stale`] where no inode with a name has the number.
    ///
    /// ```
    /// use dentree_vfs::{Error, Identity, MemoryFs, NewKind, Vfs};
    /// let vfs = Vfs::new(MemoryFs::default())?;
    /// let who = Identity::Superuser;
    /// let file = vfs.make(&who, vfs.root(), b"file", NewKind::Regular, 0o644)?.ino();
    /// assert_eq!(vfs.inode_by_handle(file)?.ino(), file);
    /// vfs.unlink(&who, vfs.root(), b"file")?;
    /// assert!(matches!(vfs.inode_by_handle(file), Err(Error::Stale)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn inode_by_handle(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        let found = match self.inodes.cached(ino) {
            Some(inode) => inode,
            None => {
                let _nothing_is_made = self.making.stop();
                let mut failed = None;
                let has_name = || {
                    self.fs().has_name(ino).unwrap_or_else(|error| {
                        failed = Some(error);
                        false
                    })
                };
                let found = self.inodes.get_named(ino, has_name);
                found.map_err(|error| failed.unwrap_or(error))?
            }
        };
        if found.is_removed() { Err(Error::Stale) } else { Ok(found) }
    }
}
