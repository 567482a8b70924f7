//! Changing the names in a directory.
//!
//! # Who protects what
//! One name of a directory is changed with the directory's lock ([`Inode::names`]) shared and the name claimed (`claims.rs`), from the
//! check to the last step: what was checked is what is changed, and the name cache follows the file system in the order of the changes of
//! that name. So many make, link and unlink in one directory side by side, while others look up. Removing a directory and
//! renaming hold the lock exclusively. Who removes or links an inode holds that inode's lock too: its number of names is changed by one at
//! a time, and a directory that is removed gets no new entry.
//!
//! ```text
//! renaming                      while a directory may change its parent (`rename.rs`)
//! └─ names of directories       ancestors first, else by number; a directory before what it holds
//!    └─ side, then claim        of a directory that is shared, and of one name in it
//!       └─ names of other inodes   by number
//!          └─ rights            one inode's; nothing of `vfs` is taken inside
//! ```
//!
//! No circle can form: two directories, neither below the other, are locked together only by a rename between them,
//! and of those there is one at a time, as `renaming` is held; whoever else holds a directory asks only for what is in it, by number
//! where it is two. Who holds a claim asks for nothing of that directory. While the file system is asked for a missing name the directory is shared, and entries of ancestors are found
//! before anything is locked.
//!
//! # Guarantees
//! - **N1** When a change has returned, the name cache says what the file system says. Before that a walk sees the old
//!   state or the new one.
//! - **N2** An error has changed nothing.
//! - **N3** A name is taken from the cache before its inode can go, so a freed number has no name there. Where both are one step of the file
//!   system the inode is had alone (I4), and who is led to its number meanwhile waits until the name is gone.
//! - **N4** A new name is looked up only once its inode is in the cache: until then it is hidden from those who ask the file system.

use crate::dentry::{Dentry, Key, child};
use crate::inode::Life;
use crate::limits::NAME_MAX;
use crate::permissions::Touch;
use crate::{Access, Error, FileSystem, FileType, Identity, Inode, Mode, NewKind, Result, Vfs};
use std::sync::Arc;

impl<F: FileSystem> Vfs<F> {
    /// Makes an inode and gives it the name `name` in `dir`: `mkdir(2)`, `mknod(2)`, `symlink(2)`, `open(2)` with `O_CREAT` and
    /// `O_EXCL`. `mode` means nothing for a symbolic link. Where `dir` has a default ACL
    /// that is handed down, and the umask is not applied.
    ///
    /// Fails with [`Error::Exists`] where the name is there, [`Error::NotFound`] where `dir` was removed,
    /// [`Error::AccessDenied`] where `who` may not write `dir`, [`Error::NotPermitted`] for a device made by an ordinary user.
    ///
    /// ```
    /// use dentree_vfs::{Identity, MemoryFs, NewKind, Vfs};
    /// let vfs = Vfs::new(MemoryFs::default())?;
    /// let who = Identity::Superuser;
    /// let etc = vfs.make(&who, vfs.root(), b"etc", NewKind::Directory, 0o755)?;
    /// let hosts = vfs.make(&who, &etc, b"hosts", NewKind::Regular, 0o644)?;
    /// vfs.write(&who, &hosts, 0, b"127.0.0.1 localhost")?;
    /// assert_eq!(hosts.attr().size, 19);
    /// # Ok::<(), dentree_vfs::Error>(())
    /// ```
    pub fn make(
        &self,
        who: &Identity,
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
            let _names = dir.lock_for_change();
            let name_lock = self.name_locks.lock(dir.ino(), key.locked());
            match self.find_locked(who, &entry, dir, &key)? {
                Some(_) => Err(Error::Exists),
                None => {
                    name_lock.begin_creating();
                    self.make_locked(who, dir, &entry, &key, kind, mode)
                }
            }
        })
    }

    /// The inode that `dir` has under `name`, or else a new regular file of that name: `open(2)` with `O_CREAT`. Tells whether it
    /// is new. A symbolic link is answered as one.
    pub fn open_or_create(
        &self,
        who: &Identity,
        dir: &Arc<Inode<F>>,
        name: &[u8],
        mode: impl Into<Mode>,
    ) -> Result<(Arc<Inode<F>>, bool)> {
        check_name(name, Error::IsADirectory)?;
        let mode = mode.into();
        if let Some(found) = self.lookup(who, dir, name)? {
            return Ok((found, false));
        }
        self.retry(|| {
            let entry = self.dentry(dir)?;
            let key = self.key(dir, name);
            let _names = dir.lock_for_change();
            let name_lock = self.name_locks.lock(dir.ino(), key.locked());
            match self.find_locked(who, &entry, dir, &key)? {
                Some(found) => Ok((self.inode_of(&found)?, false)),
                None => {
                    name_lock.begin_creating();
                    let made = self.make_locked(who, dir, &entry, &key, NewKind::Regular, mode)?;
                    Ok((made, true))
                }
            }
        })
    }

    fn make_locked(
        &self,
        who: &Identity,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        kind: NewKind<'_>,
        mode: Mode,
    ) -> Result<Arc<Inode<F>>> {
        self.check_writable()?;
        self.check_add(who, dir)?;
        if who.is_bound() && matches!(kind, NewKind::CharDevice { .. } | NewKind::BlockDevice { .. }) {
            return Err(Error::NotPermitted);
        }
        if matches!(kind, NewKind::Symlink(target) if target.is_empty()) {
            return Err(Error::NotFound);
        }
        let making = self.making.begin();
        let node =
            self.with_inherited(who, dir, kind, mode, |new| self.fs().make(dir.node(), key.name(), new))?;
        let inode = self.inodes.adopt(node, Life::Named)?;
        drop(making);
        let made = self.names.create(entry, key.cached(), child(inode.ino(), inode.kind()));
        if inode.is_dir() {
            self.remember(&inode, &made);
            // Nothing is in it: names that come later are entered, so no miss has to be asked for.
            if self.fs().fold_name(inode.node(), b"").is_none() {
                self.names.begin_complete(&made).finish();
            }
        }
        Ok(inode)
    }

    /// Makes the empty directory `dir` ready for so many entries, as far as the file system can.
    ///
    /// Fails with [`Error::NotEmpty`] where it has some, [`Error::AccessDenied`] where `who` may not write it.
    pub fn expect_entries(&self, who: &Identity, dir: &Arc<Inode<F>>, entries: u64) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        let _names = dir.lock_exclusive();
        if dir.is_removed() {
            return Err(Error::NotFound);
        }
        self.check_writable()?;
        self.check_add(who, dir)?;
        self.fs().expect_entries(dir.node(), entries)
    }

    /// Makes a regular file without a name near `dir`: `open(2)` with `O_TMPFILE`. It goes with its last holder, unless it is
    /// [linked](Self::link) before.
    pub fn make_unnamed(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        mode: impl Into<Mode>,
    ) -> Result<Arc<Inode<F>>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check_writable()?;
        self.check_add(who, dir)?;
        self.make_without_name(who, dir, NewKind::Regular, mode.into())
    }

    pub(crate) fn make_without_name(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        kind: NewKind<'_>,
        mode: Mode,
    ) -> Result<Arc<Inode<F>>> {
        let _making = self.making.begin();
        let node =
            self.with_inherited(who, dir, kind, mode, |new| self.fs().make_unnamed(dir.node(), new))?;
        self.inodes.adopt(node, Life::Unnamed)
    }

    /// Gives `inode` the further name `name` in `dir`: `link(2)`.
    ///
    /// Fails with [`Error::NotPermitted`] for a directory, [`Error::NotFound`] where the inode has lost its last name,
    /// [`Error::Exists`] where the name is there, [`Error::TooManyLinks`] where the file system has no room for it.
    pub fn link(
        &self,
        who: &Identity,
        inode: &Arc<Inode<F>>,
        dir: &Arc<Inode<F>>,
        name: &[u8],
    ) -> Result<()> {
        check_name(name, Error::Exists)?;
        self.retry(|| {
            let entry = self.dentry(dir)?;
            let key = self.key(dir, name);
            let _names = dir.lock_for_change();
            let _name_lock = self.name_locks.lock(dir.ino(), key.locked());
            if self.find_locked(who, &entry, dir, &key)?.is_some() {
                return Err(Error::Exists);
            }
            self.check_writable()?;
            self.check_add(who, dir)?;
            self.check_flags(&inode.attr(), Touch::Change)?;
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

    /// Takes the name `name` from `dir`, which must not be a directory's: `unlink(2)`. Without any name left, the inode goes with its last
    /// holder: where nobody has it, at once.
    pub fn unlink(&self, who: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<()> {
        self.lock_to_unlink(dir, name, |entry, key| {
            let victim = self.victim(who, dir, entry, key, false)?;
            self.remove(dir, entry, key, victim)
        })
        .map(drop)
    }

    /// As [`unlink`](Self::unlink), and answers the inode that had the name, which lives on as long as it is held: for front doors whose
    /// clients may have inodes that nobody holds here.
    pub fn unlink_and_hold(&self, who: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<Arc<Inode<F>>> {
        self.lock_to_unlink(dir, name, |entry, key| {
            let victim = self.victim(who, dir, entry, key, false)?;
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
            let _names = dir.lock_for_change();
            let _name_lock = self.name_locks.lock(dir.ino(), key.locked());
            unlink(&entry, &key)
        })
    }

    /// Removes the empty directory that `dir` has under `name`: `rmdir(2)`. It goes as a file does that is [unlinked](Self::unlink).
    pub fn rmdir(&self, who: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<()> {
        self.lock_to_rmdir(dir, name, |entry, key| {
            let victim = self.victim(who, dir, entry, key, true)?;
            self.remove(dir, entry, key, victim)
        })
        .map(drop)
    }

    /// As [`rmdir`](Self::rmdir), and answers the directory: see [`unlink_and_hold`](Self::unlink_and_hold).
    pub fn rmdir_and_hold(&self, who: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<Arc<Inode<F>>> {
        self.lock_to_rmdir(dir, name, |entry, key| {
            let victim = self.victim(who, dir, entry, key, true)?;
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
            let _names = dir.lock_exclusive();
            rmdir(&entry, &key)
        })
    }

    /// What `dir` has under a name that `who` may take from it. [the lock of `dir` and a claim of the name, or that lock alone; as for the
    /// two below]
    fn victim(
        &self,
        who: &Identity,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        as_directory: bool,
    ) -> Result<Arc<Inode<F>>> {
        self.check_writable()?;
        let found = self.find_locked(who, entry, dir, key)?.ok_or(Error::NotFound)?;
        let victim = self.inode_of(&found)?;
        self.check_remove(who, dir, &victim, as_directory)?;
        Ok(victim)
    }

    /// Takes a name from its inode. Answers the inode if it lives on.
    fn remove(
        &self,
        dir: &Arc<Inode<F>>,
        entry: &Dentry<'_>,
        key: &Key<'_>,
        victim: Arc<Inode<F>>,
    ) -> Result<Option<Arc<Inode<F>>>> {
        // Others than the last name are taken where the inode is: it stays in the cache.
        let is_last = victim.is_dir() || victim.attr().nlink == 1;
        let taken = if is_last { self.inodes.take_exclusive(victim) } else { Err(victim) };
        let victim = match taken {
            Ok(alone) if self.fs().unlink_and_free(dir.node(), key.name(), alone.node())? => {
                self.names.unlink(entry, key.cached());
                self.inodes.drop_freed(alone);
                return Ok(None);
            }
            Ok(alone) => self.inodes.share(alone),
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

    /// Lets go of an inode that was unlinked if that was its last name. [names of `inode`]
    pub(crate) fn unhash_if_unlinked(&self, inode: &Arc<Inode<F>>) {
        if inode.kind() == FileType::Directory || inode.attr().nlink == 0 {
            self.inodes.unhash(inode);
        }
    }

    /// What `dir`, whose entry is `entry`, has under a name, if `who` may search it. [its lock, or that shared and a claim of the name]
    pub(crate) fn find_locked<'a>(
        &'a self,
        who: &Identity,
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
        self.check(who, dir, Access::SEARCH)?;
        self.fill_locked(entry, dir, key, |_| false)
    }
}

/// Whether `name` can be a name at all; `special` is what is wrong with `.` and `..`.
pub(crate) fn check_name(name: &[u8], special: Error) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(special),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}
