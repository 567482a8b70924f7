//! Inodes by number, for file handles (kernel: exportfs). See `creation.rs`.

use crate::inode::Inode;
use crate::{Error, FileSystem, Ino, Result, Vfs};
use std::sync::Arc;

impl<F: FileSystem> Vfs<F> {
    /// The inode with this number, for clients that store numbers. They compare
    /// [`Attr::generation`](crate::Attr::generation), because numbers are reused.
    /// [`Error::Stale`]: no inode with a name has the number.
    ///
    /// ```
    /// use dentree_vfs::{Error, Identity, MemoryFs, NewKind, Vfs};
    /// let vfs = Vfs::new(MemoryFs::default())?;
    /// let caller = Identity::Superuser;
    /// let file = vfs.create(&caller, vfs.root(), b"file", NewKind::Regular, 0o644)?.ino();
    /// assert_eq!(vfs.inode_by_handle(file)?.ino(), file);
    /// vfs.unlink(&caller, vfs.root(), b"file")?;
    /// assert!(matches!(vfs.inode_by_handle(file), Err(Error::Stale)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn inode_by_handle(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        let found = match self.inodes.cached(ino) {
            Some(inode) => inode,
            None => {
                let _no_creation = self.creation.stop();
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
