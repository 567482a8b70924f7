//! Rename. Locks and guarantees are those of `names.rs`.
//!
//! Between two directories it holds [`Vfs::renaming`] (kernel: `s_vfs_rename_mutex`): no directory
//! changes its parent meanwhile, so a dentry's ancestors are stable.

use crate::dentry::{Dentry, child};
use crate::inode::Life;
use crate::names::check_name;
use crate::{Access, Error, FileSystem, Identity, Inode, NameIn, NewKind, OnExisting, Rename, Result, Vfs};
use dentree_sync::RwLockWriteGuard;
use std::sync::Arc;

/// One end of a rename.
struct End<'a, F: FileSystem> {
    dir: &'a Arc<Inode<F>>,
    entry: Dentry<'a>,
    name: &'a [u8],
}

impl<F: FileSystem> Vfs<F> {
    /// Renames an inode: `renameat2(2)`. Returns the replaced inode. Two names of one inode stay.
    ///
    /// # Errors
    /// - [`Error::NotFound`]: the old name does not exist.
    /// - [`Error::Exists`]: see [`OnExisting`].
    /// - [`Error::Invalid`]: a directory would become its own descendant.
    /// - [`Error::NotEmpty`]: the replaced directory has entries.
    /// - [`Error::IsADirectory`], [`Error::NotADirectory`]: only one of the two is a directory.
    ///
    /// ```
    /// use dentree_vfs::{Identity, MemoryFs, NewKind, OnExisting, Vfs};
    /// let vfs = Vfs::new(MemoryFs::default())?;
    /// let (caller, root) = (Identity::Superuser, vfs.root().clone());
    /// vfs.create(&caller, &root, b"a", NewKind::Regular, 0o644)?;
    /// let b = vfs.create(&caller, &root, b"b", NewKind::Regular, 0o644)?;
    /// let replaced = vfs.rename(&caller, &root, b"a", &root, b"b", OnExisting::Replace)?;
    /// assert_eq!(replaced.unwrap().ino(), b.ino());
    /// assert!(vfs.lookup(&caller, &root, b"a")?.is_none());
    /// # Ok::<(), dentree_vfs::Error>(())
    /// ```
    pub fn rename(
        &self,
        caller: &Identity,
        old_dir: &Arc<Inode<F>>,
        old: &[u8],
        new_dir: &Arc<Inode<F>>,
        new: &[u8],
        on_existing: OnExisting,
    ) -> Result<Option<Arc<Inode<F>>>> {
        self.rename_and_leave(caller, (old_dir, old), (new_dir, new), on_existing, false)
    }

    /// As [`rename`](Self::rename), and leaves a whiteout (`RENAME_WHITEOUT`): a character device
    /// 0/0, by which an overlay hides a lower file. Excludes [`OnExisting::Exchange`]:
    /// [`Error::Invalid`].
    pub fn rename_leaving_whiteout(
        &self,
        caller: &Identity,
        old_dir: &Arc<Inode<F>>,
        old: &[u8],
        new_dir: &Arc<Inode<F>>,
        new: &[u8],
        on_existing: OnExisting,
    ) -> Result<Option<Arc<Inode<F>>>> {
        match on_existing {
            OnExisting::Exchange => Err(Error::Invalid),
            _ => self.rename_and_leave(caller, (old_dir, old), (new_dir, new), on_existing, true),
        }
    }

    fn rename_and_leave(
        &self,
        caller: &Identity,
        (old_dir, old): (&Arc<Inode<F>>, &[u8]),
        (new_dir, new): (&Arc<Inode<F>>, &[u8]),
        on_existing: OnExisting,
        leaves_whiteout: bool,
    ) -> Result<Option<Arc<Inode<F>>>> {
        check_name(old, Error::Busy)?;
        check_name(new, if on_existing == OnExisting::Fail { Error::Exists } else { Error::Busy })?;
        self.retry(|| {
            self.check_writable()?;
            let from = End { dir: old_dir, entry: self.dentry(old_dir)?, name: old };
            let to = End { dir: new_dir, entry: self.dentry(new_dir)?, name: new };
            let _renaming = (old_dir.ino() != new_dir.ino()).then(|| self.renaming.lock());
            let _dirs = self.lock_both(&from, &to);
            self.rename_locked(caller, &from, &to, on_existing, leaves_whiteout)
        })
    }

    fn rename_locked(
        &self,
        caller: &Identity,
        from: &End<'_, F>,
        to: &End<'_, F>,
        on_existing: OnExisting,
        leaves_whiteout: bool,
    ) -> Result<Option<Arc<Inode<F>>>> {
        let exchange = on_existing == OnExisting::Exchange;
        self.check(caller, to.dir, Access::SEARCH)?;
        let (old_key, new_key) = (self.key(from.dir, from.name), self.key(to.dir, to.name));
        let old = self.find_locked(caller, &from.entry, from.dir, &old_key)?.ok_or(Error::NotFound)?;
        let new = self.find_locked(caller, &to.entry, to.dir, &new_key)?;
        match (&new, on_existing) {
            (Some(_), OnExisting::Fail) => return Err(Error::Exists),
            (None, OnExisting::Exchange) => return Err(Error::NotFound),
            _ => {}
        }
        if self.is_ancestor(&old, &to.entry) {
            return Err(Error::Invalid);
        }
        if new.as_ref().is_some_and(|new| self.is_ancestor(new, &from.entry)) {
            return Err(if exchange { Error::Invalid } else { Error::NotEmpty });
        }
        let moved = self.inode_of(&old)?;
        let replaced = new.as_ref().map(|new| self.inode_of(new)).transpose()?;
        if replaced.as_ref().is_some_and(|replaced| replaced.ino() == moved.ino()) {
            return Ok(None);
        }
        self.check_rename(caller, from, to, &moved, replaced.as_deref(), exchange)?;

        let left = leaves_whiteout.then(|| self.make_whiteout(caller, from.dir)).transpose()?;
        let _ends = lock_ends(from.dir.ino() != to.dir.ino(), exchange, &moved, replaced.as_ref());
        self.fs().rename(&Rename {
            from: NameIn { dir: from.dir.node(), name: from.name },
            moved: moved.node(),
            to: NameIn { dir: to.dir.node(), name: to.name },
            replaced: replaced.as_ref().map(|replaced| replaced.node()),
            exchange,
            left: left.as_ref().map(|left| left.node()),
        })?;
        if exchange {
            self.names.exchange(&from.entry, old_key.cached(), &to.entry, new_key.cached());
            return Ok(None);
        }
        let (old_name, new_name) = (old_key.cached(), new_key.cached());
        match &left {
            None => self.names.rename(&from.entry, old_name, &to.entry, new_name),
            Some(left) => {
                left.set_life(Life::Named);
                let left = child(left.ino(), left.kind());
                self.names.rename_leaving(&from.entry, old_name, &to.entry, new_name, left);
            }
        }
        if let Some(replaced) = &replaced {
            self.unhash_if_unlinked(replaced);
        }
        drop(_ends);
        Ok(replaced)
    }

    /// Without a name: dropped after a failed rename, it is freed.
    fn make_whiteout(&self, caller: &Identity, dir: &Inode<F>) -> Result<Arc<Inode<F>>> {
        let kind = NewKind::CharDevice { major: 0, minor: 0 };
        self.make_without_name(caller, dir, kind, 0.into())
    }

    fn check_rename(
        &self,
        caller: &Identity,
        from: &End<'_, F>,
        to: &End<'_, F>,
        moved: &Inode<F>,
        replaced: Option<&Inode<F>>,
        exchange: bool,
    ) -> Result<()> {
        self.check_remove(caller, from.dir, moved, moved.is_dir())?;
        match replaced {
            None => self.check_add(caller, to.dir)?,
            Some(replaced) => {
                let kind = if exchange { replaced } else { moved };
                self.check_remove(caller, to.dir, replaced, kind.is_dir())?;
            }
        }
        // Its `..` changes.
        if from.dir.ino() != to.dir.ino() {
            for dir in
                [Some(moved), replaced.filter(|_| exchange)].into_iter().flatten().filter(|end| end.is_dir())
            {
                self.check(caller, dir, Access::WRITE)?;
            }
        }
        Ok(())
    }

    /// Or equal. [renaming, or both in one directory]
    fn is_ancestor(&self, entry: &Dentry<'_>, other: &Dentry<'_>) -> bool {
        let root = self.names.root();
        let mut at = other.clone();
        while at != *entry && at != root {
            at = at.parent();
        }
        at == *entry
    }

    fn lock_both<'a>(&self, from: &End<'a, F>, to: &End<'a, F>) -> Vec<RwLockWriteGuard<'a, ()>> {
        let (a, b) = (from.dir, to.dir);
        if a.ino() == b.ino() {
            return vec![a.lock_exclusive()];
        }
        let b_first = !self.is_ancestor(&from.entry, &to.entry)
            && (self.is_ancestor(&to.entry, &from.entry) || b.ino() < a.ino());
        let (first, second) = if b_first { (b, a) } else { (a, b) };
        vec![first.lock_exclusive(), second.lock_exclusive()]
    }
}

/// Locks inodes whose link count or parent changes.
fn lock_ends<'a, F: FileSystem>(
    changes_parent: bool,
    exchange: bool,
    moved: &'a Arc<Inode<F>>,
    replaced: Option<&'a Arc<Inode<F>>>,
) -> Vec<RwLockWriteGuard<'a, ()>> {
    let moved = Some(moved).filter(|moved| changes_parent && moved.is_dir());
    let replaced = replaced.filter(|replaced| !exchange || changes_parent && replaced.is_dir());
    let mut ends: Vec<_> = moved.into_iter().chain(replaced).collect();
    ends.sort_by_key(|inode| (!inode.is_dir(), inode.ino()));
    ends.into_iter().map(|inode| inode.lock_exclusive()).collect()
}
