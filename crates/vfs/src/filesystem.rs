//! What a file system must offer so that [`Vfs`](crate::Vfs) can serve it.

use crate::{Attr, FileType, Ino, Result};
use std::ops::ControlFlow;

/// What a directory says of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// The inode that the name links to.
    pub ino: Ino,
    /// Its type, where the directory entry records one.
    pub kind: Option<FileType>,
}

/// One entry of a directory, as [`FileSystem::readdir`] reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// The name: 1 to 255 bytes, any but `/` and NUL, in no particular encoding.
    pub name: &'a [u8],
    /// The inode that the name links to.
    pub ino: Ino,
    /// Its type, where the directory entry records one.
    pub kind: Option<FileType>,
    /// Give this to [`ReaddirStart::After`] to go on behind this entry. Below 2^63 − 4, so that front doors can
    /// make a file offset of it.
    pub cookie: u64,
}

/// Where [`FileSystem::readdir`] begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaddirStart {
    /// At the first entry.
    First,
    /// Behind the entry with this cookie, even if that entry is gone by now.
    After(u64),
}

/// A run of a file's bytes that is all data or all hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Bytes that are stored, up to (not including) this offset.
    Data(u64),
    /// Bytes that read as zeros and take no space, up to (not including) this offset.
    Hole(u64),
}

/// What `statfs(2)` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsStat {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Blocks for data in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that others than root may use.
    pub blocks_available: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// The longest name in bytes.
    pub name_max: u32,
    /// An identity of the file system, as `f_fsid`.
    pub fsid: u64,
}

/// A file system: inodes by number, directories by single name. It knows nothing of paths.
///
/// Every method may be called by many threads at once. `Node` is the in-memory form of an inode; `Vfs` keeps
/// nodes in its inode cache and hands them back, so that an implementation parses an inode once.
/// Directories are reported without `.` and `..`: the walk knows them.
pub trait FileSystem: Send + Sync + 'static {
    /// An inode in memory.
    type Node: Send + Sync + 'static;

    /// The root directory's inode number.
    fn root(&self) -> Ino;

    /// Reads inode `ino`.
    fn load(&self, ino: Ino) -> Result<Self::Node>;

    /// What memory a node takes in bytes, for the inode cache's budget.
    fn node_bytes(&self, node: &Self::Node) -> usize;

    /// The attributes of a node.
    fn attr(&self, node: &Self::Node) -> Attr;

    /// The inode that directory `dir` has under `name`, or `None` where it has no such name.
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<Lookup>>;

    /// Whether several names may mean one entry in `dir` (casefolded): such names are not cached as absent, and
    /// the directory is never complete.
    fn folds_names(&self, dir: &Self::Node) -> bool {
        let _ = dir;
        false
    }

    /// Calls `each` for every entry behind `start`, in the directory's own stable order, until it breaks.
    fn readdir(
        &self,
        dir: &Self::Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// The inode of `dir`'s parent directory (the root's is the root).
    fn parent(&self, dir: &Self::Node) -> Result<Ino>;

    /// Reads into `buf` from byte `offset`; answers how many bytes: fewer than asked only at the end of file.
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Whether the byte at `offset` is data or hole, and where that run ends;
    /// [`Error::NoExtent`](crate::Error::NoExtent) at or past the end of file.
    fn extent(&self, node: &Self::Node, offset: u64) -> Result<Extent>;

    /// The target of a symbolic link.
    fn readlink(&self, node: &Self::Node) -> Result<Vec<u8>>;

    /// The value of an extended attribute under its full name (`user.mime_type`), or `None`.
    fn getxattr(&self, node: &Self::Node, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The full names of all extended attributes.
    fn listxattr(&self, node: &Self::Node) -> Result<Vec<Vec<u8>>>;

    /// Sizes and free counts.
    fn statfs(&self) -> Result<FsStat>;
}
