//! Dentries of the name cache, filled from the file system.
//!
//! Lookups in the file system hold the directory's inode lock shared, as changes of names do
//! (`names.rs`). The name cache rejects a result that a change of the name has overtaken. Lockless
//! lookups are validated afterwards: a dentry without its name is [`Error::Stale`], and
//! [`Vfs::retry`] starts over.
//!
//! A case-insensitive directory is cached under folded names.

use crate::limits::{NAME_MAX, PATH_MAX};
use crate::{Access, DirEntry, Error, FileSystem, FileType, Identity, Ino, Inode, Result, Vfs};
use crate::{Lookup, ReaddirStart};
use dentree_dcache::{Child, DentryId, DentryRef, Fill, Handle, Kind, Seen};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Its handle is the inode number.
pub(crate) type Dentry<'a> = DentryRef<'a, Ino>;

/// Names that fit into a path.
const DEPTH_MAX: usize = PATH_MAX / 2;

/// Each retry is another thread's progress.
const RETRIES: usize = 64;

impl Handle for Ino {
    #[inline]
    fn to_word(&self) -> Option<u64> {
        Some(self.0)
    }

    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        Some(Ino(word))
    }
}

impl<F: FileSystem> Vfs<F> {
    /// While it fails with [`Error::Stale`].
    pub(crate) fn retry<T>(&self, mut what: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 1..RETRIES {
            match what() {
                Err(Error::Stale) => {}
                done => return done,
            }
        }
        what()
    }

    /// [`Error::NotFound`]: `dir` was removed. After an eviction, ancestors up to a cached one are
    /// read.
    pub(crate) fn dentry(&self, dir: &Inode<F>) -> Result<Dentry<'_>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        if dir.is_removed() {
            return Err(Error::NotFound);
        }
        if let Some(entry) = self.cached_dentry(dir) {
            return Ok(entry);
        }
        let mut missing = vec![dir.ino()];
        let mut above = self.parent(dir)?;
        let mut entry = loop {
            if let Some(entry) = self.cached_dentry(&above) {
                break entry;
            }
            if missing.len() == DEPTH_MAX {
                return Err(Error::Loop);
            }
            missing.push(above.ino());
            above = self.parent(&above)?;
        };
        while let Some(child) = missing.pop() {
            let dir = self.inode_of(&entry)?;
            let name = self.name_in(&dir, child)?;
            entry = self
                .fill(&entry, &dir, &name)?
                .filter(|entry| *entry.handle() == child)
                .ok_or(Error::Stale)?;
        }
        Ok(entry)
    }

    pub(crate) fn cached_dentry(&self, dir: &Inode<F>) -> Option<Dentry<'_>> {
        if dir.ino() == self.root().ino() {
            return Some(self.names.root());
        }
        // Relaxed: a stale id has no dentry.
        let id = DentryId::from_bits(dir.dentry.load(Ordering::Relaxed));
        self.names.get(id).filter(|entry| *entry.handle() == dir.ino() && entry.is_linked())
    }

    /// It has its name, or is the root.
    pub(crate) fn is_current(&self, entry: &Dentry<'_>) -> bool {
        entry.is_linked() || *entry == self.names.root()
    }

    /// The name of directory `child`.
    fn name_in(&self, dir: &Inode<F>, child: Ino) -> Result<Vec<u8>> {
        let mut name = None;
        let _names = dir.lock_for_listing();
        self.fs().readdir(dir.node(), ReaddirStart::First, &mut |entry: DirEntry<'_>| {
            if entry.ino != child {
                return ControlFlow::Continue(());
            }
            name = Some(entry.name.to_vec());
            ControlFlow::Break(())
        })?;
        name.ok_or(Error::Stale)
    }

    /// [`Error::Stale`]: the dentry has lost its name.
    pub(crate) fn inode_of(&self, entry: &Dentry<'_>) -> Result<Arc<Inode<F>>> {
        let inode = self.inodes.get_named(*entry.handle(), || self.is_current(entry));
        // A reused number was freed after the name was gone: this later check sees that.
        let inode = if self.is_current(entry) { inode? } else { return Err(Error::Stale) };
        if inode.is_dir() {
            self.store_dentry(&inode, entry);
        }
        Ok(inode)
    }

    /// As `inode_of`, for an unreferenced dentry.
    pub(crate) fn inode_seen(&self, seen: &Seen<Ino>) -> Result<Arc<Inode<F>>> {
        let is_current = || self.names.is_linked(seen.id);
        let inode = self.inodes.get_named(seen.handle, is_current);
        // As in `inode_of`.
        let inode = if is_current() { inode? } else { return Err(Error::Stale) };
        if inode.is_dir()
            && inode.dentry.load(Ordering::Relaxed) != seen.id.to_bits()
            && let Some(entry) = self.names.get(seen.id)
        {
            self.store_dentry(&inode, &entry);
        }
        Ok(inode)
    }

    /// If `caller` may search `dir`.
    pub(crate) fn step(
        &self,
        caller: &Identity,
        dir: &Dentry<'_>,
        name: &[u8],
    ) -> Result<Option<Dentry<'_>>> {
        let inode = self.inode_of(dir)?;
        self.check(caller, &inode, Access::SEARCH)?;
        self.fill(dir, &inode, name)
    }

    /// Concurrent misses call the file system once.
    fn fill(&self, entry: &Dentry<'_>, dir: &Inode<F>, name: &[u8]) -> Result<Option<Dentry<'_>>> {
        let found = {
            let _names = dir.lock_shared();
            if !self.is_current(entry) {
                return Err(Error::Stale);
            }
            let key = self.key(dir, name);
            let is_hidden = |_: &Lookup| self.name_locks.is_being_created(dir.ino(), key.locked());
            self.fill_locked(entry, dir, &key, is_hidden)?
        };
        if found.is_none() {
            self.complete_if_worthwhile(entry, dir);
        }
        Ok(found)
    }

    /// As `fill`, with the inode lock of `dir` held. Inodes that are hidden do not exist yet.
    pub(crate) fn fill_locked(
        &self,
        entry: &Dentry<'_>,
        dir: &Inode<F>,
        key: &Key<'_>,
        is_hidden: impl Fn(&Lookup) -> bool,
    ) -> Result<Option<Dentry<'_>>> {
        let lookup = || self.fs().lookup(dir.node(), key.name());
        let found =
            self.names.lookup_or_fill(entry, key.cached(), || {
                Ok(match lookup()? {
                    Some(found) if is_hidden(&found) => Fill::NotCached(None),
                    Some(found) => Fill::Positive(self.child(found, || {
                        lookup().is_ok_and(|now| now == Some(found)) && !is_hidden(&found)
                    })?),
                    None => {
                        // Relaxed: approximate.
                        dir.negative_lookups.fetch_add(1, Ordering::Relaxed);
                        Fill::Negative
                    }
                })
            })?;
        if let Some(found) = found.as_ref().filter(|found| found.kind() == Kind::Directory) {
            self.store_dentry(&*self.inode(*found.handle())?, found);
        }
        Ok(found)
    }

    pub(crate) fn key<'n>(&self, dir: &Inode<F>, name: &'n [u8]) -> Key<'n> {
        Key { name, folded: self.fs().fold_name(dir.node(), name) }
    }

    /// Stores id and search permission.
    pub(crate) fn store_dentry(&self, dir: &Inode<F>, entry: &Dentry<'_>) {
        let id = entry.id().to_bits();
        if dir.dentry.load(Ordering::Relaxed) == id {
            return;
        }
        // An earlier change of permissions is visible here; a later one finds the dentry.
        let _attr_lock = dir.attr_lock.lock();
        dir.dentry.store(id, Ordering::Relaxed);
        self.names.set_search(entry, dir.attr().all_may_search());
    }

    /// `None`: not a directory, or removed. A reloaded inode has no dentry stored.
    pub(crate) fn dentry_to_update(&self, dir: &Inode<F>) -> Result<Option<Dentry<'_>>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        match self.retry(|| self.dentry(dir)) {
            Err(Error::NotFound) => Ok(None),
            found => found.map(Some),
        }
    }

    /// [`Inode::attr_lock`]
    pub(crate) fn update_search_permission(&self, dir: &Inode<F>, entry: Option<Dentry<'_>>) {
        if let Some(entry) = entry {
            self.names.set_search(&entry, dir.attr().all_may_search());
        }
    }

    /// Uses the type from the directory if it has it.
    fn child(&self, found: Lookup, still_linked: impl FnOnce() -> bool) -> Result<Child<Ino>> {
        let kind = match found.kind {
            Some(kind) => kind,
            None => self.inodes.get_named(found.ino, still_linked)?.kind(),
        };
        Ok(child(found.ino, kind))
    }
}

/// A name and its folded form.
pub(crate) struct Key<'n> {
    name: &'n [u8],
    folded: Option<Vec<u8>>,
}

impl Key<'_> {
    pub(crate) fn name(&self) -> &[u8] {
        self.name
    }

    /// The name in the cache.
    pub(crate) fn cached(&self) -> &[u8] {
        match &self.folded {
            // Too long: spellings are cached one by one.
            Some(folded) if folded.len() <= NAME_MAX => folded,
            _ => self.name,
        }
    }

    /// The name to lock.
    pub(crate) fn locked(&self) -> &[u8] {
        self.folded.as_deref().unwrap_or(self.name)
    }
}

/// [`Vfs::store_dentry`] sets search permission.
pub(crate) fn child(ino: Ino, kind: FileType) -> Child<Ino> {
    match kind {
        FileType::Directory => Child { search: false, ..Child::directory(ino) },
        FileType::Symlink => Child::symlink(ino),
        _ => Child::other(ino),
    }
}
