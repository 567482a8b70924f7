//! What callers do around a name cache: the VFS's half.
//!
//! | what | guard |
//! |---|---|
//! | which names a directory has, in the cache and in the file system | the directory's lock (`i_sem`), for who changes them |
//! | everything else | the scheme |
//!
//! Lock order: directories' locks by number of their stripe, then whatever the scheme takes. The locks are not metered: the
//! sources' tables have none but the cache's own.

use dentree_sync::{Mutex, MutexGuard};

use crate::schemes::{Dentry, Inode, Path, Resolved, Scheme, Usage};

/// The most components of a path that workloads use.
pub const PATH_MAX: usize = 32;

/// Stripes of directories' locks.
const STRIPES: usize = 1024;

/// A cache, and the locks that its callers owe it.
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
    /// Before a cache.
    pub fn new(cache: Box<dyn Scheme>) -> Self {
        Self { cache, i_sems: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    /// The cache itself.
    pub fn cache(&self) -> &dyn Scheme {
        &*self.cache
    }

    /// How full the cache is.
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// `stat(2)`: the inode of what a path names. What the cache does not know is asked of the file system: `ask(n)` answers
    /// for the first `n` components.
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

    /// `open(2)` without the file: what a path names, held; `None` if there is nothing. `ask` is as for [`stat`](Self::stat).
    pub fn open(&self, path: Path<'_>, ask: impl Fn(usize) -> Option<Inode>) -> Option<Dentry> {
        let walked = self.cache.walk(path);
        let (mut at, mut depth) = (walked.dentry, walked.depth);
        while self.cache.inode(at).is_some() {
            if depth == path.len() {
                return Some(at);
            }
            let next = self.look_up(at, path[depth], || ask(depth + 1));
            self.cache.dput(at);
            (at, depth) = (next, depth + 1);
        }
        self.cache.dput(at);
        None
    }

    /// Gives back what [`open`](Self::open) or [`create`](Self::create) gave.
    pub fn close(&self, dentry: Dentry) {
        self.cache.dput(dentry);
    }

    /// `creat(2)`, `mkdir(2)`: makes a file of this inode in a directory that is held, and holds it. A file that has the name
    /// already is opened instead.
    ///
    /// # Panics
    /// If the cache is full of entries that are held.
    pub fn create(&self, directory: Dentry, name: &[u8], inode: Inode) -> Dentry {
        let _i_sem = self.i_sem(directory);
        let made = self.cache.create(directory, name, Some(inode));
        made.expect("the cache is larger than what the load holds")
    }

    /// `unlink(2)`: deletes a name in a directory that is held; whether it was cached.
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

    /// `rename(2)` of a file: `from` and `to` are a held directory and a name. Whether the old name was cached.
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

    /// The entry of one name: cached, or entered as the file system answers.
    fn look_up(&self, directory: Dentry, name: &[u8], ask: impl Fn() -> Option<Inode>) -> Dentry {
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
