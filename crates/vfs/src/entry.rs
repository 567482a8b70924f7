//! Names in the cache, filled from the file system.
//!
//! The file system is asked for names under the shared lock of the directory, while others change names beside (`names.rs`): an answer
//! that a change of the same name has overtaken is not entered, the name cache sees to that. What was found without a lock is checked afterwards: an entry that
//! still has its name stands for the inode whose number it carries, and one that has lost it is
//! [`Error::Stale`], upon which [`Vfs::retry`] begins again.
//!
//! A directory that ignores case is cached under folded names, so that there is one entry for all spellings: a directory below it
//! has one entry, and a change of a name has one entry to change.

use crate::limits::{NAME_MAX, PATH_MAX};
use crate::{Access, DirEntry, Error, FileSystem, FileType, Identity, Ino, Inode, Result, Vfs};
use crate::{Lookup, ReaddirStart};
use dentree_dcache::{Child, DentryId, DentryRef, Fill, Handle, Kind, Seen};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A held name: the inode behind it is its handle.
pub(crate) type Entry<'a> = DentryRef<'a, Ino>;

/// How deep a directory may lie below the root: as many names as fit a path.
const DEPTH_MAX: usize = PATH_MAX / 2;

/// How often something begins again because others were faster. Each time somebody else has got ahead.
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
    /// Does what may meet a name that is just being removed, again where it did.
    pub(crate) fn retry<T>(&self, mut what: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 1..RETRIES {
            match what() {
                Err(Error::Stale) => {}
                done => return done,
            }
        }
        what()
    }

    /// The entry that `dir` has in the name cache; [`Error::NotFound`] where it was removed.
    ///
    /// An inode remembers its entry. Where that was evicted, the way up to the nearest cached directory is asked
    /// of the file system and entered again.
    pub(crate) fn entry(&self, dir: &Inode<F>) -> Result<Entry<'_>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        if dir.is_removed() {
            return Err(Error::NotFound);
        }
        if let Some(entry) = self.remembered_entry(dir) {
            return Ok(entry);
        }
        let mut missing = vec![dir.ino()];
        let mut above = self.parent(dir)?;
        let mut entry = loop {
            if let Some(entry) = self.remembered_entry(&above) {
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

    /// The entry of `dir`, if it is still cached.
    pub(crate) fn remembered_entry(&self, dir: &Inode<F>) -> Option<Entry<'_>> {
        if dir.ino() == self.root().ino() {
            return Some(self.names.root());
        }
        // Relaxed: the id alone is the message; a stale one does not lead to an entry.
        let id = DentryId::from_bits(dir.entry.load(Ordering::Relaxed));
        self.names.get(id).filter(|entry| *entry.handle() == dir.ino() && entry.is_linked())
    }

    /// Whether an entry still has its name, or is the root's.
    pub(crate) fn is_current(&self, entry: &Entry<'_>) -> bool {
        entry.is_linked() || *entry == self.names.root()
    }

    /// The name that directory `dir` has for the directory `child`.
    fn name_in(&self, dir: &Inode<F>, child: Ino) -> Result<Vec<u8>> {
        let mut name = None;
        let _names = dir.share_to_list();
        self.fs().readdir(dir.node(), ReaddirStart::First, &mut |entry: DirEntry<'_>| {
            if entry.ino != child {
                return ControlFlow::Continue(());
            }
            name = Some(entry.name.to_vec());
            ControlFlow::Break(())
        })?;
        name.ok_or(Error::Stale)
    }

    /// The inode behind an entry; [`Error::Stale`] where the entry has lost its name.
    pub(crate) fn inode_of(&self, entry: &Entry<'_>) -> Result<Arc<Inode<F>>> {
        let inode = self.inodes.get_named(*entry.handle(), || self.is_current(entry));
        // A cached inode may be one that uses the number again. Its number was free only after the name was gone, and we
        // have met it after that: so we see that the name is gone.
        let inode = if self.is_current(entry) { inode? } else { return Err(Error::Stale) };
        if inode.is_dir() {
            self.remember(&inode, entry);
        }
        Ok(inode)
    }

    /// The inode behind an entry that a walk has seen; [`Error::Stale`] where the entry has lost its name.
    pub(crate) fn inode_seen(&self, seen: &Seen<Ino>) -> Result<Arc<Inode<F>>> {
        let is_current = || self.names.is_linked(seen.id);
        let inode = self.inodes.get_named(seen.handle, is_current);
        // As in `inode_of`.
        let inode = if is_current() { inode? } else { return Err(Error::Stale) };
        if inode.is_dir()
            && inode.entry.load(Ordering::Relaxed) != seen.id.to_bits()
            && let Some(entry) = self.names.get(seen.id)
        {
            self.remember(&inode, &entry);
        }
        Ok(inode)
    }

    /// What directory `dir` has under `name`, if `who` may search it.
    pub(crate) fn step(&self, who: &Identity, dir: &Entry<'_>, name: &[u8]) -> Result<Option<Entry<'_>>> {
        let inode = self.inode_of(dir)?;
        self.check(who, &inode, Access::SEARCH)?;
        self.fill(dir, &inode, name)
    }

    /// What directory `dir` has under `name`; the file system is asked once, however many miss it.
    fn fill(&self, entry: &Entry<'_>, dir: &Inode<F>, name: &[u8]) -> Result<Option<Entry<'_>>> {
        let found = {
            let _names = dir.share_names();
            if !self.is_current(entry) {
                return Err(Error::Stale);
            }
            let key = self.key(dir, name);
            let is_hidden = |_: &Lookup| self.name_locks.is_being_created(dir.ino(), key.locked());
            self.fill_locked(entry, dir, &key, is_hidden)?
        };
        if found.is_none() {
            self.complete_if_worth(entry, dir);
        }
        Ok(found)
    }

    /// As `fill`, with the lock of `dir` held and `entry` found to be its. An inode for which
    /// `is_hidden` holds is not there yet.
    pub(crate) fn fill_locked(
        &self,
        entry: &Entry<'_>,
        dir: &Inode<F>,
        key: &Key<'_>,
        is_hidden: impl Fn(&Lookup) -> bool,
    ) -> Result<Option<Entry<'_>>> {
        let look = || self.fs().lookup(dir.node(), key.name());
        let found = self.names.lookup_or_fill(entry, key.cached(), || {
            Ok(match look()? {
                Some(found) if is_hidden(&found) => Fill::NotCached(None),
                Some(found) => Fill::Positive(
                    self.child(found, || look().is_ok_and(|now| now == Some(found)) && !is_hidden(&found))?,
                ),
                None => {
                    // Relaxed: a few more or less do not matter.
                    dir.asked_in_vain.fetch_add(1, Ordering::Relaxed);
                    Fill::Negative { ttl: None }
                }
            })
        })?;
        if let Some(found) = found.as_ref().filter(|found| found.kind() == Kind::Directory) {
            self.remember(&*self.inode(*found.handle())?, found);
        }
        Ok(found)
    }

    /// What stands for `name` of `dir`.
    pub(crate) fn key<'n>(&self, dir: &Inode<F>, name: &'n [u8]) -> Key<'n> {
        Key { name, folded: self.fs().fold_name(dir.node(), name) }
    }

    /// Notes a directory's entry in its inode, and its permissions in the entry.
    pub(crate) fn remember(&self, dir: &Inode<F>, entry: &Entry<'_>) {
        let id = entry.id().to_bits();
        if dir.entry.load(Ordering::Relaxed) == id {
            return;
        }
        // A change of the permissions before this is seen here, and one after it finds the entry.
        let _rights = dir.rights.lock();
        dir.entry.store(id, Ordering::Relaxed);
        self.names.set_search(entry, dir.attr().all_may_search());
    }

    /// The entry that must hear of new permissions of `dir`; `None` for what is no directory, or was removed. Looked for where the
    /// inode does not remember one: it may be younger in its cache than the entry is in its own.
    pub(crate) fn entry_to_tell(&self, dir: &Inode<F>) -> Result<Option<Entry<'_>>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        match self.retry(|| self.entry(dir)) {
            Err(Error::NotFound) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Brings the permissions in the name cache up to date. [`Inode::rights`]
    pub(crate) fn tell_permissions(&self, dir: &Inode<F>, entry: Option<Entry<'_>>) {
        if let Some(entry) = entry {
            self.names.set_search(&entry, dir.attr().all_may_search());
        }
    }

    /// What the cache keeps of a directory's answer: the type from the directory where it says.
    fn child(&self, found: Lookup, still_there: impl FnOnce() -> bool) -> Result<Child<Ino>> {
        let kind = match found.kind {
            Some(kind) => kind,
            None => self.inodes.get_named(found.ino, still_there)?.kind(),
        };
        Ok(child(found.ino, kind))
    }
}

/// What stands for a name, however it is spelt.
pub(crate) struct Key<'n> {
    name: &'n [u8],
    folded: Option<Vec<u8>>,
}

impl Key<'_> {
    /// The name as it was spelt.
    pub(crate) fn name(&self) -> &[u8] {
        self.name
    }

    /// The name under which the cache keeps it.
    pub(crate) fn cached(&self) -> &[u8] {
        match &self.folded {
            // A form too long to be cached is not used: the spellings of such a name are then cached one by one.
            Some(folded) if folded.len() <= NAME_MAX => folded,
            _ => self.name,
        }
    }

    /// The form of the name that is locked: the case-folded one.
    pub(crate) fn locked(&self) -> &[u8] {
        self.folded.as_deref().unwrap_or(self.name)
    }
}

/// What the cache keeps of an inode. Whether everybody may search a directory is told when that is certain.
pub(crate) fn child(ino: Ino, kind: FileType) -> Child<Ino> {
    match kind {
        FileType::Directory => Child { search: false, ..Child::directory(ino) },
        FileType::Symlink => Child::symlink(ino),
        _ => Child::other(ino),
    }
}
