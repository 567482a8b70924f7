//! Names in the cache, filled from the file system.

use crate::{Access, Attr, DirEntry, Error, FileSystem, FileType, Identity, Ino, Inode, Result, Vfs};
use crate::{Lookup, ReaddirStart};
use dentree_dcache::{Child, DentryId, DentryRef, Fill};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A held name: the inode behind it is its handle.
pub(crate) type Entry<'a> = DentryRef<'a, Ino>;

/// How deep a directory may lie below the root: as many names as fit a path.
const DEPTH_MAX: usize = crate::PATH_MAX / 2;

impl<F: FileSystem> Vfs<F> {
    /// The entry that `dir` has in the name cache.
    ///
    /// An inode remembers its entry. Where that was evicted, the way up to the nearest cached directory is asked
    /// of the file system and entered again.
    pub(crate) fn entry(&self, dir: &Inode<F>) -> Result<Entry<'_>> {
        let mut missing = Vec::new();
        let mut above = None::<Arc<Inode<F>>>;
        let mut entry = loop {
            let dir = above.as_deref().unwrap_or(dir);
            if let Some(entry) = self.remembered_entry(dir) {
                break entry;
            }
            if missing.len() == DEPTH_MAX {
                return Err(Error::Loop);
            }
            missing.push(dir.ino());
            above = Some(self.inode(self.fs().parent(dir.node())?)?);
        };
        while let Some(child) = missing.pop() {
            let name = self.name_in(&*self.inode(*entry.handle())?, child)?;
            entry = self.fill(&entry, &name)?.filter(|entry| *entry.handle() == child).ok_or(Error::Stale)?;
            self.inode_of(&entry)?;
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

    /// The name that directory `dir` has for the directory `child`.
    fn name_in(&self, dir: &Inode<F>, child: Ino) -> Result<Vec<u8>> {
        let mut name = None;
        self.fs().readdir(dir.node(), ReaddirStart::First, &mut |entry: DirEntry<'_>| {
            if entry.ino != child {
                return ControlFlow::Continue(());
            }
            name = Some(entry.name.to_vec());
            ControlFlow::Break(())
        })?;
        name.ok_or(Error::Stale)
    }

    /// The inode behind an entry, which remembers it.
    pub(crate) fn inode_of(&self, entry: &Entry<'_>) -> Result<Arc<Inode<F>>> {
        let inode = self.inode(*entry.handle())?;
        if inode.attr().is_dir() {
            inode.entry.store(entry.id().to_bits(), Ordering::Relaxed);
        }
        Ok(inode)
    }

    /// What directory `dir` has under `name`, if `who` may search it.
    pub(crate) fn step(&self, who: &Identity, dir: &Entry<'_>, name: &[u8]) -> Result<Option<Entry<'_>>> {
        self.check(who, &*self.inode(*dir.handle())?, Access::SEARCH)?;
        self.fill(dir, name)
    }

    /// What directory `dir` has under `name`; the file system is asked once, however many miss it.
    fn fill(&self, dir: &Entry<'_>, name: &[u8]) -> Result<Option<Entry<'_>>> {
        self.names.lookup_or_fill(dir, name, || {
            let dir = self.inode(*dir.handle())?;
            Ok(match self.fs().lookup(dir.node(), name)? {
                Some(found) => Fill::Positive(self.child(found)?),
                None if self.fs().folds_names(dir.node()) => Fill::NotCached(None),
                None => Fill::Negative { ttl: None },
            })
        })
    }

    /// What the cache keeps of a directory's answer. A directory's inode is read for its permissions; the type of
    /// anything else is taken from the directory where it says.
    fn child(&self, found: Lookup) -> Result<Child<Ino>> {
        Ok(match found.kind {
            Some(FileType::Symlink) => Child::symlink(found.ino),
            Some(kind) if kind != FileType::Directory => Child::other(found.ino),
            _ => match self.inode(found.ino)?.attr() {
                attr if attr.is_dir() => {
                    Child { search: may_all_search(attr), ..Child::directory(found.ino) }
                }
                attr if attr.kind == FileType::Symlink => Child::symlink(found.ino),
                _ => Child::other(found.ino),
            },
        })
    }
}

/// Whether everybody may search a directory, so that walks need not ask.
pub(crate) fn may_all_search(attr: &Attr) -> bool {
    attr.permissions & 0o111 == 0o111 && !attr.has_acl
}
