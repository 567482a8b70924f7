//! A complete file system in memory: what the caches are tested over, an example for whoever implements
//! [`FileSystem`](crate::FileSystem), and the bound of what a mount can reach.
//!
//! # Data
//! [`MemoryFs`] has a table of inodes by number; a [`MemoryNode`] is one inode. Its number is given to the next inode as soon as it is
//! free, with another generation: users of a number that has changed hands show early.
//!
//! | what | guard |
//! |---|---|
//! | table and free numbers | `MemoryFs::table`; nothing is taken inside |
//! | all that changes of an inode | `MemoryNode::state`; of two one after the other, never both |
//! | free space | one atomic word |
//!
//! A change of several inodes (a rename) shows in one after the other. That is enough: `Vfs` holds the locks of the directories.

mod directory;
mod file;
mod filesystem;
mod node;

pub use node::MemoryNode;

use crate::{Error, Ino, NewInode, NewKind, Result};
use file::PAGE;
use node::{Content, State};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// As in ext4, so that nobody takes it for 1.
const ROOT: Ino = Ino(2);

/// How much a [`MemoryFs`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimits {
    /// Content of files in bytes, in units of 4096.
    pub bytes: u64,
    /// Inodes, the root included.
    pub inodes: u64,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits { bytes: 4 << 30, inodes: 1 << 24 }
    }
}

/// A file system in memory: see [`Vfs::make`](crate::Vfs::make) for an example. All is gone when it is dropped.
pub struct MemoryFs {
    table: RwLock<Table>,
    limits: MemoryLimits,
    pages_left: AtomicU64,
    next_generation: AtomicU32,
}

/// Inodes by number, and the numbers below its length that are free.
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
    /// An empty file system: a root directory that belongs to root and that everybody may read and search.
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

    /// Makes an inode with `nlink` names.
    fn allocate(&self, new: &NewInode<'_>, parent: Ino, nlink: u32) -> Result<Arc<MemoryNode>> {
        if self.table().used() >= self.limits.inodes {
            return Err(Error::NoSpace);
        }
        Ok(self.insert(Content::new(new, parent), new, nlink))
    }

    fn insert(&self, content: Content, new: &NewInode<'_>, nlink: u32) -> Arc<MemoryNode> {
        // Relaxed: a number that differs is all that is asked for.
        let generation = self.next_generation.fetch_add(1, Ordering::Relaxed);
        let state = State::new(content, new, nlink);
        let mut table = self.table_mut();
        let number = table.free.pop().unwrap_or(table.nodes.len() as u64);
        let node = Arc::new(MemoryNode::new(Ino(number), new.kind.file_type(), generation, state));
        match table.nodes.get_mut(number as usize) {
            Some(place) => *place = Some(node.clone()),
            None => table.nodes.push(Some(node.clone())),
        }
        node
    }

    fn remove(&self, node: &MemoryNode) {
        let mut table = self.table_mut();
        if let Some(place) = table.nodes.get_mut(node.ino.0 as usize).filter(|place| place.is_some()) {
            *place = None;
            table.free.push(node.ino.0);
        }
    }

    fn find(&self, ino: Ino) -> Option<Arc<MemoryNode>> {
        self.table().nodes.get(ino.0 as usize)?.clone()
    }

    /// Takes room for as many of `wanted` pages as there is.
    fn take_pages(&self, wanted: u64) -> u64 {
        let mut taken = 0;
        // Relaxed: the count alone is what matters.
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
