//! Attributes of an inode, as C has them.

use dentree_vfs::Attr;

/// What stat(2) tells, and more that ext4 has.
#[repr(C)]
pub struct dentree_stat {
    pub ino: u64,
    /// In bytes.
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    /// As lsattr(1) has them.
    pub flags: u32,
    /// Tells inodes that had the same number one after another apart.
    pub generation: u32,
    /// Seconds since 1970.
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    /// Of creation; 0 where the inode is too small to have it.
    pub crtime: i64,
    pub atime_nsec: u32,
    pub mtime_nsec: u32,
    pub ctime_nsec: u32,
    pub crtime_nsec: u32,
}

impl From<&Attr> for dentree_stat {
    fn from(attr: &Attr) -> Self {
        let crtime = attr.crtime.unwrap_or_default();
        dentree_stat {
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            mode: attr.mode(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev_major: attr.rdev_major,
            rdev_minor: attr.rdev_minor,
            flags: attr.flags,
            generation: attr.generation,
            atime: attr.atime.seconds,
            mtime: attr.mtime.seconds,
            ctime: attr.ctime.seconds,
            crtime: crtime.seconds,
            atime_nsec: attr.atime.nanos,
            mtime_nsec: attr.mtime.nanos,
            ctime_nsec: attr.ctime.nanos,
            crtime_nsec: crtime.nanos,
        }
    }
}
