//! Arguments of changes: plain values.

use crate::{FileType, Timestamp};

/// An inode to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// Its type.
    pub kind: NewKind<'a>,
    /// Permission, setuid, setgid and sticky bits: `st_mode & 0o7777`, umask already applied.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group; the rule of setgid directories is already applied.
    pub gid: u32,
    /// Initial extended attributes by full name: access control lists.
    pub xattrs: &'a [(&'a [u8], Vec<u8>)],
}

/// Permissions for a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Permission, setuid, setgid and sticky bits: `st_mode & 0o7777`.
    pub permissions: u16,
    /// Bits to clear, unless the directory has a default ACL.
    pub umask: u16,
}

/// Without umask, or with the umask already applied.
impl From<u16> for Mode {
    fn from(permissions: u16) -> Mode {
        Mode { permissions, umask: 0 }
    }
}

/// The type of an inode to create, with the data specific to that type.
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

/// Attributes to set. The change time is set to now unless it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission, setuid, setgid and sticky bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of a regular file in bytes: truncates it, or lengthens it by a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, for callers that track it (a kernel's write-back cache).
    pub ctime: Option<SetTime>,
}

impl NewKind<'_> {
    /// The type that the inode will have.
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
    /// The file system's current time.
    Now,
    /// A given time.
    At(Timestamp),
}

/// The mode of `fallocate(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Allocate zeroed space where there is none; lengthen the file if needed.
    Reserve,
    /// As `Reserve`, but keep the length (`FALLOC_FL_KEEP_SIZE`).
    ReserveKeepSize,
    /// Free whole blocks and zero the rest of the range
    /// (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    PunchHole,
    /// Zero the range and keep it allocated; lengthen the file if needed (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// As `ZeroRange`, but keep the length.
    ZeroRangeKeepSize,
}

/// What a rename does if the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnExisting {
    /// Replaces it: `rename(2)`.
    #[default]
    Replace,
    /// Fails with [`Error::Exists`](crate::Error::Exists): `RENAME_NOREPLACE`.
    Fail,
    /// Exchanges the two names; fails with [`Error::NotFound`](crate::Error::NotFound) if the new
    /// name does not exist: `RENAME_EXCHANGE`.
    Exchange,
}

/// What `fsync` makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Content, and the metadata needed to read it (`fdatasync(2)`).
    Data,
    /// Content and all attributes (`fsync(2)`).
    Full,
}

/// The flags of `setxattr(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetXattr {
    /// Create or replace.
    Any,
    /// Create; fail if it exists (`XATTR_CREATE`).
    Create,
    /// Replace; fail if it does not exist (`XATTR_REPLACE`).
    Replace,
}
