//! Attributes of an inode: `stat(2)`.

use std::fmt;

/// An inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The `S_IFMT` part of a mode.
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
    /// `None`: invalid bits.
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

    /// The `S_IFMT` bits.
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

    /// As in `ls -l` and `find -type` (`f` where `ls` has `-`).
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

/// Time since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

impl Timestamp {
    /// The time by the kernel's coarse clock, with ticks of 1 to 10 ms; elsewhere than on Linux by
    /// the precise one.
    ///
    /// A tick changes a directory's times once. Behind FUSE the kernel stamps what it writes back
    /// by the same clock: it has no new times to send for a file written in the tick that made it.
    #[cfg(target_os = "linux")]
    pub fn now() -> Timestamp {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }

    /// The time. Only Linux has a coarse clock.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Timestamp {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Timestamp { seconds: now.as_secs().cast_signed(), nanos: now.subsec_nanos() }
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileType,
    /// `st_mode & 0o7777`.
    pub permissions: u16,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major device number, or 0.
    pub rdev_major: u32,
    /// Minor device number, or 0.
    pub rdev_minor: u32,
    /// Bytes.
    pub size: u64,
    /// `st_blocks`: allocated space in 512-byte units.
    pub blocks: u64,
    /// Preferred bytes of a read.
    pub block_size: u32,
    /// Access.
    pub atime: Timestamp,
    /// Content change.
    pub mtime: Timestamp,
    /// Inode change.
    pub ctime: Timestamp,
    /// Creation; `None` if not stored.
    pub crtime: Option<Timestamp>,
    /// Changes when the inode number is reused.
    pub generation: u32,
    /// `FS_*_FL`, as from `FS_IOC_GETFLAGS`.
    pub flags: u32,
    /// There is an access ACL beyond the permission bits.
    pub has_acl: bool,
}

impl Attr {
    /// `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | u32::from(self.permissions)
    }

    /// Whether walks skip the check of search permission.
    pub(crate) fn all_may_search(&self) -> bool {
        self.permissions & 0o111 == 0o111 && !self.has_acl
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}
