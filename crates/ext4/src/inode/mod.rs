//! Inodes, in the table and in memory.
//!
//! | file | contents |
//! |---|---|
//! | `node` | an inode in memory: current snapshot, locks |
//! | `copies` | per-thread copies of snapshots |
//! | `attributes` | setting attributes and flags |
//! | `orphans` | orphan list, orphan file |
//! | `evict` | freeing inodes without links |

mod attributes;
mod copies;
mod evict;
mod node;
mod orphans;

pub(crate) use attributes::apply;
pub use node::Node;
pub(crate) use node::SnapshotRef;
pub(crate) use orphans::{ORPHAN_CREDITS, Orphans};

use crate::{Ext4, Place, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::xattr::{Namespace, XattrList, XattrValue};
use dentree_ext4_format::{
    BlockNumber, DeviceNumber, GroupNumber, Inode, InodeFlags, InodeNumber, InodeTime, Problem, RoCompat,
    Superblock,
};
use dentree_vfs::{Attr, FileType, Ino, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) ino: InodeNumber,
    pub(crate) kind: FileType,
    pub(crate) inode: Inode,
    /// After the fields: attributes or inline data.
    pub(crate) tail: Box<[u8]>,
    pub(crate) has_acl: bool,
    /// The size on disk, if it differs from `inode.size` because content is in memory only.
    pub(crate) disk_size: Option<u64>,
    /// Blocks reserved for content in memory.
    pub(crate) reserved: u64,
}

impl Snapshot {
    pub(crate) fn place(&self, structure: Structure) -> Place {
        structure.of(self.ino)
    }

    pub(crate) fn has(&self, flags: InodeFlags) -> bool {
        self.inode.flags.has(flags)
    }

    pub(crate) fn maps_nothing(&self) -> bool {
        let maps = match self.kind {
            FileType::Regular | FileType::Directory => !self.has(InodeFlags::INLINE_DATA),
            // A short target is in `i_block`.
            FileType::Symlink => self.inode.size >= 60 && !self.has(InodeFlags::INLINE_DATA),
            _ => false,
        };
        !maps
    }

    /// `is_dirty`: `disk_size` grows when content, or zeros after the old end, are written.
    pub(crate) fn set_size(&mut self, size: u64, is_dirty: bool) {
        if size > self.inode.size && is_dirty {
            self.disk_size.get_or_insert(self.inode.size);
        }
        self.inode.size = size;
    }

    pub(crate) fn encode(&self, bytes: &mut [u8], sb: &Superblock) {
        if let Some(tail) = bytes.get_mut(self.inode.fields_len..) {
            tail.fill(0);
            tail.iter_mut().zip(&self.tail).for_each(|(to, from)| *to = *from);
        }
        match self.disk_size {
            Some(size) => {
                let mut inode = self.inode.clone();
                inode.size = size;
                inode.encode(bytes, sb);
            }
            None => self.inode.encode(bytes, sb),
        }
    }
}

impl Ext4 {
    pub(crate) fn read_inode(&self, ino: InodeNumber) -> Result<Snapshot> {
        self.read_inode_as(ino, Inode::parse)
    }

    /// The inode may have no links.
    pub(crate) fn read_orphan(&self, ino: InodeNumber) -> Result<Snapshot> {
        self.read_inode_as(ino, Inode::parse_orphan)
    }

    /// The inode is in use, not reserved, and has links.
    pub(crate) fn is_named(&self, ino: InodeNumber) -> Result<bool> {
        let kept = ino.0 < self.sb.first_ino && ino != InodeNumber::ROOT || ino.0 == self.sb.orphan_file_inum;
        if kept || self.sb.check_inode("the inode number", ino).is_err() || !self.is_inode_in_use(ino)? {
            return Ok(false);
        }
        let inode = self.read_orphan(ino)?.inode;
        Ok(inode.links > 0 && !inode.flags.has(InodeFlags::EA_INODE))
    }

    fn inode_block(&self, ino: InodeNumber) -> Result<(Buffer, usize, Place)> {
        let place = Structure::Inode.of(ino);
        self.sb.check_inode("the inode number", ino).map_err(|problem| place.corrupt(problem))?;
        let (block, within) = self.find_inode(ino)?;
        let place = place.at(block);
        let plan = |first| self.inode_table_neighbours(ino, block, first).map(|runs| move || runs);
        Ok((self.metadata_ahead(block, place, plan)?, within, place))
    }

    fn inode_in<'b>(&self, buffer: &'b Buffer, within: usize) -> &'b [u8] {
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        buffer.chunks_exact(size).nth(within).unwrap_or_default()
    }

    pub(crate) fn inode_bytes(&self, ino: InodeNumber) -> Result<(Vec<u8>, Place)> {
        let (buffer, within, place) = self.inode_block(ino)?;
        Ok((self.inode_in(&buffer, within).to_vec(), place))
    }

    fn read_inode_as(
        &self,
        ino: InodeNumber,
        parse: fn(&[u8], InodeNumber, &Superblock) -> Result<Inode, Problem>,
    ) -> Result<Snapshot> {
        let (buffer, within, place) = self.inode_block(ino)?;
        let bytes = self.inode_in(&buffer, within);
        let inode = parse(bytes, ino, &self.sb).map_err(|problem| place.corrupt(problem))?;
        self.check_parsed(&inode, place).map(|kind| self.keep(ino, kind, inode, bytes))
    }

    fn check_parsed(&self, inode: &Inode, place: Place) -> Result<FileType> {
        let kind = FileType::from_mode(u32::from(inode.mode)).ok_or_else(|| {
            let because = "is no known file type";
            place.corrupt(Problem::Value { field: "i_mode", value: u64::from(inode.mode), because })
        })?;
        if let Some(block) = inode.xattr_block {
            self.sb.check_blocks("i_file_acl", block, 1).map_err(|problem| place.corrupt(problem))?;
        }
        Ok(kind)
    }

    /// Accepts any number of links.
    pub(crate) fn parse_inode(&self, ino: InodeNumber, bytes: &[u8], place: Place) -> Result<Snapshot> {
        self.parse_by(ino, bytes, place, &self.sb)
    }

    /// Accepts any checksum.
    pub(crate) fn parse_unverified(&self, ino: InodeNumber, bytes: &[u8], place: Place) -> Result<Snapshot> {
        let mut sb = self.sb.clone();
        sb.ro_compat = sb.ro_compat.without(RoCompat::METADATA_CSUM);
        self.parse_by(ino, bytes, place, &sb)
    }

    fn parse_by(&self, ino: InodeNumber, bytes: &[u8], place: Place, sb: &Superblock) -> Result<Snapshot> {
        let inode = Inode::parse_orphan(bytes, ino, sb).map_err(|problem| place.corrupt(problem))?;
        let kind = self.check_parsed(&inode, place)?;
        let tail = tail(&inode, bytes).into();
        Ok(Snapshot { ino, kind, inode, tail, has_acl: false, disk_size: None, reserved: 0 })
    }

    fn keep(&self, ino: InodeNumber, kind: FileType, inode: Inode, bytes: &[u8]) -> Snapshot {
        let tail = tail(&inode, bytes).into();
        let mut node = Snapshot { ino, kind, inode, tail, has_acl: false, disk_size: None, reserved: 0 };
        // Errors show when attributes are read.
        node.has_acl = self.has_access_acl(&node).unwrap_or(true);
        node
    }

    /// `i_block`, and attribute `system.data`.
    pub(crate) fn inline_parts<'a>(&self, node: &'a Snapshot) -> Result<(&'a [u8; 60], &'a [u8])> {
        let corrupt = |problem| node.place(Structure::InlineData).corrupt(problem);
        let Some(list) = XattrList::in_inode(&node.tail) else { return Ok((&node.inode.block, &[])) };
        let rest = match list.find(Namespace::System, b"data").map_err(corrupt)?.map(|entry| entry.value) {
            None => &[],
            Some(XattrValue::Inline(value)) => value,
            Some(XattrValue::Inode { inode, .. }) => {
                let (field, because) = ("e_value_inum", "cannot hold inline data");
                return Err(corrupt(Problem::Value { field, value: u64::from(inode.0), because }));
            }
        };
        Ok((&node.inode.block, rest))
    }

    /// Reads the table, without a snapshot.
    pub(crate) fn stored_attr(&self, ino: InodeNumber) -> Result<Attr> {
        let (buffer, within, place) = self.inode_block(ino)?;
        let bytes = self.inode_in(&buffer, within);
        let inode = Inode::parse(bytes, ino, &self.sb).map_err(|problem| place.corrupt(problem))?;
        let kind = self.check_parsed(&inode, place)?;
        if inode.xattr_block.is_none() && tail(&inode, bytes).is_empty() {
            return Ok(self.attr_from(ino, kind, &inode, 0, false));
        }
        Ok(self.attr_of(&self.keep(ino, kind, inode, bytes)))
    }

    /// The block in the inode table, and the index in it.
    pub(crate) fn find_inode(&self, ino: InodeNumber) -> Result<(BlockNumber, usize)> {
        let index = ino.0 - 1;
        let table = self.inode_table(GroupNumber(index / self.sb.inodes_per_group))?;
        let in_group = index % self.sb.inodes_per_group;
        let per_block = self.sb.block_size.bytes() / self.sb.inode_size;
        let block = BlockNumber(table.0 + u64::from(in_group / per_block));
        Ok((block, usize::try_from(in_group % per_block).unwrap_or(usize::MAX)))
    }

    pub(crate) fn attr_of(&self, node: &Snapshot) -> Attr {
        let reserved = node.reserved << (self.sb.block_size.log2() - 9);
        self.attr_from(node.ino, node.kind, &node.inode, reserved, node.has_acl)
    }

    /// `reserved`: in sectors of 512 bytes.
    fn attr_from(
        &self,
        ino: InodeNumber,
        kind: FileType,
        inode: &Inode,
        reserved: u64,
        has_acl: bool,
    ) -> Attr {
        let device = match kind {
            FileType::CharDevice | FileType::BlockDevice => inode.device(),
            _ => DeviceNumber { major: 0, minor: 0 },
        };
        // The kernel counts the bytes of an inline file.
        let inline = inode.is_file() && inode.flags.has(InodeFlags::INLINE_DATA);
        Attr {
            ino: Ino(u64::from(ino.0)),
            kind,
            permissions: inode.mode & 0o7777,
            nlink: u32::from(inode.links),
            uid: inode.uid,
            gid: inode.gid,
            rdev_major: device.major,
            rdev_minor: device.minor,
            size: inode.size,
            blocks: inode.sectors + reserved + if inline { inode.size.div_ceil(512) } else { 0 },
            block_size: self.sb.block_size.bytes(),
            atime: timestamp(inode.atime),
            mtime: timestamp(inode.mtime),
            ctime: timestamp(inode.ctime),
            crtime: inode.crtime.map(timestamp),
            generation: inode.generation,
            flags: inode.flags.0 & InodeFlags::USER_VISIBLE.0,
            has_acl,
        }
    }
}

/// Empty if all are 0.
fn tail<'b>(inode: &Inode, bytes: &'b [u8]) -> &'b [u8] {
    let tail = bytes.get(inode.fields_len..).unwrap_or_default();
    if tail.iter().all(|&byte| byte == 0) { &[] } else { tail }
}

fn timestamp(time: InodeTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanos: time.nanos }
}
