//! Moving inodes out of groups that go: to another number.
//!
//! One transaction has the new inode, the old one freed, all entries that name it, the entries
//! `..` of its subdirectories, and with checksums, which depend on the number, its directory blocks
//! and the nodes of its map.

use super::refuse;
use crate::alloc::INODE_CREDITS;
use crate::inode::Snapshot;
use crate::layout::Part;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::{BlockNumber, InodeFlags, InodeNumber, Problem, set_extent_checksum};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// What names the inodes that go.
#[derive(Default)]
pub(super) struct Names {
    /// Directories, and positions of entries in them.
    entries: HashMap<InodeNumber, Vec<(InodeNumber, u64)>>,
    /// Directories whose `..` is the inode.
    children: HashMap<InodeNumber, Vec<InodeNumber>>,
    /// Inodes with an attribute whose value the inode holds.
    users: HashMap<InodeNumber, Vec<InodeNumber>>,
}

impl Names {
    /// Adds what one inode names beyond number `last`.
    pub(super) fn add(&mut self, fs: &Ext4, node: &Snapshot, last: u32) -> Result<()> {
        if node.inode.xattr_block.is_some() || !node.tail.is_empty() {
            let mut holders = fs.value_holders(node)?;
            holders.retain(|ino| ino.0 > last);
            holders.sort_unstable();
            holders.dedup();
            for holder in holders {
                self.users.entry(holder).or_default().push(node.ino);
            }
        }
        if node.kind != FileType::Directory {
            return Ok(());
        }
        let parent = fs.parent_of(node)?;
        if parent.0 > last {
            self.children.entry(parent).or_default().push(node.ino);
        }
        fs.each_entry(node, 0, &mut |entry, behind| {
            let is_name = entry.name != b"." && entry.name != b"..";
            if entry.inode.0 > last && is_name {
                let len = u64::try_from(entry.end - entry.start).unwrap_or(0);
                self.entries.entry(entry.inode).or_default().push((node.ino, behind - len));
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// The inodes that got other numbers.
pub(super) struct Renumbering<'a> {
    fs: &'a Ext4,
    names: Names,
    moved: HashMap<InodeNumber, InodeNumber>,
}

/// What of an inode depends on its number.
struct Parts {
    /// Blocks of a directory.
    directory: Vec<BlockNumber>,
    /// Nodes of an extent tree.
    nodes: Vec<BlockNumber>,
}

impl<'a> Renumbering<'a> {
    pub(super) fn new(fs: &'a Ext4, names: Names) -> Renumbering<'a> {
        Renumbering { fs, names, moved: HashMap::new() }
    }

    /// The number that an inode has now.
    pub(super) fn number(&self, ino: InodeNumber) -> InodeNumber {
        self.moved.get(&ino).copied().unwrap_or(ino)
    }

    /// Gives an inode a number below the end of allocations.
    pub(super) fn renumber(&mut self, old: InodeNumber) -> Result<()> {
        let fs = self.fs;
        let snapshot = fs.read_inode(old)?;
        let entries = self.names.entries.remove(&old).unwrap_or_default();
        let children = self.names.children.remove(&old).unwrap_or_default();
        let users = self.names.users.remove(&old).unwrap_or_default();
        if entries.is_empty() && users.is_empty() {
            return Err(snapshot.place(Structure::Inode).corrupt(Problem::Missing { what: "a name" }));
        }
        let parts = fs.parts_with_number(&snapshot)?;
        // Each user and each child has an inode, and a block or a value's owner.
        let others = entries.len() + children.len() + users.len() + fs.value_holders(&snapshot)?.len();
        let blocks = parts.directory.len() + parts.nodes.len() + 2 * others;
        let credits = u32::try_from(blocks).unwrap_or(u32::MAX).saturating_add(2 * INODE_CREDITS + 2);
        if credits > fs.max_credits() {
            let (most, what) = (fs.max_credits(), "blocks of metadata change with the number of inode");
            return refuse(&format!("{credits} {what} {old}, and the journal takes {most} at once"));
        }
        let root = fs.read_inode(InodeNumber::ROOT)?;
        let mut handle = fs.start(credits)?;
        let (new, _) = fs.allocate_inode(&mut handle, &root, snapshot.kind)?;
        self.moved.insert(old, new);
        let done = fs.move_inode(&mut handle, &snapshot, new, &parts).and_then(|()| {
            for (dir, position) in entries {
                let dir = Node::new(fs.read_inode(self.number(dir))?, None);
                fs.renumber_entry(&mut handle, &dir, position, new)?;
            }
            for child in children {
                let child = Node::new(fs.read_inode(self.number(child))?, None);
                fs.set_parent(&mut handle, &child, new)?;
            }
            for user in users {
                let user = Node::new(fs.read_inode(self.number(user))?, None);
                fs.renumber_values(&mut handle, &user, (old, new))?;
            }
            Ok(())
        });
        fs.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }
}

impl Ext4 {
    fn parts_with_number(&self, snapshot: &Snapshot) -> Result<Parts> {
        let mut nodes = Vec::new();
        if snapshot.has(InodeFlags::EXTENTS) && self.sb.has_metadata_csum() {
            let mut failed: Option<Error> = None;
            let mut each = |part| {
                if let Part::Tree(block) = part {
                    nodes.push(block);
                }
                ControlFlow::Continue(())
            };
            self.walk_map(snapshot, &mut each, &mut |error| failed = failed.take().or(Some(error)));
            if let Some(error) = failed {
                return Err(error);
            }
        }
        let is_dir = snapshot.kind == FileType::Directory;
        let directory = if is_dir { self.blocks_with_number(snapshot)? } else { Vec::new() };
        Ok(Parts { directory, nodes })
    }

    /// Copies an inode to number `new`, and frees the old one.
    fn move_inode(
        &self,
        handle: &mut Handle<'_>,
        snapshot: &Snapshot,
        new: InodeNumber,
        parts: &Parts,
    ) -> Result<()> {
        let (old, kind) = (snapshot.ino, snapshot.kind);
        let (was, _) = self.inode_bytes(old)?;
        let mut moved = snapshot.clone();
        moved.ino = new;
        moved.inode.checksum_seed = self.sb.checksum_seed.of_inode(new.0, moved.inode.generation);
        self.update_inode(handle, new, |bytes| {
            bytes.copy_from_slice(&was);
            moved.encode(bytes, &self.sb);
        })?;
        let mut freed = snapshot.inode.clone();
        freed.links = 0;
        let dtime = self.dtime_at(self.writer()?.now());
        self.update_inode(handle, old, |bytes| freed.encode_freed(bytes, dtime, &self.sb))?;
        self.free_inode(handle, old, kind)?;
        for &at in &parts.nodes {
            let seed = moved.inode.checksum_seed;
            let place = Structure::ExtentNode.of(new);
            self.update(handle, at, place, |bytes| set_extent_checksum(bytes, seed))?;
        }
        self.renumber_blocks(handle, &moved, &parts.directory)?;
        self.renumber_owner(handle, &moved, old)
    }
}
