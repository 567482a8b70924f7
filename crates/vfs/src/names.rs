//! Changes of the names in a directory.
//!
//! # Who protects what
//! A change of one name holds the directory's inode lock ([`Inode::lock`]) shared and the name lock
//! (`name_lock.rs`), from the checks to the last step: the checked state is the changed one, and
//! the name cache is updated in order. `rmdir` and rename hold the inode lock exclusively. A change
//! that removes or links an inode also holds its lock: link counts change one at a time, and a
//! removed directory gets no new entry.
//!
//! ```text
//! renaming                      while a directory may change its parent (`rename.rs`)
//! └─ directories' inode locks   ancestors first, else by number; a directory before what it holds
//!    └─ group lock, name lock   of a directory that is locked shared, and of one name in it
//!       └─ other inode locks    by number
//!          └─ attribute lock    one inode's; no lock of `vfs` is taken inside
//! ```
//!
//! There is no deadlock. Only a rename between directories locks two of which neither is an
//! ancestor, and `renaming` admits one at a time. All others lock a directory and then inodes in
//! it, two by number. The holder of a name lock locks nothing else of that directory. Dentries of
//! ancestors are found before any lock.
//!
//! # Guarantees
//! - **N1** When a change returns, the name cache agrees with the file system. Before that, a walk
//!   sees the old state or the new one.
//! - **N2** A failed operation has changed nothing.
//! - **N3** A name is removed from the cache before its inode is freed: no name leads to a freed
//!   number. If the file system does both in one step, the inode is held exclusively (I4).
//! - **N4** A new name is visible once its inode is cached.

use crate::dentry::{Dentry, Key, child};
use crate::inode::Life;
use crate::limits::NAME_MAX;
use crate::permissions::ChangeKind;
use crate::{Access, Error, FileSystem, FileType, Identity, Inode, Mode, NewKind, Result, Vfs};
use std::sync::Arc;

impl<F: FileSystem> Vfs<F> {
    /// Creates an inode in `dir`: `mkdir(2)`, `mknod(2)`, `symlink(2)`, `open(2)` with `O_CREAT |
    /// O_EXCL`. A symbolic link ignores `mode`. A default ACL of `dir` replaces the umask.
    ///
    /// # Errors
    /// - [`Error::Exists`]: the name exists.
    /// - [`Error::NotFound`]: `dir` was removed.
    /// - [`Error::AccessDenied`]: `caller` may not write `dir`.
    /// - [`Error::NotPermitted`]: a device, and `caller` is not the superuser.
    ///
    /// ```
    /// use dentree_vfs::{Identity, MemoryFs, NewKind, Vfs};
    /// let vfs = Vfs::new(MemoryFs::default())?;
    /// let caller = Identity::Superuser;
    /// let etc = vfs.create(&caller, vfs.root(), b"etc", NewKind::Directory, 0o755)?;
    /// let hosts = vfs.create(&caller, &etc, b"hosts", NewKind::Regular, 0o644)?;
    /// vfs.write(&caller, &hosts, 0, b"127.0.0.1 localhost")?;
    /// assert_eq!(hosts.attr().size, 19);
    /// # Ok::<(), dentree_vfs::Error>(())
    /// ```
    pub fn create(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        name: &[u8],
        kind: NewKind<'_>,
        mode: impl Into<Mode>,
    ) -> Result<Arc<Inode<F>>> {
        check_name(name, Error::Exists)?;
        let mode = mode.into();
        self.retry(|| {
            let entry = self.dentry(dir)?;
            let key = self.key(dir, name);
            let _lock = dir.lock_for_change();
            let name_lock = self.name_locks.lock(dir.ino(), key.locked());
            match self.find_locked(caller, &entry, dir, &key)? {
                Some(_) => Err(Error::Exists),
                None => {
                    name_lock.begin_creating();
                    self.create_locked(caller, dir, &entry, &key, kind, mode)
                }
            }
        })
    }

    /// The inode of a name, or a new regular file (`O_CREAT`), and whether it is new. Does not
    /// follow a symbolic link.
    pub fn open_or_create(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        name: &[u8],
        mode: impl Into<Mode>,
    ) -> Result<(Arc<Inode<F>>, bool)> {
        check_name(name, Error::IsADirectory)?;
        let mode = mode.into();
        if let Some(found) = self.lookup(caller, dir, name)? {
            return Ok((found, false));
        }
        self.retry(|| {
            let entry = self.dentry(dir)?;
            let key = self.key(dir, name);
            let _lock = dir.lock_for_change();
            let name_lock = self.name_locks.lock(dir.ino(), key.locked());
            match self.find_locked(caller, &entry, dir, &key)? {
                Some(found) => Ok((self.inode_of(&found)?, false)),
                None => {
                    name_lock.begin_creating();
                    let made = self.create_locked(caller, dir, &entry, &key, NewKind::Regular, mode)?;
                    Ok((made, true))
                }
            }
        })
    }

    fn create_locked(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        kind: NewKind<'_>,
        mode: Mode,
    ) -> Result<Arc<Inode<F>>> {
        self.check_writable()?;
        self.check_add(caller, dir)?;
        if caller.is_bound() && matches!(kind, NewKind::CharDevice { .. } | NewKind::BlockDevice { .. }) {
            return Err(Error::NotPermitted);
        }
        if matches!(kind, NewKind::Symlink(target) if target.is_empty()) {
            return Err(Error::NotFound);
        }
        let creating = self.creation.begin();
        let node = self
            .with_inherited(caller, dir, kind, mode, |new| self.fs().create(dir.node(), key.name(), new))?;
        let inode = self.inodes.adopt(node, Life::Named)?;
        drop(creating);
        let made = self.names.create(entry, key.cached(), child(inode.ino(), inode.kind()));
        if inode.is_dir() {
            self.store_dentry(&inode, &made);
            // Complete: it is empty, and new names enter the cache.
            if self.fs().fold_name(inode.node(), b"").is_none() {
                self.names.begin_complete(&made).finish();
            }
        }
        Ok(inode)
    }

    /// Prepares an empty directory for so many entries.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], and [`Error::AccessDenied`]: `caller` may not write it.
    pub fn reserve_entries(&self, caller: &Identity, dir: &Arc<Inode<F>>, entries: u64) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        let _lock = dir.lock_exclusive();
        if dir.is_removed() {
            return Err(Error::NotFound);
        }
        self.check_writable()?;
        self.check_add(caller, dir)?;
        self.fs().reserve_entries(dir.node(), entries)
    }

    /// Creates a regular file without a name near `dir`: `O_TMPFILE`. Unless it is
    /// [linked](Self::link), its last reference frees it.
    pub fn create_unnamed(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        mode: impl Into<Mode>,
    ) -> Result<Arc<Inode<F>>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check_writable()?;
        self.check_add(caller, dir)?;
        self.make_without_name(caller, dir, NewKind::Regular, mode.into())
    }

    pub(crate) fn make_without_name(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        kind: NewKind<'_>,
        mode: Mode,
    ) -> Result<Arc<Inode<F>>> {
        let _creating = self.creation.begin();
        let node =
            self.with_inherited(caller, dir, kind, mode, |new| self.fs().create_unnamed(dir.node(), new))?;
        self.inodes.adopt(node, Life::Unnamed)
    }

    /// Creates a hard link to `inode` in `dir`: `link(2)`.
    ///
    /// # Errors
    /// - [`Error::NotPermitted`]: `inode` is a directory.
    /// - [`Error::NotFound`]: its last name was removed.
    /// - [`Error::Exists`]: the name exists.
    /// - [`Error::TooManyLinks`]: the file system's limit.
    pub fn link(
        &self,
        caller: &Identity,
        inode: &Arc<Inode<F>>,
        dir: &Arc<Inode<F>>,
        name: &[u8],
    ) -> Result<()> {
        check_name(name, Error::Exists)?;
        self.retry(|| {
            let entry = self.dentry(dir)?;
            let key = self.key(dir, name);
            let _lock = dir.lock_for_change();
            let _name_lock = self.name_locks.lock(dir.ino(), key.locked());
            if self.find_locked(caller, &entry, dir, &key)?.is_some() {
                return Err(Error::Exists);
            }
            self.check_writable()?;
            self.check_add(caller, dir)?;
            self.check_flags(&inode.attr(), ChangeKind::Any)?;
            if inode.is_dir() {
                return Err(Error::NotPermitted);
            }
            let _links = inode.lock_exclusive();
            if inode.is_removed() {
                return Err(Error::NotFound);
            }
            self.fs().link(dir.node(), name, inode.node())?;
            inode.set_life(Life::Named);
            self.names.create(&entry, key.cached(), child(inode.ino(), inode.kind()));
            Ok(())
        })
    }

    /// Removes a name, not of a directory: `unlink(2)`. An inode without names is freed with its
    /// last reference.
    pub fn unlink(&self, caller: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<()> {
        self.lock_to_unlink(dir, name, |entry, key| {
            let victim = self.victim(caller, dir, entry, key, false)?;
            self.remove(dir, entry, key, victim)
        })
        .map(drop)
    }

    /// As [`unlink`](Self::unlink), but returns the inode, for servers whose clients hold inodes.
    pub fn unlink_and_hold(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        name: &[u8],
    ) -> Result<Arc<Inode<F>>> {
        self.lock_to_unlink(dir, name, |entry, key| {
            let victim = self.victim(caller, dir, entry, key, false)?;
            self.remove_held(dir, entry, key, victim)
        })
    }

    fn lock_to_unlink<R>(
        &self,
        dir: &Arc<Inode<F>>,
        name: &[u8],
        unlink: impl Fn(&Dentry<'_>, &Key<'_>) -> Result<R>,
    ) -> Result<R> {
        check_name(name, Error::IsADirectory)?;
        self.retry(|| {
            let key = self.key(dir, name);
            let entry = self.dentry(dir)?;
            let _lock = dir.lock_for_change();
            let _name_lock = self.name_locks.lock(dir.ino(), key.locked());
            unlink(&entry, &key)
        })
    }

    /// Removes an empty directory: `rmdir(2)`.
    pub fn rmdir(&self, caller: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<()> {
        self.lock_to_rmdir(dir, name, |entry, key| {
            let victim = self.victim(caller, dir, entry, key, true)?;
            self.remove(dir, entry, key, victim)
        })
        .map(drop)
    }

    /// As [`unlink_and_hold`](Self::unlink_and_hold), for [`rmdir`](Self::rmdir).
    pub fn rmdir_and_hold(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        name: &[u8],
    ) -> Result<Arc<Inode<F>>> {
        self.lock_to_rmdir(dir, name, |entry, key| {
            let victim = self.victim(caller, dir, entry, key, true)?;
            self.remove_held(dir, entry, key, victim)
        })
    }

    fn lock_to_rmdir<R>(
        &self,
        dir: &Arc<Inode<F>>,
        name: &[u8],
        rmdir: impl Fn(&Dentry<'_>, &Key<'_>) -> Result<R>,
    ) -> Result<R> {
        check_name(name, if name == b".." { Error::NotEmpty } else { Error::Invalid })?;
        self.retry(|| {
            let key = self.key(dir, name);
            let entry = self.dentry(dir)?;
            let _lock = dir.lock_exclusive();
            rmdir(&entry, &key)
        })
    }

    /// The inode of a name that `caller` may remove. [inode lock of `dir` shared and the name lock,
    /// or the inode lock exclusive], also for `remove` and `remove_held`
    fn victim(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        as_directory: bool,
    ) -> Result<Arc<Inode<F>>> {
        self.check_writable()?;
        let found = self.find_locked(caller, entry, dir, key)?.ok_or(Error::NotFound)?;
        let victim = self.inode_of(&found)?;
        self.check_remove(caller, dir, &victim, as_directory)?;
        Ok(victim)
    }

    fn remove(
        &self,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        victim: Arc<Inode<F>>,
    ) -> Result<Option<Arc<Inode<F>>>> {
        // With other names, it stays in the cache.
        let is_last = victim.is_dir() || victim.attr().nlink == 1;
        let owned = if is_last { self.inodes.take_exclusive(victim) } else { Err(victim) };
        let victim = match owned {
            Ok(owned) if self.fs().unlink_and_free(dir.node(), key.name(), owned.node())? => {
                self.names.unlink(entry, key.cached());
                self.inodes.drop_freed(owned);
                return Ok(None);
            }
            Ok(owned) => self.inodes.share(owned),
            Err(held) => held,
        };
        self.remove_held(dir, entry, key, victim).map(Some)
    }

    fn remove_held(
        &self,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        victim: Arc<Inode<F>>,
    ) -> Result<Arc<Inode<F>>> {
        {
            let _links = victim.lock_exclusive();
            if victim.is_dir() {
                self.fs().rmdir(dir.node(), key.name(), victim.node())?;
            } else {
                self.fs().unlink(dir.node(), key.name(), victim.node())?;
            }
            self.names.unlink(entry, key.cached());
            self.unhash_if_unlinked(&victim);
        }
        Ok(victim)
    }

    /// [inode lock of `inode`]
    pub(crate) fn unhash_if_unlinked(&self, inode: &Arc<Inode<F>>) {
        if inode.kind() == FileType::Directory || inode.attr().nlink == 0 {
            self.inodes.unhash(inode);
        }
    }

    /// The dentry of a name, if `caller` may search `dir`. [inode lock of `dir` shared and the name
    /// lock, or the inode lock exclusive]
    pub(crate) fn find_locked<'a>(
        &'a self,
        caller: &Identity,
        entry: &Dentry<'a>,
        dir: &Inode<F>,
        key: &Key<'_>,
    ) -> Result<Option<Dentry<'a>>> {
        if dir.is_removed() {
            return Err(Error::NotFound);
        }
        if !self.is_current(entry) {
            return Err(Error::Stale);
        }
        self.check(caller, dir, Access::SEARCH)?;
        self.fill_locked(entry, dir, key, |_| false)
    }
}

/// `special`: the error for `.` and `..`.
pub(crate) fn check_name(name: &[u8], special: Error) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(special),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}
