//! A file system in memory: for tests, as an example of a [`FileSystem`](crate::FileSystem), and as
//! an upper bound of a mount's speed.
//!
//! Inodes are in a table by number. A freed number is reused first, with another generation, so
//! that use of a stale number shows early.
//!
//! | what                      | guard                                       |
//! |---------------------------|---------------------------------------------|
//! | table and free numbers    | `MemoryFs::table` (leaf)                    |
//! | mutable state of an inode | `MemoryNode::state`; never two at once      |
//! | free space                | one atomic word                             |
//!
//! A rename changes several inodes in turn; `Vfs` excludes concurrent readers by inode locks.

mod directory;
mod file;
mod filesystem;
mod node;

pub use node::MemoryNode;

use crate::{Error, Ino, NewInode, NewKind, Result};
use dentree_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use file::PAGE;
use node::{Content, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// As in ext4.
const ROOT: Ino = Ino(2);

/// Capacity of a [`MemoryFs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimits {
    /// Bytes of content, in pages of 4096.
    pub bytes: u64,
    /// Inodes, with the root.
    pub inodes: u64,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits { bytes: 4 << 30, inodes: 1 << 24 }
    }
}

/// A file system in memory; see [`Vfs::create`](crate::Vfs::create) for an example.
pub struct MemoryFs {
    table: RwLock<Table>,
    limits: MemoryLimits,
    pages_left: AtomicU64,
    next_generation: AtomicU32,
}

/// Inodes by number, and free numbers.
struct Table {
    nodes: Vec<Option<Arc<MemoryNode>>>,
    free: Vec<u64>,
}

impl Table {
    fn used(&self) -> u64 {
        (self.nodes.len() - self.free.len()) as u64 - ROOT.0
    }
}

impl Default for MemoryFs {
    fn default() -> Self {
        MemoryFs::new(MemoryLimits::default())
    }
}

impl MemoryFs {
    /// The root directory belongs to root and has mode 0755.
    pub fn new(limits: MemoryLimits) -> Self {
        let fs = MemoryFs {
            table: RwLock::new(Table { nodes: vec![None, None], free: Vec::new() }),
            limits,
            pages_left: AtomicU64::new(limits.bytes / PAGE as u64),
            next_generation: AtomicU32::new(0),
        };
        let new = NewInode { kind: NewKind::Directory, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] };
        fs.insert(Content::new(&new, ROOT), &new, 2);
        fs
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read()
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write()
    }

    fn allocate(&self, new: &NewInode<'_>, parent: Ino, nlink: u32) -> Result<Arc<MemoryNode>> {
        if self.table().used() >= self.limits.inodes {
            return Err(Error::NoSpace);
        }
        Ok(self.insert(Content::new(new, parent), new, nlink))
    }

    fn insert(&self, content: Content, new: &NewInode<'_>, nlink: u32) -> Arc<MemoryNode> {
        // Relaxed: generations only have to differ.
        let generation = self.next_generation.fetch_add(1, Ordering::Relaxed);
        let state = State::new(content, new, nlink);
        let mut table = self.table_mut();
        let number = table.free.pop().unwrap_or(table.nodes.len() as u64);
        let node = Arc::new(MemoryNode::new(Ino(number), new.kind.file_type(), generation, state));
        match table.nodes.get_mut(number as usize) {
            Some(slot) => *slot = Some(node.clone()),
            None => table.nodes.push(Some(node.clone())),
        }
        node
    }

    fn remove(&self, node: &MemoryNode) {
        let mut table = self.table_mut();
        if let Some(slot) = table.nodes.get_mut(node.ino.0 as usize).filter(|slot| slot.is_some()) {
            *slot = None;
            table.free.push(node.ino.0);
        }
    }

    fn find(&self, ino: Ino) -> Option<Arc<MemoryNode>> {
        self.table().nodes.get(ino.0 as usize)?.clone()
    }

    /// Takes up to `wanted` pages; returns their number.
    fn take_pages(&self, wanted: u64) -> u64 {
        let mut taken = 0;
        // Relaxed: no data depends on the count.
        let _ = self.pages_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            taken = wanted.min(left);
            Some(left - taken)
        });
        taken
    }

    fn give_pages(&self, pages: u64) {
        self.pages_left.fetch_add(pages, Ordering::Relaxed);
    }
}
