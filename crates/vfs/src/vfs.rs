//! The front doors' view of a file system.

use crate::inode::{Inode, InodeCache, InodeCacheStats};
use crate::making::Making;
use crate::name_lock::NameLocks;
use crate::{
    Access, Attr, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Identity, Ino, ReaddirStart, Result,
};
use dentree_dcache::{Child, Dcache, Stats as NameStats};
use dentree_sync::Mutex;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How much memory the caches may take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// For cached names.
    pub names: usize,
    /// For cached inodes.
    pub inodes: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets { names: 256 << 20, inodes: 256 << 20 }
    }
}

/// A file system behind its caches. Every method may be called by many threads at once.
pub struct Vfs<F: FileSystem> {
    pub(crate) inodes: InodeCache<F>,
    pub(crate) names: Dcache<Ino>,
    /// The memory that they may take, in bytes.
    pub(crate) budget_of_names: usize,
    /// Held while a directory changes its parent, or may: the shape of the tree stands still then.
    pub(crate) renaming: Mutex<()>,
    pub(crate) name_locks: NameLocks,
    pub(crate) making: Making,
    root: Arc<Inode<F>>,
}

impl<F: FileSystem> Vfs<F> {
    /// Puts caches of the default size before `fs`. Reads the root inode.
    pub fn new(fs: F) -> Result<Self> {
        Self::with_budgets(fs, Budgets::default())
    }

    /// Puts caches of the given sizes before `fs`. Reads the root inode.
    pub fn with_budgets(fs: F, budgets: Budgets) -> Result<Self> {
        let inodes = InodeCache::new(fs, budgets.inodes as u64);
        let root = inodes.get(inodes.fs().root())?;
        let search = root.attr().all_may_search();
        let names =
            Dcache::builder().memory(budgets.names).build(Child { search, ..Child::directory(root.ino()) });
        let budget_of_names = names.stats().memory.budget;
        Ok(Vfs {
            inodes,
            names,
            budget_of_names,
            renaming: Mutex::new(()),
            name_locks: NameLocks::new(),
            making: Making::new(),
            root,
        })
    }

    /// The file system behind.
    pub fn fs(&self) -> &F {
        self.inodes.fs()
    }

    /// Gives the file system back, every inode evicted; `None` where somebody still holds an inode.
    pub fn into_fs(self) -> Option<F> {
        let Vfs { inodes, names, root, .. } = self;
        drop((names, root));
        inodes.into_fs()
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Inode<F>> {
        &self.root
    }

    /// The inode with this number, which must be one that has a name or is held: a number that was freed may have come to mean
    /// another inode.
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.inodes.get(ino)
    }

    /// Says that these inodes will be asked for soon, so that those that are not in memory can be on their way. Waits for nothing.
    pub fn expect_inodes(&self, inos: impl IntoIterator<Item = Ino>) {
        let missing: Vec<_> = inos.into_iter().filter(|ino| !self.inodes.has(*ino)).collect();
        if !missing.is_empty() {
            self.fs().expect_loads(&missing);
        }
    }

    /// Says that these directories will be listed soon, so that what they begin with can be on its way. May wait for their inodes.
    pub fn expect_listings(&self, dirs: &[Ino]) {
        self.fs().expect_listings(dirs);
    }

    /// Says that names will be looked up in this directory soon, so that what each look-up there begins with is in memory, or on its way.
    /// May wait for a part of it.
    pub fn expect_lookups(&self, dir: &Inode<F>) {
        self.fs().expect_lookups(dir.node());
    }

    /// The attributes of the inode with this number, which must be one that has a name or is held. Where the file system cannot change the
    /// inode does not stay in memory: who asks for very many inodes does not push out those that are used.
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        self.fs().stat(ino).unwrap_or_else(|| self.inode(ino).map(|inode| inode.attr()))
    }

    /// Fails with [`Error::AccessDenied`] unless `who` may do `access` with `inode`: by its access control list where it has one, else by its
    /// permission bits.
    pub fn check(&self, who: &Identity, inode: &Inode<F>, access: Access) -> Result<()> {
        if self.may(who, inode, access)? { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Calls `each` for every entry of `dir` behind `start` until it breaks; without `.` and `..`. `each` may ask for
    /// inodes by their number, and must not look names up or change any. A directory that was removed has none.
    /// Fails with [`Error::AccessDenied`] where `who` may not read `dir`.
    pub fn readdir(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check(who, dir, Access::READ)?;
        let _names = dir.lock_for_listing();
        match start {
            _ if dir.is_removed() => Ok(()),
            // Where names have been missed they will be again; where not, as by `find`, it would only cost.
            ReaddirStart::First if dir.negative_lookups.load(Ordering::Relaxed) > 0 => {
                self.list_and_complete(dir, each)
            }
            _ => self.fs().readdir(dir.node(), start, each),
        }
    }

    /// As [`readdir`](Self::readdir) from the first entry on, past parts that cannot be read: `damaged` is told of each. For those who
    /// rather have a part than nothing. A cookie leads nowhere.
    pub fn readdir_past_damage(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check(who, dir, Access::READ)?;
        let _names = dir.lock_for_listing();
        if dir.is_removed() { Ok(()) } else { self.fs().readdir_past_damage(dir.node(), each, damaged) }
    }

    /// The parent directory of `dir`; the root's is the root.
    pub fn parent(&self, dir: &Inode<F>) -> Result<Arc<Inode<F>>> {
        let parent = || if dir.is_removed() { Err(Error::NotFound) } else { self.fs().parent(dir.node()) };
        self.retry(|| {
            let ino = parent()?;
            let still_there = || parent().is_ok_and(|now| now == ino);
            let found = self.inodes.get_named(ino, still_there);
            if still_there() { found } else { Err(Error::Stale) }
        })
    }

    /// Reads into `buf` from byte `offset` of a regular file; answers how many bytes: fewer than asked only at
    /// the end of file. Like `read(2)`, does not check permissions: whoever opened the file did.
    pub fn read(&self, file: &Inode<F>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match file.kind() {
            FileType::Regular => self.fs().read(file.node(), offset, buf),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Whether the byte at `offset` of a regular file is data or hole, and where that run ends;
    /// [`Error::NoExtent`] at or past the end of file.
    pub fn extent(&self, file: &Inode<F>, offset: u64) -> Result<Extent> {
        self.fs().extent(file.node(), offset)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, link: &Inode<F>) -> Result<Vec<u8>> {
        if link.kind() == FileType::Symlink { self.fs().readlink(link.node()) } else { Err(Error::Invalid) }
    }

    /// The value of the extended attribute with the full name `name`; [`Error::NoAttribute`] where there is none.
    pub fn getxattr(&self, inode: &Inode<F>, name: &[u8]) -> Result<Vec<u8>> {
        self.fs().getxattr(inode.node(), name)?.ok_or(Error::NoAttribute)
    }

    /// The full names of all extended attributes of `inode`.
    pub fn listxattr(&self, inode: &Inode<F>) -> Result<Vec<Vec<u8>>> {
        self.fs().listxattr(inode.node())
    }

    /// Sizes and free counts.
    pub fn statfs(&self) -> Result<FsStat> {
        self.fs().statfs()
    }

    /// Gives free space back to the device: `fstrim(8)`. Of what lies in these bytes of it, in runs of at least
    /// `least` bytes; returns how many bytes.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        self.check_writable()?;
        self.fs().trim(bytes, least)
    }

    /// Evicts until names and inodes take about `percent` of the memory that they take now, and
    /// returns free pages of the heap to the system. What is held stays; the budgets stay.
    pub fn shrink(&self, percent: u8) {
        let kept = self.names.stats().memory.used / 100 * usize::from(percent);
        self.names.shrink_to(kept);
        self.inodes.shrink(percent.into());
        dentree_dcache::release_free_heap();
    }

    /// The caches' figures.
    pub fn stats(&self) -> Stats {
        Stats { names: self.names.stats(), inodes: self.inodes.stats() }
    }
}

/// The caches' figures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The name cache.
    pub names: NameStats,
    /// The inode cache.
    pub inodes: InodeCacheStats,
}
