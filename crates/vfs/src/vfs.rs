use crate::creation::Creation;
use crate::inode::{Inode, InodeCache, InodeCacheStats};
use crate::name_lock::NameLocks;
use crate::{
    Access, Attr, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Identity, Ino, ReaddirStart, Result,
};
use dentree_dcache::{Child, Dcache, Stats as NameStats};
use dentree_sync::Mutex;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory budgets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// Names.
    pub names: usize,
    /// Inodes.
    pub inodes: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets { names: 256 << 20, inodes: 256 << 20 }
    }
}

/// A file system and its caches. Methods may be called concurrently.
pub struct Vfs<F: FileSystem> {
    pub(crate) inodes: InodeCache<F>,
    pub(crate) names: Dcache<Ino>,
    pub(crate) name_budget: usize,
    /// Held while a directory may change its parent.
    pub(crate) renaming: Mutex<()>,
    pub(crate) name_locks: NameLocks,
    pub(crate) creation: Creation,
    root: Arc<Inode<F>>,
}

impl<F: FileSystem> Vfs<F> {
    /// With caches of the default size. Reads the root inode.
    pub fn new(fs: F) -> Result<Self> {
        Self::with_budgets(fs, Budgets::default())
    }

    /// With caches of these sizes. Reads the root inode.
    pub fn with_budgets(fs: F, budgets: Budgets) -> Result<Self> {
        let inodes = InodeCache::new(fs, budgets.inodes as u64);
        let root = inodes.get(inodes.fs().root())?;
        let search = root.attr().all_may_search();
        let names =
            Dcache::builder().memory(budgets.names).build(Child { search, ..Child::directory(root.ino()) });
        let name_budget = names.stats().memory.budget;
        Ok(Vfs {
            inodes,
            names,
            name_budget,
            renaming: Mutex::new(()),
            name_locks: NameLocks::new(),
            creation: Creation::new(),
            root,
        })
    }

    /// The file system.
    pub fn fs(&self) -> &F {
        self.inodes.fs()
    }

    /// Evicts all inodes and returns the file system. `None`: an inode is referenced.
    pub fn into_fs(self) -> Option<F> {
        let Vfs { inodes, names, root, .. } = self;
        drop((names, root));
        inodes.into_fs()
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Inode<F>> {
        &self.root
    }

    /// The inode with this number, which must have a name or a reference. For other numbers see
    /// [`inode_by_handle`](Self::inode_by_handle).
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.inodes.get(ino)
    }

    /// Prefetches inodes that are not cached.
    pub fn prefetch_inodes(&self, inos: impl IntoIterator<Item = Ino>) {
        let missing: Vec<_> = inos.into_iter().filter(|ino| !self.inodes.has(*ino)).collect();
        if !missing.is_empty() {
            self.fs().prefetch_inodes(&missing);
        }
    }

    /// [`FileSystem::prefetch_listings`].
    pub fn prefetch_listings(&self, dirs: &[Ino]) {
        self.fs().prefetch_listings(dirs);
    }

    /// [`FileSystem::prefetch_lookups`].
    pub fn prefetch_lookups(&self, dir: &Inode<F>) {
        self.fs().prefetch_lookups(dir.node());
    }

    /// The attributes of an inode, which must have a name or a reference. On a read-only file
    /// system it is not cached, so that scans evict none.
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        self.fs().stat(ino).unwrap_or_else(|| self.inode(ino).map(|inode| inode.attr()))
    }

    /// [`Error::AccessDenied`] unless the ACL, or without one the permission bits, grant `access`.
    pub fn check(&self, caller: &Identity, inode: &Inode<F>, access: Access) -> Result<()> {
        if self.may(caller, inode, access)? { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Calls `each` for entries after `start`, except `.` and `..`, until it breaks. `each` may
    /// load inodes, but not look up or change names. A removed directory is empty.
    /// [`Error::AccessDenied`]: `caller` may not read `dir`.
    pub fn readdir(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check(caller, dir, Access::READ)?;
        let _names = dir.lock_for_listing();
        match start {
            _ if dir.is_removed() => Ok(()),
            // Misses predict more of them; without any, as with `find`, completion does not pay.
            ReaddirStart::First if dir.negative_lookups.load(Ordering::Relaxed) > 0 => {
                self.list_and_complete(dir, each)
            }
            _ => self.fs().readdir(dir.node(), start, each),
        }
    }

    /// [`FileSystem::readdir_past_damage`].
    pub fn readdir_past_damage(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check(caller, dir, Access::READ)?;
        let _names = dir.lock_for_listing();
        if dir.is_removed() { Ok(()) } else { self.fs().readdir_past_damage(dir.node(), each, damaged) }
    }

    /// The parent directory; the root's is the root.
    pub fn parent(&self, dir: &Inode<F>) -> Result<Arc<Inode<F>>> {
        let parent = || if dir.is_removed() { Err(Error::NotFound) } else { self.fs().parent(dir.node()) };
        self.retry(|| {
            let ino = parent()?;
            let still_linked = || parent().is_ok_and(|now| now == ino);
            let found = self.inodes.get_named(ino, still_linked);
            if still_linked() { found } else { Err(Error::Stale) }
        })
    }

    /// Reads from a regular file. Returns the number of bytes, less than asked for only at the end.
    /// Checks no permissions.
    pub fn read(&self, file: &Inode<F>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match file.kind() {
            FileType::Regular => self.fs().read(file.node(), offset, buf),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// [`FileSystem::extent`].
    pub fn extent(&self, file: &Inode<F>, offset: u64) -> Result<Extent> {
        self.fs().extent(file.node(), offset)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, link: &Inode<F>) -> Result<Vec<u8>> {
        if link.kind() == FileType::Symlink { self.fs().readlink(link.node()) } else { Err(Error::Invalid) }
    }

    /// An extended attribute by its full name. [`Error::NoAttribute`]: it is missing.
    pub fn getxattr(&self, inode: &Inode<F>, name: &[u8]) -> Result<Vec<u8>> {
        self.fs().getxattr(inode.node(), name)?.ok_or(Error::NoAttribute)
    }

    /// Full names of all extended attributes.
    pub fn listxattr(&self, inode: &Inode<F>) -> Result<Vec<Vec<u8>>> {
        self.fs().listxattr(inode.node())
    }

    /// Sizes and free counts.
    pub fn statfs(&self) -> Result<FsStat> {
        self.fs().statfs()
    }

    /// Discards free space: [`FileSystem::trim`].
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        self.check_writable()?;
        self.fs().trim(bytes, least)
    }

    /// Evicts until about `percent` of the memory is used, and returns free heap pages to the
    /// system. Held entries stay.
    pub fn shrink(&self, percent: u8) {
        let kept = self.names.stats().memory.used / 100 * usize::from(percent);
        self.names.shrink_to(kept);
        self.inodes.shrink(percent.into());
        dentree_dcache::release_free_heap();
    }

    /// Statistics.
    pub fn stats(&self) -> VfsStats {
        VfsStats { names: self.names.stats(), inodes: self.inodes.stats() }
    }
}

/// Statistics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VfsStats {
    /// The name cache.
    pub names: NameStats,
    /// The inode cache.
    pub inodes: InodeCacheStats,
}
