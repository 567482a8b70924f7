//! The callers' half of a name cache: what the VFS does around it.
//!
//! | state | guard |
//! |---|---|
//! | a directory's names, in the cache and in the file system | `i_sem`, for changes |
//! | everything else | the scheme |
//!
//! Lock order: directory locks by stripe, then the scheme's. Directory locks are not metered: the
//! sources' tables show the cache's own locks alone.

use dentree_sync::{Mutex, MutexGuard};

use crate::schemes::{Dentry, Inode, Path, Resolved, Scheme, Usage};

/// The most components of a path that workloads use.
pub const PATH_MAX: usize = 32;

/// The components of a path, with the numbers of the paths to them.
pub(super) struct Components<'a> {
    names: [&'a [u8]; PATH_MAX],
    pub(super) numbers: [usize; PATH_MAX],
    len: usize,
}

impl<'a> Components<'a> {
    /// From the components in reverse.
    pub(super) fn from_leaf(parts: impl Iterator<Item = (&'a [u8], usize)>) -> Self {
        let mut components = Self { names: [b""; PATH_MAX], numbers: [0; PATH_MAX], len: 0 };
        for (name, number) in parts {
            components.names[components.len] = name;
            components.numbers[components.len] = number;
            components.len += 1;
        }
        components.names[..components.len].reverse();
        components.numbers[..components.len].reverse();
        components
    }

    pub(super) fn names(&self) -> &[&'a [u8]] {
        &self.names[..self.len]
    }
}

/// Stripes of directory locks.
const STRIPES: usize = 1024;

/// A cache, and the locks that its callers have to hold.
pub struct Front {
    cache: Box<dyn Scheme>,
    i_sems: Box<[Mutex<()>]>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").field("usage", &self.cache.usage()).finish_non_exhaustive()
    }
}

impl Front {
    /// A front of a cache.
    pub fn new(cache: Box<dyn Scheme>) -> Self {
        Self { cache, i_sems: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    /// The cache itself.
    pub fn cache(&self) -> &dyn Scheme {
        &*self.cache
    }

    /// The use of the cache.
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// `stat(2)`: the inode of a path. Misses go to the file system: `ask(n)` looks up the first
    /// `n` components.
    pub fn stat(&self, path: Path<'_>, ask: impl Fn(usize) -> Option<Inode>) -> Option<Inode> {
        let Resolved { depth, inode } = self.cache.resolve(path);
        if depth == path.len() || inode.is_none() {
            return inode;
        }
        let found = self.open(path, ask)?;
        let inode = self.cache.inode(found);
        self.close(found);
        inode
    }

    /// `open(2)` without the file: the entry of a path, held; `None` if there is none. For `ask`
    /// see [`stat`](Self::stat).
    pub fn open(&self, path: Path<'_>, ask: impl Fn(usize) -> Option<Inode>) -> Option<Dentry> {
        let walked = self.cache.walk(path);
        let (mut at, mut depth) = (walked.dentry, walked.depth);
        while self.cache.inode(at).is_some() {
            if depth == path.len() {
                return Some(at);
            }
            let next = self.lookup(at, path[depth], || ask(depth + 1));
            self.cache.dput(at);
            (at, depth) = (next, depth + 1);
        }
        self.cache.dput(at);
        None
    }

    /// Drops the reference of [`open`](Self::open) or [`create`](Self::create).
    pub fn close(&self, dentry: Dentry) {
        self.cache.dput(dentry);
    }

    /// `creat(2)`, `mkdir(2)`: creates a file with this inode in a held directory, and holds it. An
    /// existing file is opened instead.
    ///
    /// # Panics
    /// If the cache is full of held entries.
    pub fn create(&self, directory: Dentry, name: &[u8], inode: Inode) -> Dentry {
        let _i_sem = self.i_sem(directory);
        let made = self.cache.create(directory, name, Some(inode));
        made.expect("the cache is larger than what the load holds")
    }

    /// `unlink(2)`: deletes a name in a held directory. Returns whether it was cached.
    pub fn unlink(&self, directory: Dentry, name: &[u8]) -> bool {
        let _i_sem = self.i_sem(directory);
        let Some(found) = self.cache.lookup(directory, name) else { return false };
        let positive = self.cache.inode(found).is_some();
        if positive {
            self.cache.delete(found);
        }
        self.cache.dput(found);
        positive
    }

    /// `rename(2)` of a file: `from` and `to` are a held directory and a name. Returns whether the
    /// old name was cached.
    pub fn rename(&self, from: (Dentry, &[u8]), to: (Dentry, &[u8])) -> bool {
        let _i_sems = self.two_i_sems(from.0, to.0);
        let Some(found) = self.cache.lookup(from.0, from.1) else { return false };
        let positive = self.cache.inode(found).is_some();
        if positive {
            self.cache.rename(found, to.0, to.1);
        }
        self.cache.dput(found);
        positive
    }

    /// The entry of one name, added from the file system's result if it is not cached.
    fn lookup(&self, directory: Dentry, name: &[u8], ask: impl Fn() -> Option<Inode>) -> Dentry {
        if let Some(known) = self.cache.lookup(directory, name) {
            return known;
        }
        let _i_sem = self.i_sem(directory);
        let found = self.cache.lookup(directory, name).or_else(|| self.cache.add(directory, name, ask()));
        found.expect("the cache is larger than what the load holds")
    }

    fn i_sem(&self, directory: Dentry) -> MutexGuard<'_, ()> {
        self.stripe(directory.number() % STRIPES)
    }

    fn two_i_sems(&self, one: Dentry, other: Dentry) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (one, other) = (one.number() % STRIPES, other.number() % STRIPES);
        let low = self.stripe(one.min(other));
        (low, (one != other).then(|| self.stripe(one.max(other))))
    }

    fn stripe(&self, number: usize) -> MutexGuard<'_, ()> {
        self.i_sems[number].lock()
    }
}
