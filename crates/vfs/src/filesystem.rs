//! What a file system must offer so that [`Vfs`](crate::Vfs) can serve it.

use crate::{Allocate, Attr, Durability, Error, FileType, Ino, NewInode, Result, SetAttr, SetXattr};
use std::ops::{ControlFlow, Range};
use std::time::Duration;

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

/// One end of a rename: a name in a directory.
pub struct NameIn<'a, N> {
    /// The directory.
    pub dir: &'a N,
    /// The name in it.
    pub name: &'a [u8],
}

/// A rename that `Vfs` has found allowed: see [`FileSystem::rename`].
pub struct Rename<'a, N> {
    /// The name that goes.
    pub from: NameIn<'a, N>,
    /// The inode that has it.
    pub moved: &'a N,
    /// The name that comes.
    pub to: NameIn<'a, N>,
    /// The inode that has the new name so far.
    pub replaced: Option<&'a N>,
    /// Whether `moved` and `replaced` change places (`RENAME_EXCHANGE`); else `replaced` is unlinked.
    pub exchange: bool,
    /// An inode without a name that gets the old one in the same step (`RENAME_WHITEOUT`).
    pub left: Option<&'a N>,
}

/// A file system: inodes by number, directories by single name. It knows nothing of paths.
///
/// Every method may be called by many threads at once. `Node` is the in-memory form of an inode; `Vfs` keeps
/// nodes in its inode cache and hands them back, so that an implementation parses an inode once.
/// Directories are reported without `.` and `..`: the walk knows them.
///
/// # Changes
/// A file system that is never changed implements none of the methods behind [`statfs`](FileSystem::statfs): they answer
/// [`Error::ReadOnly`](crate::Error::ReadOnly). `Vfs` keeps three promises to one that is. It has decided that the caller may do it, and
/// that the kinds fit (a directory is not unlinked, `.` is not renamed, no directory is moved below itself). In one directory
/// [`make`](FileSystem::make), [`link`](FileSystem::link) and [`unlink`](FileSystem::unlink) of different names may come side by side, and
/// look-ups of any name beside them; changes of one name come one after the other, and nobody lists while names are changed.
/// A directory in which names are renamed, or from which a directory is removed, nobody else looks at meanwhile, nor at one that is removed or
/// replaced. And whoever works with a node holds the only node of that inode. Everything else, reads
/// and writes of one file at once above all, is the file system's to order. Each method is atomic: after a crash all of it is there, or
/// nothing, and an error has changed nothing.
pub trait FileSystem: Send + Sync + 'static {
    /// An inode in memory.
    type Node: Send + Sync + 'static;

    /// The root directory's inode number.
    fn root(&self) -> Ino;

    /// Reads inode `ino`.
    fn load(&self, ino: Ino) -> Result<Self::Node>;

    /// Whether inode `ino` is in use and has a name. Asked of any number, by a client that kept it:
    /// of numbers beyond the last, of free inodes, and of those that the file system keeps for
    /// itself, which have none. No inode is made meanwhile.
    fn has_name(&self, ino: Ino) -> Result<bool> {
        let _ = ino;
        Ok(false)
    }

    /// Says that these inodes will be loaded soon, so that what they are read from can be on its way. Waits for nothing; whatever is wrong is
    /// told when they are loaded.
    fn expect_loads(&self, inos: &[Ino]) {
        let _ = inos;
    }

    /// Says that these directories will be listed soon, so that what they begin with can be on its way. May wait for their inodes, for no more;
    /// whatever is wrong is told when they are listed.
    fn expect_listings(&self, dirs: &[Ino]) {
        let _ = dirs;
    }

    /// Says that names will be looked up in this directory soon, so that what each look-up there begins with is in memory, or on its way.
    /// May wait for a part of it: for who has nobody waiting. Whatever is wrong is told by the look-up.
    fn expect_lookups(&self, dir: &Self::Node) {
        let _ = dir;
    }

    /// What memory a node takes in bytes, for the inode cache's budget; asked once, when the node is new.
    fn node_bytes(&self, node: &Self::Node) -> usize;

    /// The attributes of a node.
    fn attr(&self, node: &Self::Node) -> Attr;

    /// The attributes of inode `ino`, without a node: for who asks for many inodes once. `None` where a node may know better than the
    /// file system, or costs no more.
    fn stat(&self, ino: Ino) -> Option<Result<Attr>> {
        let _ = ino;
        None
    }

    /// The inode that directory `dir` has under `name`, or `None` where it has no such name.
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<Lookup>>;

    /// The one form that all spellings of a name share in `dir` where it ignores case, or `None` where it does not. A form's
    /// own form is itself.
    fn fold_name(&self, dir: &Self::Node, name: &[u8]) -> Option<Vec<u8>> {
        let _ = (dir, name);
        None
    }

    /// Calls `each` for every entry behind `start`, in the directory's own stable order, until it breaks.
    fn readdir(
        &self,
        dir: &Self::Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// As [`readdir`](FileSystem::readdir) from the first entry on, past parts that cannot be read: `damaged` is told of each. In any
    /// order; a cookie leads nowhere. Fails where nothing at all can be listed.
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

    /// Gives space that is free back to the device, of what lies in these bytes of it, in runs of at least `least`
    /// bytes (`FITRIM`). Returns how many bytes. [`Error::Unsupported`](crate::Error::Unsupported) where that cannot be.
    fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let _ = (bytes, least);
        Err(Error::Unsupported("this file system gives no space back".into()))
    }

    /// The smallest difference between two times that a new inode can hold: a power of ten nanoseconds, at most a second.
    fn time_granularity(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// Whether changes are refused now: it was opened so, or an error has made it so.
    fn is_read_only(&self) -> bool {
        true
    }

    /// Makes an inode and links it under `name`, which `dir` does not have (`open(O_CREAT)`, `mkdir`, `mknod`, `symlink`).
    fn make(&self, dir: &Self::Node, name: &[u8], new: &NewInode<'_>) -> Result<Self::Node> {
        let _ = (dir, name, new);
        Err(Error::ReadOnly)
    }

    /// Makes an inode without a name, near `dir` (`O_TMPFILE`). It goes with its last holder unless it is linked before.
    fn make_unnamed(&self, dir: &Self::Node, new: &NewInode<'_>) -> Result<Self::Node> {
        let _ = (dir, new);
        Err(Error::ReadOnly)
    }

    /// Makes ready the directory `dir` for so many entries; [`Error::NotEmpty`](crate::Error::NotEmpty) where it has some. Nobody else looks at
    /// it meanwhile. Without anything to make ready there is nothing to do.
    fn expect_entries(&self, dir: &Self::Node, entries: u64) -> Result<()> {
        let _ = (dir, entries);
        Ok(())
    }

    /// Gives `node`, not a directory, one more name, which `dir` does not have.
    fn link(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Takes the name `name` in `dir` from `node`, which is not a directory. Without any name left, the inode lives until
    /// [`evict`](FileSystem::evict).
    fn unlink(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Removes the directory `node`, which `dir` has under `name`; [`Error::NotEmpty`](crate::Error::NotEmpty) where it has entries.
    fn rmdir(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        let _ = (dir, name, node);
        Err(Error::ReadOnly)
    }

    /// Takes the last name of `node`, of whatever kind, and frees the inode, in one step. Nobody else has the node, nor gets it before this
    /// has returned; it is dropped then without being [evicted](FileSystem::evict).
    /// [`Error::NotEmpty`](crate::Error::NotEmpty) as from [`rmdir`](FileSystem::rmdir).
    ///
    /// Answers `false`, and has changed nothing, where that takes more than one step, or `node` has other names:
    /// [`unlink`](FileSystem::unlink) or `rmdir` is called then.
    fn unlink_and_free(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<bool> {
        let _ = (dir, name, node);
        Ok(false)
    }

    /// Moves an inode to another name, in one step; [`Error::NotEmpty`](crate::Error::NotEmpty) where a directory with entries would be replaced.
    fn rename(&self, rename: &Rename<'_, Self::Node>) -> Result<()> {
        let _ = rename;
        Err(Error::ReadOnly)
    }

    /// Sets attributes, all of them or none.
    fn set_attr(&self, node: &Self::Node, changes: &SetAttr) -> Result<()> {
        let _ = (node, changes);
        Err(Error::ReadOnly)
    }

    /// Makes the flags of [`Attr::flags`] those of `flags` (`FS_IOC_SETFLAGS`), as far as they are a caller's to set;
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the inode cannot have one, or not come to it.
    fn set_flags(&self, node: &Self::Node, flags: u32) -> Result<()> {
        let _ = (node, flags);
        Err(Error::ReadOnly)
    }

    /// Writes `data` at byte `offset` of a regular file, and lengthens it where need be; answers how many bytes: fewer than given
    /// only where space ran out behind them.
    fn write(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (node, offset, data);
        Err(Error::ReadOnly)
    }

    /// As [`write`](FileSystem::write), of what a front door has gathered from programs: it has the times of their changes and sets
    /// them itself, so they stay as they are.
    fn write_back(&self, node: &Self::Node, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (node, offset, data);
        Err(Error::ReadOnly)
    }

    /// Writes `data` at the end of a regular file, wherever that is by now; answers the offset, and how many bytes.
    fn append(&self, node: &Self::Node, data: &[u8]) -> Result<(u64, usize)> {
        let _ = (node, data);
        Err(Error::ReadOnly)
    }

    /// Changes the space under `len` bytes (at least one) from `offset` of a regular file.
    fn allocate(&self, node: &Self::Node, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let _ = (node, offset, len, how);
        Err(Error::ReadOnly)
    }

    /// Returns once what was written to the inode before, and for a directory the changes of its names, will survive a power cut.
    /// Of a file system that is never changed that is always so.
    fn fsync(&self, node: &Self::Node, durability: Durability) -> Result<()> {
        let _ = (node, durability);
        Ok(())
    }

    /// As [`fsync`](FileSystem::fsync), for everything.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// The last holder of `node` is gone, and the inode cache does not keep it: an inode without names is freed now. Errors have
    /// nobody to go to: the file system keeps them for the next [`sync`](FileSystem::sync).
    fn evict(&self, node: &Self::Node) {
        let _ = node;
    }

    /// Sets the extended attribute `name` (a full name).
    fn setxattr(&self, node: &Self::Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let _ = (node, name, value, how);
        Err(Error::ReadOnly)
    }

    /// Sets the access ACL (in the form of `getxattr(2)`), or takes it away if there is one, and with it attributes other than the length:
    /// all of that or nothing.
    fn set_acl(&self, node: &Self::Node, acl: Option<&[u8]>, attributes: &SetAttr) -> Result<()> {
        let _ = (node, acl, attributes);
        Err(Error::ReadOnly)
    }

    /// Removes the extended attribute `name`; [`Error::NoAttribute`](crate::Error::NoAttribute) where there is none.
    fn removexattr(&self, node: &Self::Node, name: &[u8]) -> Result<()> {
        let _ = (node, name);
        Err(Error::ReadOnly)
    }
}
