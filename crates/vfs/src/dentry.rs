//! Dentries of the name cache, filled from the file system.
//!
//! The file system looks names up with the directory's inode lock shared, while other threads
//! change other names (`names.rs`). The name cache rejects a result that a change of the same name
//! has overtaken. Lockless lookups are validated afterwards: a dentry that still has its name
//! stands for the inode with its number; one without is [`Error::Stale`], upon which [`Vfs::retry`]
//! starts over.
//!
//! A case-insensitive directory is cached under folded names, so that all spellings share one
//! dentry, and a change of a name updates one.

use crate::limits::{NAME_MAX, PATH_MAX};
use crate::{Access, DirEntry, Error, FileSystem, FileType, Identity, Ino, Inode, Result, Vfs};
use crate::{Lookup, ReaddirStart};
use dentree_dcache::{Child, DentryId, DentryRef, Fill, Handle, Kind, Seen};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A referenced dentry; its handle is the inode number.
pub(crate) type Dentry<'a> = DentryRef<'a, Ino>;

/// Maximum depth of a directory: the names that fit into a path.
const DEPTH_MAX: usize = PATH_MAX / 2;

/// Attempts at an operation that races with removals. Each retry means progress of another thread.
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
    /// Runs `what`, again while it fails with [`Error::Stale`].
    pub(crate) fn retry<T>(&self, mut what: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 1..RETRIES {
            match what() {
                Err(Error::Stale) => {}
                done => return done,
            }
        }
        what()
    }

    /// The dentry of `dir`; [`Error::NotFound`] if `dir` was removed. An inode keeps the id of its
    /// dentry. If that was evicted, the ancestors up to the nearest cached one are read and cached
    /// again.
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
        // Relaxed: no other data depends on the id; a stale one leads to no dentry.
        let id = DentryId::from_bits(dir.dentry.load(Ordering::Relaxed));
        self.names.get(id).filter(|entry| *entry.handle() == dir.ino() && entry.is_linked())
    }

    /// Whether a dentry still has its name, or is the root.
    pub(crate) fn is_current(&self, entry: &Dentry<'_>) -> bool {
        entry.is_linked() || *entry == self.names.root()
    }

    /// The name of the directory `child` in `dir`.
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

    /// The inode of a dentry; [`Error::Stale`] if the dentry has lost its name.
    pub(crate) fn inode_of(&self, entry: &Dentry<'_>) -> Result<Arc<Inode<F>>> {
        let inode = self.inodes.get_named(*entry.handle(), || self.is_current(entry));
        // The cached inode may reuse the number. That was free only after the name was gone, so
        // this check, after the lookup, sees it.
        let inode = if self.is_current(entry) { inode? } else { return Err(Error::Stale) };
        if inode.is_dir() {
            self.store_dentry(&inode, entry);
        }
        Ok(inode)
    }

    /// The inode of an unreferenced dentry; [`Error::Stale`] if the dentry has lost its name.
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

    /// The dentry of `name` in directory `dir`, if `caller` may search it.
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

    /// The dentry of `name` in directory `dir`. Concurrent misses call the file system once.
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

    /// As `fill`, with the inode lock of `dir` held and `entry` validated as its dentry. An inode
    /// for which `is_hidden` holds does not exist yet.
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
                        // Relaxed: an approximate count will do.
                        dir.negative_lookups.fetch_add(1, Ordering::Relaxed);
                        Fill::Negative { ttl: None }
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

    /// Stores a directory's dentry in its inode, and its search permission in the dentry.
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

    /// The dentry to update when the permissions of `dir` change; `None` if `dir` is not a
    /// directory or was removed. Looked up if the inode has none, as it may have been reloaded
    /// since the dentry was cached.
    pub(crate) fn dentry_to_update(&self, dir: &Inode<F>) -> Result<Option<Dentry<'_>>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        match self.retry(|| self.dentry(dir)) {
            Err(Error::NotFound) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Updates the search permission in the name cache. [`Inode::attr_lock`]
    pub(crate) fn update_search_permission(&self, dir: &Inode<F>, entry: Option<Dentry<'_>>) {
        if let Some(entry) = entry {
            self.names.set_search(&entry, dir.attr().all_may_search());
        }
    }

    /// The name cache's part of a lookup's result, with the type from the directory if it has it.
    fn child(&self, found: Lookup, still_linked: impl FnOnce() -> bool) -> Result<Child<Ino>> {
        let kind = match found.kind {
            Some(kind) => kind,
            None => self.inodes.get_named(found.ino, still_linked)?.kind(),
        };
        Ok(child(found.ino, kind))
    }
}

/// A name and its case-folded form.
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
            // Spellings with a folded form too long for the cache are cached one by one.
            Some(folded) if folded.len() <= NAME_MAX => folded,
            _ => self.name,
        }
    }

    /// The name to lock: the case-folded form.
    pub(crate) fn locked(&self) -> &[u8] {
        self.folded.as_deref().unwrap_or(self.name)
    }
}

/// The name cache's part of an inode. [`Vfs::store_dentry`] sets a directory's search permission.
pub(crate) fn child(ino: Ino, kind: FileType) -> Child<Ino> {
    match kind {
        FileType::Directory => Child { search: false, ..Child::directory(ino) },
        FileType::Symlink => Child::symlink(ino),
        _ => Child::other(ino),
    }
}
