//! What a caller may ask a file system to change: plain values.

use crate::{FileType, Timestamp};

/// An inode to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// What kind of thing it is.
    pub kind: NewKind<'a>,
    /// Permission, setuid, setgid and sticky bits: `st_mode & 0o7777`, umask already applied.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group; the rule of setgid directories is already applied.
    pub gid: u32,
    /// Extended attributes that it has from the beginning, by full name: access control lists.
    pub xattrs: &'a [(&'a [u8], Vec<u8>)],
}

/// Permissions that something is to be made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Permission, setuid, setgid and sticky bits: `st_mode & 0o7777`.
    pub permissions: u16,
    /// Those that are taken away, unless the directory has a default ACL, which is then what counts.
    pub umask: u16,
}

/// Without an umask, or with one that is applied already.
impl From<u16> for Mode {
    fn from(permissions: u16) -> Mode {
        Mode { permissions, umask: 0 }
    }
}

/// The kind of an inode to be made, with what only that kind has.
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

/// Attributes to set: those that are given. The change time is always set to now, unless it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission, setuid, setgid and sticky bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes of a regular file: cuts it, or lengthens it by a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, for those who keep it themselves (a kernel's write-back cache).
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
    /// This one.
    At(Timestamp),
}

/// What `fallocate(2)` is to do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Give it space that reads as zeros where it had none; lengthen the file to its end if need be.
    Reserve,
    /// As `Reserve`, but leave the length (`FALLOC_FL_KEEP_SIZE`).
    ReserveKeepSize,
    /// Free its whole blocks and zero the rest (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    PunchHole,
    /// Make it read as zeros, and keep space for it; lengthen the file if need be (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// As `ZeroRange`, but leave the length.
    ZeroRangeKeepSize,
}

/// What a rename does where the new name is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnExisting {
    /// Replaces it: `rename(2)`.
    #[default]
    Replace,
    /// Fails with [`Error::Exists`](crate::Error::Exists): `RENAME_NOREPLACE`.
    Fail,
    /// Gives it the old name; fails with [`Error::NotFound`](crate::Error::NotFound) where it is not there:
    /// `RENAME_EXCHANGE`.
    Exchange,
}

/// How far a file must have come when `fsync` returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Content, and what is needed to read it back (`fdatasync(2)`).
    Data,
    /// Content and all attributes (`fsync(2)`).
    Full,
}

/// What `setxattr(2)` is to do about an attribute that is, or is not, there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetXattr {
    /// Create or replace.
    Any,
    /// Create; fail where it is there (`XATTR_CREATE`).
    Create,
    /// Replace; fail where it is not there (`XATTR_REPLACE`).
    Replace,
}
