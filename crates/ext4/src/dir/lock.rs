//! Locks of concurrent changes in one directory (as Lustre's pdirops).
//!
//! An htree has index blocks over leaves, each with the names of one hash range. A split moves the
//! upper part of a range to a new leaf. Leaves are never merged: a range only shrinks, and what it
//! loses is to its right.
//!
//! `vfs` calls make, link, unlink and lookup of different names concurrently. Rename and rmdir run
//! alone; listings exclude changes.
//!
//! # Lock order
//! ```text
//! tree      RwLock  shared: change or split a leaf; exclusive: all else, linear directories
//! └─ leaf   Mutex   entries and hash range of one leaf
//!    └─ growth  Mutex   block map and size; the index while the tree is shared
//!       └─ handle       keeps the transaction open; below it inode fields, groups, blocks
//! ```
//! Directories and leaves share a fixed number of locks by a hash. An operation holds at most one
//! of each kind: sharing costs waits but no deadlock. They are not taken with a handle open, so
//! commits make progress.
//!
//! # Guarantees
//! - **P1** Changes of different leaves run in parallel, but not splits of one directory. A split
//!   of an index block, one insertion in thousands, takes the tree exclusively.
//! - **P2** A lookup takes no lock. What it finds existed; what it misses was missing at some
//!   instant during the call.
//! - **P3** No split between two parts of a listing hides or repeats a name (`list.rs`).
//!
//! # Why lookups need no lock
//! A block is read as one immutable version. A split goes from right to left: (1) write the new
//! block; (2) publish the inode's size and map; (3) insert the index entry, one change of one
//! block; (4) remove the moved names from the old block. A lookup goes from left to right: inode,
//! index blocks, leaf.
//!
//! - Index read after (3): the new leaf (1) exists, and the size (2) once the inode's snapshot is
//!   read again.
//! - Index read before (3), old leaf before (4): the name is still there.
//! - Index read before (3), old leaf after (4): the name is missing. But a miss counts only if the
//!   index, read again, leads to the same leaves (`search_until_stable`). That read comes after
//!   (4), thus after (3), and leads to the new leaf.
//!
//! Two readings suffice: a wrong path is left of its target, and the next goes to the right. Each
//! further round means that another thread has split the target's leaf: lock-free progress.
//!
//! An extent block is split before the inode's snapshot says so. That shows as an error, never as
//! another block: a directory has no holes and frees no block while it grows. A failed lookup is
//! repeated under the exclusive tree lock, which decides. So is one that meets a block becoming the
//! first index root.
//!
//! Changes read under the leaf's lock, while no index block is split. If the index leads to another
//! leaf, they retry with that one.
//!
//! Models: `dir/models.rs`. Stress test: `one_directory`.
//!
//! # Known limits
//! Changes of a directory without an index are serial, as are splits of one directory: 8 threads
//! that make 60,000 files on 2 processors wait for the growth lock in 1 to 4% of their time, for
//! leaves 9 to 28 times as long. One thread holds the growth lock for 7% of its time, so it limits
//! more than a dozen parallel threads (`cargo bench -p dentree-ext4 --bench growth_waits`).

use super::format::Found;
use super::insert::Plan;
use super::lookup::{HtreePath, TRIES};
use crate::inode::{Snapshot, SnapshotRef};
use crate::{Ext4, Node, Result};
use dentree_ext4_format::{InodeFlags, InodeNumber, LogicalBlock};
use dentree_sync::lockstat::{
    Class, NamedMutex, NamedMutexGuard, NamedReadGuard, NamedRwLock, NamedWriteGuard,
};

const TREES: usize = if cfg!(loom) { 1 } else { 256 };
const LEAVES: usize = if cfg!(loom) { 2 } else { 1024 };

/// From this count on, changes lock exclusively, as the limit is exact.
const NEAR_MAX_LINKS: u16 = super::MAX_LINKS - 1000;

pub(crate) struct DirectoryLocks {
    trees: Box<[NamedRwLock<()>]>,
    growths: Box<[NamedMutex<()>]>,
    leaves: Box<[NamedMutex<()>]>,
}

fn named<L>(name: &'static str, count: usize, new: impl Fn(Class, ()) -> L) -> Box<[L]> {
    let class = Class::named(name);
    (0..count).map(|_| new(class, ())).collect()
}

impl DirectoryLocks {
    pub(crate) fn new() -> DirectoryLocks {
        DirectoryLocks {
            trees: named("directory tree", TREES, NamedRwLock::new),
            growths: named("directory growth", TREES, NamedMutex::new),
            leaves: named("directory leaf", LEAVES, NamedMutex::new),
        }
    }

    pub(super) fn share_tree(&self, dir: InodeNumber) -> NamedReadGuard<'_, ()> {
        self.trees[dir.0 as usize % TREES].read()
    }

    pub(super) fn tree_alone(&self, dir: InodeNumber) -> NamedWriteGuard<'_, ()> {
        self.trees[dir.0 as usize % TREES].write()
    }

    pub(super) fn leaf(&self, dir: InodeNumber, leaf: LogicalBlock) -> NamedMutexGuard<'_, ()> {
        let mixed = dir.0.wrapping_mul(0x9E37_79B1).wrapping_add(leaf.0);
        self.leaves[mixed as usize % LEAVES].lock()
    }

    pub(super) fn growth(&self, dir: InodeNumber) -> NamedMutexGuard<'_, ()> {
        self.growths[dir.0 as usize % TREES].lock()
    }
}

#[expect(dead_code, reason = "guards are held, not read")]
pub(super) enum DirGuard<'a> {
    Exclusive(NamedWriteGuard<'a, ()>),
    Leaf(NamedMutexGuard<'a, ()>, NamedReadGuard<'a, ()>),
    Growth(NamedMutexGuard<'a, ()>, NamedMutexGuard<'a, ()>, NamedReadGuard<'a, ()>),
}

pub(super) struct Insertion<'a> {
    pub(super) plan: Plan,
    pub(super) guard: DirGuard<'a>,
}

impl Ext4 {
    /// `is_counted`: the entry counts as a link of `dir`.
    pub(super) fn lock_for_insert(&self, dir: &Node, name: &[u8], is_counted: bool) -> Result<Insertion<'_>> {
        let is_near_limit = is_counted && dir.snapshot().inode.links >= NEAR_MAX_LINKS;
        if !is_near_limit && let Some(insertion) = self.lock_leaf_for_insert(dir, name)? {
            return Ok(insertion);
        }
        let guard = DirGuard::Exclusive(self.writer()?.directories.tree_alone(dir.snapshot().ino));
        Ok(Insertion { plan: self.plan_insert(dir, name)?, guard })
    }

    /// Shares the tree; `None` if that is impossible, or on an error.
    fn lock_leaf_for_insert(&self, dir: &Node, name: &[u8]) -> Result<Option<Insertion<'_>>> {
        let locks = &self.writer()?.directories;
        let tree = locks.share_tree(dir.ino());
        for _ in 0..TRIES {
            let snapshot = dir.snapshot();
            if !self.has_leaf_locks(&snapshot) {
                return Ok(None);
            }
            let Some((snapshot, path)) = self.path_in(snapshot, name) else { return Ok(None) };
            let block = path.leaf.block;
            let leaf = locks.leaf(dir.ino(), block);
            // Splits go from right to left: under its lock the index leads here only for the leaf's
            // names.
            let Some((snapshot, path)) = self.revalidate(dir, name, snapshot, path) else { return Ok(None) };
            if path.leaf.block != block {
                continue;
            }
            return Ok(match self.plan_htree_insert(&snapshot, path, name) {
                Ok(Plan::Split(_)) => {
                    let growth = locks.growth(dir.ino());
                    let Some((snapshot, path)) = self.current_path(dir, name) else { return Ok(None) };
                    match self.plan_htree_insert(&snapshot, path, name) {
                        Ok(Plan::Split(split)) if split.new_blocks == 1 => Some(Insertion {
                            plan: Plan::Split(split),
                            guard: DirGuard::Growth(growth, leaf, tree),
                        }),
                        _ => None,
                    }
                }
                Ok(plan) => Some(Insertion { plan, guard: DirGuard::Leaf(leaf, tree) }),
                Err(_) => None,
            });
        }
        Ok(None)
    }

    /// The entry must name `node`.
    pub(super) fn lock_entry(&self, dir: &Node, name: &[u8], node: &Node) -> Result<(Found, DirGuard<'_>)> {
        if let Some(held) = self.lock_leaf_of_entry(dir, name, node)? {
            return Ok(held);
        }
        let guard = DirGuard::Exclusive(self.writer()?.directories.tree_alone(dir.snapshot().ino));
        Ok((self.entry_of_node(&dir.snapshot(), name, node)?, guard))
    }

    fn lock_leaf_of_entry(
        &self,
        dir: &Node,
        name: &[u8],
        node: &Node,
    ) -> Result<Option<(Found, DirGuard<'_>)>> {
        let first = dir.snapshot();
        if !self.has_leaf_locks(&first) {
            return Ok(None);
        }
        let locks = &self.writer()?.directories;
        let tree = locks.share_tree(first.ino);
        for attempt in 0..TRIES {
            // Nearly all names are in the first leaf of their hash.
            let block = match attempt {
                0 => self.current_path(dir, name).map(|(_, path)| path.leaf.block),
                _ => self
                    .find_name(&dir.snapshot(), name)
                    .ok()
                    .flatten()
                    .and_then(|found| self.sb.block_size.split(found.position).map(|(block, _)| block)),
            };
            let Some(block) = block else { return Ok(None) };
            let leaf = locks.leaf(first.ino, block);
            let snapshot = dir.snapshot();
            let Some(search_name) = self.search_name(&snapshot, name) else { return Ok(None) };
            match self.search_leaf(&snapshot, block, &search_name) {
                Ok(Some(found)) if found.lookup.ino.0 == u64::from(node.snapshot().ino.0) => {
                    return Ok(Some((found, DirGuard::Leaf(leaf, tree))));
                }
                // A split moved it, or it is in a later leaf of its hash.
                Ok(None) => {}
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn has_leaf_locks(&self, dir: &Snapshot) -> bool {
        self.is_indexed(dir) && !dir.has(InodeFlags::INLINE_DATA) && !dir.has(InodeFlags::ENCRYPT)
    }

    fn current_path(&self, dir: &Node, name: &[u8]) -> Option<(SnapshotRef, HtreePath)> {
        self.path_in(dir.snapshot(), name)
    }

    fn path_in(&self, snapshot: SnapshotRef, name: &[u8]) -> Option<(SnapshotRef, HtreePath)> {
        let search_name = self.search_name(&snapshot, name)?;
        let path = self.path_for(&snapshot, &search_name).ok()??;
        Some((snapshot, path))
    }

    /// Returns `path` if it is current, else the current path.
    fn revalidate(
        &self,
        dir: &Node,
        name: &[u8],
        snapshot: SnapshotRef,
        path: HtreePath,
    ) -> Option<(SnapshotRef, HtreePath)> {
        if self.are_current(&path.frames) { Some((snapshot, path)) } else { self.current_path(dir, name) }
    }
}
