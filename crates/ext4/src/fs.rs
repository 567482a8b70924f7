//! [`FileSystem`] for [`Ext4`]: checks each node's kind and converts errors.

use crate::file::Times;
use crate::inode::Snapshot;
use crate::{Ext4, Node};
use dentree_ext4_format::{InodeFlags, InodeNumber};
use dentree_vfs::{
    Allocate, Attr, DirEntry, Durability, Error, Extent, FileSystem, FileType, FsStat, Ino, Lookup, NewInode,
    ReaddirStart, Rename, Result, SetAttr, SetXattr,
};
use std::ops::{ControlFlow, Range};
use std::time::Duration;

const NAME_MAX: usize = 255;

/// `dir/list.rs` explains the cookies of `readdir`.
impl FileSystem for Ext4 {
    type Node = Node;

    fn root(&self) -> Ino {
        Ino(u64::from(InodeNumber::ROOT.0))
    }

    fn load(&self, ino: Ino) -> Result<Node> {
        let ino = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
        let ino = InodeNumber(ino);
        let Some(writer) = &self.writer else { return Ok(Node::new(self.read_inode(ino)?, None)) };
        if let Some(node) = writer.dirty.node(ino) {
            return Ok(node);
        }
        // The running transaction may have changed it.
        Ok(Node::new(self.read_inode(ino)?, Some(writer.journal.running())))
    }

    fn has_name(&self, ino: Ino) -> Result<bool> {
        let Ok(ino) = u32::try_from(ino.0) else { return Ok(false) };
        Ok(self.is_named(InodeNumber(ino))?)
    }

    fn prefetch_inodes(&self, inos: &[Ino]) {
        self.read_inodes_ahead(inos.iter().filter_map(|ino| u32::try_from(ino.0).ok()).map(InodeNumber));
    }

    fn prefetch_listings(&self, dirs: &[Ino]) {
        self.prefetch_directories(dirs.iter().filter_map(|ino| u32::try_from(ino.0).ok()).map(InodeNumber));
    }

    fn prefetch_lookups(&self, dir: &Node) {
        self.prefetch_index(&dir.snapshot());
    }

    fn node_bytes(&self, node: &Node) -> usize {
        // Asked once: a node that may change counts as changed.
        let (own, tails) = if self.writer.is_some() { (Node::CHANGED_BYTES, 2) } else { (Node::BYTES, 1) };
        own + tails * node.with_snapshot(|snapshot| snapshot.tail.len())
    }

    fn attr(&self, node: &Node) -> Attr {
        node.with_snapshot(|snapshot| self.attr_of(snapshot))
    }

    fn stat(&self, ino: Ino) -> Option<Result<Attr>> {
        // The state in memory may be newer.
        if self.writer.is_some() {
            return None;
        }
        let ino = u32::try_from(ino.0).map(InodeNumber).map_err(|_| Error::Stale);
        Some(ino.and_then(|ino| Ok(self.stored_attr(ino)?)))
    }

    fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Option<Lookup>> {
        dir.with_snapshot(directory)?;
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(self.lookup(dir, name)?)
    }

    fn fold_name(&self, dir: &Node, name: &[u8]) -> Option<Vec<u8>> {
        dir.with_snapshot(|dir| self.folded(dir, name))
    }

    fn readdir(
        &self,
        dir: &Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        dir.with_snapshot(directory)?;
        Ok(self.readdir(dir, start, each)?)
    }

    fn readdir_past_damage(
        &self,
        dir: &Node,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        dir.with_snapshot(directory)?;
        Ok(self.readdir_past_damage(dir, each, &mut |error| damaged(error.into()))?)
    }

    fn parent(&self, dir: &Node) -> Result<Ino> {
        let dir = &*dir.snapshot();
        directory(dir)?;
        Ok(Ino(u64::from(self.parent_of(dir)?.0)))
    }

    fn read(&self, node: &Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
        node.with_snapshot(content)?;
        Ok(self.read_file(node, offset, buf)?)
    }

    fn extent(&self, node: &Node, offset: u64) -> Result<Extent> {
        let snapshot = node.snapshot();
        content(&snapshot)?;
        if offset >= snapshot.inode.size {
            return Err(Error::NoExtent);
        }
        Ok(self.extent(node, offset)?)
    }

    fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        node.with_snapshot(|node| match node.kind {
            FileType::Symlink if node.has(InodeFlags::ENCRYPT) => Err(Error::Encrypted),
            FileType::Symlink => Ok(()),
            _ => Err(Error::Invalid),
        })?;
        Ok(self.readlink(node)?)
    }

    fn getxattr(&self, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.getxattr(node, name)?)
    }

    fn listxattr(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
        Ok(self.listxattr(node)?)
    }

    fn statfs(&self) -> Result<FsStat> {
        Ok(self.fs_stat())
    }

    fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        Ok(self.trim(bytes, least)?)
    }

    fn time_granularity(&self) -> Duration {
        if self.sb.has_extra_times() { Duration::from_nanos(1) } else { Duration::from_secs(1) }
    }

    fn is_read_only(&self) -> bool {
        self.writer().map_or(true, |writer| writer.journal.is_aborted())
    }

    fn create(&self, dir: &Node, name: &[u8], new: &NewInode<'_>) -> Result<Node> {
        Ok(self.make(dir, name, new)?)
    }

    fn create_unnamed(&self, dir: &Node, new: &NewInode<'_>) -> Result<Node> {
        Ok(self.make_unnamed(dir, new)?)
    }

    fn reserve_entries(&self, dir: &Node, entries: u64) -> Result<()> {
        Ok(self.presize_directory(dir, entries)?)
    }

    fn link(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        Ok(self.link(dir, name, node)?)
    }

    fn unlink(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        Ok(self.unlink(dir, name, node)?)
    }

    fn rmdir(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        Ok(self.rmdir(dir, name, node)?)
    }

    fn unlink_and_free(&self, dir: &Node, name: &[u8], node: &Node) -> Result<bool> {
        Ok(self.unlink_and_free(dir, name, node)?)
    }

    fn rename(&self, rename: &Rename<'_, Node>) -> Result<()> {
        Ok(self.rename(rename)?)
    }

    fn evict(&self, node: &Node) {
        self.evict(node);
    }

    fn set_attr(&self, node: &Node, changes: &SetAttr) -> Result<()> {
        if changes.size.is_some() {
            node.with_snapshot(content)?;
        }
        Ok(self.set_attr(node, changes)?)
    }

    fn set_flags(&self, node: &Node, flags: u32) -> Result<()> {
        Ok(self.set_inode_flags(node, InodeFlags(flags))?)
    }

    fn write(&self, node: &Node, offset: u64, data: &[u8]) -> Result<usize> {
        node.with_snapshot(content)?;
        Ok(self.write_file(node, Some(offset), data, Times::Now)?.1)
    }

    fn write_back(&self, node: &Node, offset: u64, data: &[u8]) -> Result<usize> {
        node.with_snapshot(content)?;
        Ok(self.write_file(node, Some(offset), data, Times::Kept)?.1)
    }

    fn append(&self, node: &Node, data: &[u8]) -> Result<(u64, usize)> {
        node.with_snapshot(content)?;
        Ok(self.write_file(node, None, data, Times::Now)?)
    }

    fn allocate(&self, node: &Node, offset: u64, len: u64, how: Allocate) -> Result<()> {
        node.with_snapshot(content)?;
        Ok(self.allocate(node, offset, len, how)?)
    }

    fn fsync(&self, node: &Node, durability: Durability) -> Result<()> {
        Ok(self.fsync(node, durability)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync()?)
    }

    fn setxattr(&self, node: &Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        Ok(self.setxattr(node, name, value, how)?)
    }

    fn set_acl(&self, node: &Node, acl: Option<&[u8]>, attributes: &SetAttr) -> Result<()> {
        Ok(self.set_acl(node, acl, attributes)?)
    }

    fn removexattr(&self, node: &Node, name: &[u8]) -> Result<()> {
        Ok(self.removexattr(node, name)?)
    }
}

fn directory(node: &Snapshot) -> Result<()> {
    if node.kind == FileType::Directory { Ok(()) } else { Err(Error::NotADirectory) }
}

fn content(node: &Snapshot) -> Result<()> {
    match node.kind {
        FileType::Regular if node.has(InodeFlags::ENCRYPT) => Err(Error::Encrypted),
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid),
    }
}
