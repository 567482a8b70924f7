//! The front doors' view of a file system.

use crate::entry::may_all_search;
use crate::inode::{Inode, InodeCache, InodeCacheStats};
use crate::walk::NAME_MAX;
use crate::{
    Access, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Identity, Ino, ReaddirStart, Result,
};
use dentree_dcache::{Child, Dcache, Stats as NameStats};
use std::ops::ControlFlow;
use std::sync::Arc;

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
    fs: Arc<F>,
    pub(crate) inodes: InodeCache<F>,
    pub(crate) names: Dcache<Ino>,
    root: Arc<Inode<F>>,
}

impl<F: FileSystem> Vfs<F> {
    /// Puts caches of the default size before `fs`. Reads the root inode.
    pub fn new(fs: F) -> Result<Self> {
        Self::with_budgets(fs, Budgets::default())
    }

    /// Puts caches of the given sizes before `fs`. Reads the root inode.
    pub fn with_budgets(fs: F, budgets: Budgets) -> Result<Self> {
        let fs = Arc::new(fs);
        let inodes = InodeCache::new(fs.clone(), budgets.inodes as u64);
        let root = inodes.get(fs.root())?;
        let search = may_all_search(root.attr());
        let names =
            Dcache::builder().memory(budgets.names).build(Child { search, ..Child::directory(root.ino()) });
        Ok(Vfs { fs, inodes, names, root })
    }

    /// The file system behind.
    pub fn fs(&self) -> &F {
        &self.fs
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Inode<F>> {
        &self.root
    }

    /// The inode with this number.
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.inodes.get(ino)
    }

    /// Fails with [`Error::AccessDenied`] unless `who` may do `access` with `inode`.
    pub fn check(&self, who: &Identity, inode: &Inode<F>, access: Access) -> Result<()> {
        if who.may(inode.attr(), access) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// What `dir` has under the single name `name` (`.` and `..` too), or `None`.
    pub fn lookup(&self, who: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<Option<Arc<Inode<F>>>> {
        if !dir.attr().is_dir() {
            return Err(Error::NotADirectory);
        }
        match name {
            _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
            b"." | b".." => {
                self.check(who, dir, Access::SEARCH)?;
                if name == b"." { Ok(Some(dir.clone())) } else { self.parent(dir).map(Some) }
            }
            _ => {
                let found = self.step(who, &self.entry(dir)?, name)?;
                found.map(|entry| self.inode_of(&entry)).transpose()
            }
        }
    }

    /// Calls `each` for every entry of `dir` behind `start` until it breaks; without `.` and `..`.
    /// Fails with [`Error::AccessDenied`] where `who` may not read `dir`.
    pub fn readdir(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if !dir.attr().is_dir() {
            return Err(Error::NotADirectory);
        }
        self.check(who, dir, Access::READ)?;
        self.fs.readdir(dir.node(), start, each)
    }

    /// The parent directory of `dir`; the root's is the root.
    pub fn parent(&self, dir: &Inode<F>) -> Result<Arc<Inode<F>>> {
        self.inode(self.fs.parent(dir.node())?)
    }

    /// Reads into `buf` from byte `offset` of a regular file; answers how many bytes: fewer than asked only at
    /// the end of file. Like `read(2)`, does not check permissions: whoever opened the file did.
    pub fn read(&self, file: &Inode<F>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match file.attr().kind {
            FileType::Regular => self.fs.read(file.node(), offset, buf),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Whether the byte at `offset` of a regular file is data or hole, and where that run ends;
    /// [`Error::NoExtent`] at or past the end of file.
    pub fn extent(&self, file: &Inode<F>, offset: u64) -> Result<Extent> {
        self.fs.extent(file.node(), offset)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, link: &Inode<F>) -> Result<Vec<u8>> {
        if link.attr().kind == FileType::Symlink {
            self.fs.readlink(link.node())
        } else {
            Err(Error::Invalid)
        }
    }

    /// The value of the extended attribute with the full name `name`; [`Error::NoAttribute`] where there is none.
    pub fn getxattr(&self, inode: &Inode<F>, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(inode.node(), name)?.ok_or(Error::NoAttribute)
    }

    /// The full names of all extended attributes of `inode`.
    pub fn listxattr(&self, inode: &Inode<F>) -> Result<Vec<Vec<u8>>> {
        self.fs.listxattr(inode.node())
    }

    /// Sizes and free counts.
    pub fn statfs(&self) -> Result<FsStat> {
        self.fs.statfs()
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
