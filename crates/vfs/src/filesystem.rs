use crate::{Allocate, Attr, Durability, Error, FileType, Ino, NewInode, Result, SetAttr, SetXattr};
use std::ops::{ControlFlow, Range};
use std::time::Duration;

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Inode number.
    pub ino: Ino,
    /// Type, if the directory has it.
    pub kind: Option<FileType>,
}

/// An entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// 1 to 255 bytes, without `/` and NUL, in no particular encoding.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: Ino,
    /// Type, if the directory has it.
    pub kind: Option<FileType>,
    /// For [`ReaddirStart::After`]. Below 2^63 − 4, so that front ends can derive file offsets.
    pub cookie: u64,
}

/// Start of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaddirStart {
    /// The first entry.
    First,
    /// After the entry with this cookie, which may have been removed.
    After(u64),
}

/// A run of data or a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Data up to this offset.
    Data(u64),
    /// Unallocated zeros up to this offset.
    Hole(u64),
}

/// `statfs(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsStat {
    /// Bytes per block.
    pub block_size: u32,
    /// Data blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for ordinary users.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Maximum bytes of a name.
    pub name_max: u32,
    /// `f_fsid`.
    pub fsid: u64,
}

/// One end of a rename.
pub struct NameIn<'a, N> {
    /// Directory.
    pub dir: &'a N,
    /// Name.
    pub name: &'a [u8],
}

/// A rename, checked by `Vfs`.
pub struct Rename<'a, N> {
    /// Old name.
    pub from: NameIn<'a, N>,
    /// Its inode.
    pub moved: &'a N,
    /// New name.
    pub to: NameIn<'a, N>,
    /// Inode of the new name.
    pub replaced: Option<&'a N>,
    /// Exchange both (`RENAME_EXCHANGE`); else `replaced` is unlinked.
    pub exchange: bool,
    /// Unnamed inode that gets the old name (`RENAME_WHITEOUT`).
    pub left: Option<&'a N>,
}

/// A file system: inodes by number, directories by single name.
///
/// Methods may be called concurrently. `Vfs` caches nodes and passes them back. Listings omit `.`
/// and `..`.
///
/// # Changes
/// A read-only file system implements nothing after [`statfs`](FileSystem::statfs): the defaults
/// return [`Error::ReadOnly`](crate::Error::ReadOnly). `Vfs` guarantees to a writable one:
///
/// - Permissions and file types are checked: no directory is unlinked or moved below itself, and
///   `.` is not renamed.
/// - In one directory [`create`](FileSystem::create), [`link`](FileSystem::link) and
///   [`unlink`](FileSystem::unlink) of different names run in parallel with each other and with
///   lookups. Changes of one name are serialized, and no listing runs during a change.
/// - A directory in which a name is renamed or a directory removed is used by no other operation on
///   names, nor is a directory that is removed or replaced.
/// - There is one node per inode.
///
/// The file system synchronizes the rest. Each method is atomic, also over a crash. An error
/// changes nothing.
pub trait FileSystem: Send + Sync + 'static {
    /// An inode in memory.
    type Node: Send + Sync + 'static;

    /// The root directory.
    fn root(&self) -> Ino;

    /// Reads an inode.
    fn load(&self, ino: Ino) -> Result<Self::Node>;

    /// Whether an inode is in use and has a name. `ino` is any number. No inode is created
    /// meanwhile.
    fn has_name(&self, ino: Ino) -> Result<bool> {
        let _ = ino;
        Ok(false)
    }

    /// Starts reads of inodes. Ignores errors.
    fn prefetch_inodes(&self, inos: &[Ino]) {
        let _ = inos;
    }

    /// Starts reads of directories. Waits at most for their inodes. Ignores errors.
    fn prefetch_listings(&self, dirs: &[Ino]) {
        let _ = dirs;
    }

    /// Reads blocks that every lookup in `dir` needs. Call it only off the request's critical path.
    /// Ignores errors.
    fn prefetch_lookups(&self, dir: &Self::Node) {
        let _ = dir;
    }

    /// Bytes of a new node, for a budget.
    fn node_bytes(&self, node: &Self::Node) -> usize;

    /// A node's attributes.
    fn attr(&self, node: &Self::Node) -> Attr;

    /// An inode's attributes, for scans. `None`: a node may have newer ones, or costs no more.
    fn stat(&self, ino: Ino) -> Option<Result<Attr>> {
        let _ = ino;
        None
    }

    /// Looks up a name; `None` if it does not exist.
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<Lookup>>;

    /// The folded name in a case-insensitive directory. Folding is idempotent.
    fn fold_name(&self, dir: &Self::Node, name: &[u8]) -> Option<Vec<u8>> {
        let _ = (dir, name);
        None
    }

    /// Calls `each` for entries after `start` in the directory's order, until it breaks.
    fn readdir(
        &self,
        dir: &Self::Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// As [`readdir`](FileSystem::readdir) from the start, in any order, without valid cookies.
    /// Reports unreadable parts to `damaged`. Fails if nothing can be listed.
    fn readdir_past_damage(
        &self,
        dir: &Self::Node,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let _ = damaged;
        self.readdir(dir, ReaddirStart::First, each)
    }

    /// The parent directory; the root's is the root.
    fn parent(&self, dir: &Self::Node) -> Result<Ino>;

    /// Reads from byte `offset`. Returns the number of bytes, less than asked for only at the end.
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Data or hole at `offset`. [`Error::NoExtent`](crate::Error::NoExtent): at or after the end.
    fn extent(&self, node: &Self::Node, offset: u64) -> Result<Extent>;

    /// The target of a symbolic link.
    fn readlink(&self, node: &Self::Node) -> Result<Vec<u8>>;

    /// The value of an extended attribute by its full name.
    fn getxattr(&self, node: &Self::Node, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Full names of all extended attributes.
    fn listxattr(&self, node: &Self::Node) -> Result<Vec<Vec<u8>>>;

    /// Statistics.
    fn statfs(&self) -> Result<FsStat>;

    /// Discards free space in runs of at least `least` bytes within `bytes` (`FITRIM`). Returns the
    /// number of bytes. [`Error::Unsupported`](crate::Error::Unsupported): device or file system
    /// cannot.
    fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let _ = (bytes, least);
        Err(Error::Unsupported("this file system cannot discard free space".into()))
    }

    /// Granularity of times: a power of ten nanoseconds, at most a second.
    fn time_granularity(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// Whether it was opened read-only, or is read-only after an error.
    fn is_read_only(&self) -> bool {
        true
    }

    /// Creates an inode with a new name (`open(O_CREAT)`, `mkdir`, `mknod`, `symlink`).
    fn create(&self, dir: &Self::Node, name: &[u8], new: &NewInode<'_>) -> Result<Self::Node> {
        let _ = (dir, name, new);
        Err(Error::ReadOnly)
    }

    /// Creates an inode without a name near `dir` (`O_TMPFILE`). Unless it is linked,
    /// [`evict`](FileSystem::evict) frees it.
    fn create_unnamed(&self, dir: &Self::Node, new: &NewInode<'_>) -> Result<Self::Node> {
        let _ = (dir, new);
        Err(Error::ReadOnly)
    }

    /// May prepare an empty directory, held exclusively, for so many entries.
    /// [`Error::NotEmpty`](crate::Error::NotEmpty).
    fn reserve_entries(&self, dir: &Self::Node, entries: u64) -> Result<()> {
        let _ = (dir, entries);
        Ok(())
    }

    /// Adds the new name `name` to `node`, not a directory.
    fn link(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes a name of `node`, not a directory. An inode without names lives until
    /// [`evict`](FileSystem::evict).
    fn unlink(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes the directory `node`. [`Error::NotEmpty`](crate::Error::NotEmpty): it has entries.
    fn rmdir(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes `node`'s last name and frees the inode in one step. The node has no other reference;
    /// `true`: it is dropped without [`evict`](FileSystem::evict). Fails as
    /// [`rmdir`](FileSystem::rmdir).
    ///
    /// `false`: nothing is changed, and `Vfs` calls [`unlink`](FileSystem::unlink) or `rmdir`.
    fn unlink_and_free(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<bool> {
        let _ = (dir, name, node);
        Ok(false)
    }

    /// Renames in one step. [`Error::NotEmpty`](crate::Error::NotEmpty): the replaced directory has
    /// entries.
    fn rename(&self, rename: &Rename<'_, Self::Node>) -> Result<()> {
        let _ = rename;
        Err(Error::ReadOnly)
    }

    /// Sets attributes, all or none.
    fn set_attr(&self, node: &Self::Node, changes: &SetAttr) -> Result<()> {
        let _ = (node, changes);
        Err(Error::ReadOnly)
    }

    /// Sets user flags (`FS_IOC_SETFLAGS`). [`Error::Unsupported`](crate::Error::Unsupported): the
    /// inode cannot have one.
    fn set_flags(&self, node: &Self::Node, flags: u32) -> Result<()> {
        let _ = (node, flags);
        Err(Error::ReadOnly)
    }

    /// Writes to a regular file. Returns the number of bytes, less than given only without space.
    fn write(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (node, offset, data);
        Err(Error::ReadOnly)
    }

    /// As [`write`](FileSystem::write), from a front end's write-back cache, which sets times.
    fn write_back(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (node, offset, data);
        Err(Error::ReadOnly)
    }

    /// Writes at the end of a regular file. Returns offset and number of bytes.
    fn append(&self, node: &Self::Node, data: &[u8]) -> Result<(u64, usize)> {
        let _ = (node, data);
        Err(Error::ReadOnly)
    }

    /// Changes the space of a regular file; `len` is at least 1.
    fn allocate(&self, node: &Self::Node, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let _ = (node, offset, len, how);
        Err(Error::ReadOnly)
    }

    /// Makes earlier writes to the inode durable, or changes of a directory's names.
    fn fsync(&self, node: &Self::Node, durability: Durability) -> Result<()> {
        let _ = (node, durability);
        Ok(())
    }

    /// [`fsync`](FileSystem::fsync) of all inodes.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Called when the last reference is dropped: frees an inode without names. The next
    /// [`sync`](FileSystem::sync) reports errors.
    fn evict(&self, node: &Self::Node) {
        let _ = node;
    }

    /// Sets an extended attribute by its full name.
    fn setxattr(&self, node: &Self::Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let _ = (node, name, value, how);
        Err(Error::ReadOnly)
    }

    /// Sets or removes the access ACL, with attributes but the length: all or nothing.
    fn set_acl(&self, node: &Self::Node, acl: Option<&[u8]>, attributes: &SetAttr) -> Result<()> {
        let _ = (node, acl, attributes);
        Err(Error::ReadOnly)
    }

    /// Removes an extended attribute. [`Error::NoAttribute`](crate::Error::NoAttribute): it is
    /// missing.
    fn removexattr(&self, node: &Self::Node, name: &[u8]) -> Result<()> {
        let _ = (node, name);
        Err(Error::ReadOnly)
    }
}
