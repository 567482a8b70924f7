//! Conversions between types of the vfs and of fuser.

use crate::known::NodeId;
use dentree_vfs::{Attr, Error, FileType, Ino, Timestamp};
use fuser::{Errno, FileAttr, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The owner and group of all files, instead of the image's: `-o uid=`, `-o gid=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ownership {
    /// The owner, or `None` for the image's.
    pub uid: Option<u32>,
    /// The group, or `None` for the image's.
    pub gid: Option<u32>,
}

/// Node ids are inode numbers, except for FUSE's root, 1. A file that has inode number 1 gets the
/// root's: the mapping is its own inverse.
#[derive(Clone, Copy)]
pub(crate) struct NodeIds {
    pub(crate) root: Ino,
}

impl NodeIds {
    pub(crate) fn node(self, ino: Ino) -> NodeId {
        NodeId(self.swap(ino.0))
    }

    pub(crate) fn ino(self, node: NodeId) -> Ino {
        Ino(self.swap(node.0))
    }

    fn swap(self, number: u64) -> u64 {
        match number {
            n if n == self.root.0 => NodeId::ROOT.0,
            n if n == NodeId::ROOT.0 => self.root.0,
            n => n,
        }
    }
}

pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno().raw_os_error())
}

pub(crate) fn file_type(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// Attributes with the number `shown`, from which fuser takes the node id of an entry.
pub(crate) fn file_attr(attr: &Attr, shown: INodeNo, owner: Ownership) -> FileAttr {
    FileAttr {
        ino: shown,
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.permissions,
        nlink: attr.nlink,
        uid: owner.uid.unwrap_or(attr.uid),
        gid: owner.gid.unwrap_or(attr.gid),
        rdev: device_number(attr.rdev_major, attr.rdev_minor),
        blksize: attr.block_size,
        flags: 0,
    }
}

/// The entry of an unreadable inode in a listing: its type only. Its lifetime is zero, so that a
/// request for the file gets the error.
pub(crate) fn unreadable_attr(kind: Option<FileType>, shown: INodeNo) -> FileAttr {
    FileAttr {
        ino: shown,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind.unwrap_or(FileType::Regular)),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|t| t.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

/// A time from the kernel. Before 1970 fuser subtracts the nanoseconds, which always count
/// forwards; this undoes it.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let parts = |since: Duration| (since.as_secs() as i64, since.subsec_nanos());
    match time.duration_since(UNIX_EPOCH).map(parts) {
        Ok((seconds, nanos)) => Timestamp { seconds, nanos },
        Err(before) => {
            let (seconds, nanos) = parts(before.duration());
            Timestamp { seconds: -seconds, nanos }
        }
    }
}

/// The inverse of [`device_number`].
pub(crate) fn device_numbers(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

/// Device numbers in 32 bits, 12 of the major and 20 of the minor number, as `new_encode_dev` packs
/// them.
fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_and_inode_numbers_map_one_to_one() {
        let ids = NodeIds { root: Ino(2) };
        assert_eq!(ids.node(Ino(2)), NodeId::ROOT);
        assert_eq!(ids.node(Ino(1)), NodeId(2));
        for number in [1, 2, 3, 11, u64::MAX] {
            assert_eq!(ids.ino(ids.node(Ino(number))), Ino(number));
        }
    }

    #[test]
    fn a_time_before_1970_keeps_its_nanoseconds() {
        let time = system_time(Timestamp { seconds: -2, nanos: 300_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(time).unwrap(), Duration::from_millis(1700));
    }

    #[test]
    fn device_numbers_pack_as_the_kernel_unpacks_them() {
        assert_eq!(device_number(8, 1), 0x801);
        assert_eq!(device_number(0xabc, 0x12345), 0x123a_bc45);
        assert_eq!(device_numbers(0x123a_bc45), (0xabc, 0x12345));
    }
}
