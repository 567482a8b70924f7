//! The interface that a file system implements for [`Vfs`](crate::Vfs).

use crate::{Allocate, Attr, Durability, Error, FileType, Ino, NewInode, Result, SetAttr, SetXattr};
use std::ops::{ControlFlow, Range};
use std::time::Duration;

/// Result of a lookup in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// The inode that the name links to.
    pub ino: Ino,
    /// Its type, if the directory entry records it.
    pub kind: Option<FileType>,
}

/// One entry of a directory, as [`FileSystem::readdir`] reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// The name: 1 to 255 bytes, any but `/` and NUL, in no particular encoding.
    pub name: &'a [u8],
    /// The inode that the name links to.
    pub ino: Ino,
    /// Its type, if the directory entry records it.
    pub kind: Option<FileType>,
    /// Position for [`ReaddirStart::After`] to continue after this entry. Below 2^63 − 4, so that
    /// front ends can derive file offsets.
    pub cookie: u64,
}

/// Where [`FileSystem::readdir`] begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaddirStart {
    /// At the first entry.
    First,
    /// After the entry with this cookie, even if that entry has been removed.
    After(u64),
}

/// A run of a file's bytes that is all data or all hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Stored bytes up to this offset (exclusive).
    Data(u64),
    /// Bytes that read as zeros without allocated space, up to this offset (exclusive).
    Hole(u64),
}

/// Statistics of a file system: `statfs(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsStat {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Total data blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks available to ordinary users.
    pub blocks_available: u64,
    /// Total inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Maximum length of a name in bytes.
    pub name_max: u32,
    /// File system id, as `f_fsid`.
    pub fsid: u64,
}

/// One end of a rename.
pub struct NameIn<'a, N> {
    /// The directory.
    pub dir: &'a N,
    /// The name in it.
    pub name: &'a [u8],
}

/// A rename that `Vfs` has checked: see [`FileSystem::rename`].
pub struct Rename<'a, N> {
    /// The old name.
    pub from: NameIn<'a, N>,
    /// Its inode.
    pub moved: &'a N,
    /// The new name.
    pub to: NameIn<'a, N>,
    /// The inode that has the new name, if any.
    pub replaced: Option<&'a N>,
    /// Exchange the names of `moved` and `replaced` (`RENAME_EXCHANGE`); else `replaced` is
    /// unlinked.
    pub exchange: bool,
    /// An unnamed inode that gets the old name in the same step (`RENAME_WHITEOUT`).
    pub left: Option<&'a N>,
}

/// A file system: inodes by number, directories by single name. It sees no paths.
///
/// Every method may be called concurrently. `Node` is an inode in memory; `Vfs` caches nodes and
/// passes them back, so that an inode is parsed once. Listings omit `.` and `..`.
///
/// # Changes
/// A read-only file system implements none of the methods after [`statfs`](FileSystem::statfs):
/// they return [`Error::ReadOnly`](crate::Error::ReadOnly). To a writable one `Vfs` guarantees:
///
/// - Permissions and file types are checked: a directory is not unlinked, `.` is not renamed, no
///   directory is moved below itself.
/// - In one directory [`make`](FileSystem::make), [`link`](FileSystem::link) and
///   [`unlink`](FileSystem::unlink) of different names run in parallel with each other and with
///   lookups. Changes of one name are serialized, and no listing runs during a change.
/// - No other operation on names uses a directory in which a name is renamed or a directory
///   removed, or a directory that is removed or replaced.
/// - There is one node per inode.
///
/// The file system synchronizes all else, such as reads and writes of one file. Each method is
/// atomic: after a crash all of its effect is there or nothing. An error changes nothing.
pub trait FileSystem: Send + Sync + 'static {
    /// An inode in memory.
    type Node: Send + Sync + 'static;

    /// The root directory's inode number.
    fn root(&self) -> Ino;

    /// Reads inode `ino`.
    fn load(&self, ino: Ino) -> Result<Self::Node>;

    /// Whether inode `ino` is in use and has a name. `ino` is any number from a client: perhaps
    /// past the last inode, of a free inode, or of a reserved one, which has no name. No inode is
    /// created meanwhile.
    fn has_name(&self, ino: Ino) -> Result<bool> {
        let _ = ino;
        Ok(false)
    }

    /// Hints that these inodes will be loaded soon: starts reads of their blocks without waiting.
    /// The loads report errors.
    fn prefetch_inodes(&self, inos: &[Ino]) {
        let _ = inos;
    }

    /// Hints that these directories will be listed soon: starts reads of their first blocks. Waits
    /// at most for their inodes. The listings report errors.
    fn prefetch_listings(&self, dirs: &[Ino]) {
        let _ = dirs;
    }

    /// Hints that names will be looked up in this directory soon: reads, or starts to read, the
    /// blocks that every lookup needs. May wait: call it only off the request's critical path. The
    /// lookups report errors.
    fn prefetch_lookups(&self, dir: &Self::Node) {
        let _ = dir;
    }

    /// Memory of a new node in bytes, for the inode cache's budget.
    fn node_bytes(&self, node: &Self::Node) -> usize;

    /// The attributes of a node.
    fn attr(&self, node: &Self::Node) -> Attr;

    /// The attributes of inode `ino` without a node, for scans of many inodes. `None` if a node may
    /// have newer ones, or costs no more.
    fn stat(&self, ino: Ino) -> Option<Result<Attr>> {
        let _ = ino;
        None
    }

    /// The inode of `name` in directory `dir`, or `None` without such a name.
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<Lookup>>;

    /// The case-folded name if `dir` is case-insensitive. Folding is idempotent.
    fn fold_name(&self, dir: &Self::Node, name: &[u8]) -> Option<Vec<u8>> {
        let _ = (dir, name);
        None
    }

    /// Calls `each` for every entry after `start`, in the directory's stable order, until it
    /// breaks.
    fn readdir(
        &self,
        dir: &Self::Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// As [`readdir`](FileSystem::readdir) from the first entry on, but skips unreadable parts and
    /// reports each to `damaged`. In arbitrary order, without valid cookies. Fails if nothing can
    /// be listed.
    fn readdir_past_damage(
        &self,
        dir: &Self::Node,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let _ = damaged;
        self.readdir(dir, ReaddirStart::First, each)
    }

    /// The inode of `dir`'s parent directory (the root's is the root).
    fn parent(&self, dir: &Self::Node) -> Result<Ino>;

    /// Reads into `buf` from byte `offset`. Returns the number of bytes, less than asked for only
    /// at the end of file.
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Whether the byte at `offset` is data or hole, and the end of that run.
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

    /// Discards free space of the device, in runs of at least `least` bytes within `bytes`
    /// (`FITRIM`). Returns the number of bytes discarded.
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device or file system cannot.
    fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let _ = (bytes, least);
        Err(Error::Unsupported("this file system cannot discard free space".into()))
    }

    /// Granularity of the timestamps of new inodes: a power of ten nanoseconds, at most a second.
    fn time_granularity(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// Whether changes are refused: opened read-only, or read-only after an error.
    fn is_read_only(&self) -> bool {
        true
    }

    /// Creates an inode and links it as `name`, which does not exist (`open(O_CREAT)`, `mkdir`,
    /// `mknod`, `symlink`).
    fn make(&self, dir: &Self::Node, name: &[u8], new: &NewInode<'_>) -> Result<Self::Node> {
        let _ = (dir, name, new);
        Err(Error::ReadOnly)
    }

    /// Creates an inode without a name near `dir` (`O_TMPFILE`). [`evict`](FileSystem::evict) frees
    /// it unless it is linked.
    fn make_unnamed(&self, dir: &Self::Node, new: &NewInode<'_>) -> Result<Self::Node> {
        let _ = (dir, new);
        Err(Error::ReadOnly)
    }

    /// Prepares the directory `dir`, held exclusively, for `entries` entries.
    /// [`Error::NotEmpty`](crate::Error::NotEmpty) if it has some. May do nothing.
    fn reserve_entries(&self, dir: &Self::Node, entries: u64) -> Result<()> {
        let _ = (dir, entries);
        Ok(())
    }

    /// Links `node`, not a directory, as `name`, which does not exist in `dir`.
    fn link(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes the name `name` of `node`, not a directory, from `dir`. An inode without names lives
    /// until [`evict`](FileSystem::evict).
    fn unlink(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes the directory `node`, which is `name` in `dir`.
    /// [`Error::NotEmpty`](crate::Error::NotEmpty) if it has entries.
    fn rmdir(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes the last name of `node`, of any type, and frees the inode in one step. The node has
    /// no other reference; after `true` it is dropped without [`evict`](FileSystem::evict).
    /// [`Error::NotEmpty`](crate::Error::NotEmpty) as from [`rmdir`](FileSystem::rmdir).
    ///
    /// Returns `false`, without a change, if that takes more steps or `node` has other names. `Vfs`
    /// then calls [`unlink`](FileSystem::unlink) or `rmdir`.
    fn unlink_and_free(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<bool> {
        let _ = (dir, name, node);
        Ok(false)
    }

    /// Renames an inode in one step. [`Error::NotEmpty`](crate::Error::NotEmpty) if the replaced
    /// directory has entries.
    fn rename(&self, rename: &Rename<'_, Self::Node>) -> Result<()> {
        let _ = rename;
        Err(Error::ReadOnly)
    }

    /// Sets attributes, all or none.
    fn set_attr(&self, node: &Self::Node, changes: &SetAttr) -> Result<()> {
        let _ = (node, changes);
        Err(Error::ReadOnly)
    }

    /// Sets the flags of [`Attr::flags`] that users may change (`FS_IOC_SETFLAGS`).
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the inode cannot have or acquire one.
    fn set_flags(&self, node: &Self::Node, flags: u32) -> Result<()> {
        let _ = (node, flags);
        Err(Error::ReadOnly)
    }

    /// Writes `data` at byte `offset` of a regular file, lengthening it if needed. Returns the
    /// number of bytes, less than given only if space ran out.
    fn write(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (node, offset, data);
        Err(Error::ReadOnly)
    }

    /// As [`write`](FileSystem::write), for data of a front end's write-back cache. Leaves the
    /// times unchanged, as the front end sets those of the original writes.
    fn write_back(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (node, offset, data);
        Err(Error::ReadOnly)
    }

    /// Writes `data` at the end of a regular file. Returns offset and number of bytes.
    fn append(&self, node: &Self::Node, data: &[u8]) -> Result<(u64, usize)> {
        let _ = (node, data);
        Err(Error::ReadOnly)
    }

    /// Changes the space under `len` bytes (at least one) from `offset` of a regular file.
    fn allocate(&self, node: &Self::Node, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let _ = (node, offset, len, how);
        Err(Error::ReadOnly)
    }

    /// Returns when earlier writes to the inode, or changes of a directory's names, survive a power
    /// failure. Does nothing on a read-only file system.
    fn fsync(&self, node: &Self::Node, durability: Durability) -> Result<()> {
        let _ = (node, durability);
        Ok(())
    }

    /// [`fsync`](FileSystem::fsync) of everything.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Called when the last reference to `node` is dropped: frees an inode without names. The next
    /// [`sync`](FileSystem::sync) reports errors.
    fn evict(&self, node: &Self::Node) {
        let _ = node;
    }

    /// Sets the extended attribute `name` (a full name).
    fn setxattr(&self, node: &Self::Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let _ = (node, name, value, how);
        Err(Error::ReadOnly)
    }

    /// Sets or removes the access ACL (in the format of `getxattr(2)`) together with attributes
    /// other than the length: all or nothing.
    fn set_acl(&self, node: &Self::Node, acl: Option<&[u8]>, attributes: &SetAttr) -> Result<()> {
        let _ = (node, acl, attributes);
        Err(Error::ReadOnly)
    }

    /// Removes the extended attribute `name`; [`Error::NoAttribute`](crate::Error::NoAttribute) if
    /// missing.
    fn removexattr(&self, node: &Self::Node, name: &[u8]) -> Result<()> {
        let _ = (node, name);
        Err(Error::ReadOnly)
    }
}
