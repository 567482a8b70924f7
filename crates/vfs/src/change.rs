//! Arguments of changes.

use crate::{FileType, Timestamp};

/// An inode to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// Type.
    pub kind: NewKind<'a>,
    /// `st_mode & 0o7777`, umask applied.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group, setgid directory applied.
    pub gid: u32,
    /// ACLs by full name.
    pub xattrs: &'a [(&'a [u8], Vec<u8>)],
}

/// Permissions of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// `st_mode & 0o7777`.
    pub permissions: u16,
    /// Bits to clear, unless the directory has a default ACL.
    pub umask: u16,
}

/// Without a umask.
impl From<u16> for Mode {
    fn from(permissions: u16) -> Mode {
        Mode { permissions, umask: 0 }
    }
}

/// Type of an inode to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewKind<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// Attributes to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// `st_mode & 0o7777`.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of a regular file: truncates, or appends a hole.
    pub size: Option<u64>,
    /// Access.
    pub atime: Option<SetTime>,
    /// Content change.
    pub mtime: Option<SetTime>,
    /// Inode change: from a kernel's write-back cache, else now.
    pub ctime: Option<SetTime>,
}

impl NewKind<'_> {
    /// The inode's type.
    pub fn file_type(&self) -> FileType {
        match self {
            NewKind::Regular => FileType::Regular,
            NewKind::Directory => FileType::Directory,
            NewKind::Symlink(_) => FileType::Symlink,
            NewKind::Fifo => FileType::Fifo,
            NewKind::Socket => FileType::Socket,
            NewKind::CharDevice { .. } => FileType::CharDevice,
            NewKind::BlockDevice { .. } => FileType::BlockDevice,
        }
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Now.
    Now,
    /// A given time.
    At(Timestamp),
}

/// Mode of `fallocate(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Allocates zeroed space in holes; may lengthen the file.
    Reserve,
    /// As `Reserve`, keeping the length (`FALLOC_FL_KEEP_SIZE`).
    ReserveKeepSize,
    /// Frees whole blocks and zeroes the rest (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    PunchHole,
    /// Zeroes the range, allocated; may lengthen the file (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// As `ZeroRange`, keeping the length.
    ZeroRangeKeepSize,
}

/// A rename to an existing name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnExisting {
    /// Replaces it: `rename(2)`.
    #[default]
    Replace,
    /// Fails with [`Error::Exists`](crate::Error::Exists): `RENAME_NOREPLACE`.
    Fail,
    /// Exchanges the names: `RENAME_EXCHANGE`. [`Error::NotFound`](crate::Error::NotFound): the new
    /// name does not exist.
    Exchange,
}

/// Scope of `fsync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Content and the metadata to read it: `fdatasync(2)`.
    Data,
    /// Content and all attributes: `fsync(2)`.
    Full,
}

/// Flags of `setxattr(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetXattr {
    /// Creates or replaces.
    Any,
    /// Creates, or fails (`XATTR_CREATE`).
    Create,
    /// Replaces, or fails (`XATTR_REPLACE`).
    Replace,
}
