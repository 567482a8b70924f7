//! The attributes of an inode: `stat(2)`.

use std::fmt;

/// An inode number, unique within its file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of an inode: the `S_IFMT` part of its mode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// The type in a `st_mode`, or `None` for invalid type bits.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileType::Fifo,
            0o020_000 => FileType::CharDevice,
            0o040_000 => FileType::Directory,
            0o060_000 => FileType::BlockDevice,
            0o100_000 => FileType::Regular,
            0o120_000 => FileType::Symlink,
            0o140_000 => FileType::Socket,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits of this type.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::CharDevice => 0o020_000,
            FileType::Directory => 0o040_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Regular => 0o100_000,
            FileType::Symlink => 0o120_000,
            FileType::Socket => 0o140_000,
        }
    }

    /// The letter of `ls -l` and `find -type` (`f` where `ls` has `-`).
    pub fn letter(self) -> char {
        match self {
            FileType::Fifo => 'p',
            FileType::CharDevice => 'c',
            FileType::Directory => 'd',
            FileType::BlockDevice => 'b',
            FileType::Regular => 'f',
            FileType::Symlink => 'l',
            FileType::Socket => 's',
        }
    }
}

/// Seconds since 1970-01-01 UTC, and nanoseconds after that second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds since the epoch, negative before.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// The attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Kind of inode.
    pub kind: FileType,
    /// Permission, setuid, setgid and sticky bits: `st_mode & 0o7777`.
    pub permissions: u16,
    /// Number of names that link to it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device numbers of a character or block device, else 0.
    pub rdev_major: u32,
    /// See [`rdev_major`](Attr::rdev_major).
    pub rdev_minor: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes, as `st_blocks`.
    pub blocks: u64,
    /// Preferred size of a read in bytes.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, if the inode has the field.
    pub crtime: Option<Timestamp>,
    /// Generation number: changes when the inode number is reused.
    pub generation: u32,
    /// `FS_*_FL` flags as `lsattr` and `FS_IOC_GETFLAGS` give them.
    pub flags: u32,
    /// The inode has an access ACL beyond its permission bits.
    pub has_acl: bool,
}

impl Attr {
    /// The whole `st_mode`: type and permissions.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | u32::from(self.permissions)
    }

    /// Whether everybody may search this directory, so that walks skip the check.
    pub(crate) fn all_may_search(&self) -> bool {
        self.permissions & 0o111 == 0o111 && !self.has_acl
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}
