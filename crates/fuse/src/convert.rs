//! Conversions between types of the vfs and of the protocol.

use crate::abi;
use crate::known::NodeId;
use dentree_vfs::{Attr, FileType, Ino};

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

/// Attributes that show the number `shown`.
pub(crate) fn file_attr(attr: &Attr, shown: u64, owner: Ownership) -> abi::Attr {
    abi::Attr {
        ino: shown,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.seconds,
        mtime: attr.mtime.seconds,
        ctime: attr.ctime.seconds,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.kind.mode_bits() | u32::from(attr.permissions),
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
pub(crate) fn unreadable_attr(kind: Option<FileType>, shown: u64) -> abi::Attr {
    let mode = kind.unwrap_or(FileType::Regular).mode_bits();
    abi::Attr { ino: shown, mode, nlink: 1, ..abi::Attr::default() }
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
    use dentree_vfs::Timestamp;

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
        let vfs = dentree_vfs::Vfs::new(dentree_vfs::MemoryFs::default()).unwrap();
        let mtime = Timestamp { seconds: -2, nanos: 300_000_000 };
        let shown = file_attr(&Attr { mtime, ..vfs.root().attr() }, 7, Ownership::default());
        assert_eq!((shown.mtime, shown.mtimensec, shown.ino), (-2, 300_000_000, 7));
    }

    #[test]
    fn device_numbers_pack_as_the_kernel_unpacks_them() {
        assert_eq!(device_number(8, 1), 0x801);
        assert_eq!(device_number(0xabc, 0x12345), 0x123a_bc45);
        assert_eq!(device_numbers(0x123a_bc45), (0xabc, 0x12345));
    }
}
