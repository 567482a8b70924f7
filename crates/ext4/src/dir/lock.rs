//! Locks of concurrent changes in one directory (Lustre calls this pdirops).
//!
//! An htree is a tree of index blocks over leaves, each with the names of one hash range. A split
//! moves the upper part of a leaf's range to a new leaf and enters that in the index. Leaves are
//! never merged: a leaf's range only shrinks, and what it loses lies to its right.
//!
//! `vfs` lets threads make, link and unlink different names of one directory concurrently, and look
//! names up meanwhile. Renames and removals of directories run alone; listings never overlap
//! changes.
//!
//! # Lock order
//! ```text
//! tree      RwLock  shared: change or split a leaf; exclusive: all else, linear directories
//! └─ leaf   Mutex   entries and hash range of one leaf
//!    └─ growth  Mutex   block map and size; the index while the tree is shared
//!       └─ handle       keeps the transaction open; below it inode fields, groups, blocks
//! ```
//! Directories, and leaves, share a fixed number of locks by a hash. An operation holds at most one
//! of each kind, so sharing costs waits but no deadlock. No thread waits for them with a handle
//! open, so a commit, which waits for handles, makes progress.
//!
//! # Guarantees
//! - **P1** Changes of different leaves do not wait for each other. Splits of one directory do. A
//!   split of an index block, one insertion in thousands, takes the tree exclusively.
//! - **P2** A lookup takes no lock. What it finds existed; what it does not find was missing at
//!   some instant during the call.
//! - **P3** Listings go by hash where entries may move (`list.rs`): no split between two parts of a
//!   listing hides or repeats a name.
//!
//! # Why lookups need no lock
//! A block is read as one immutable version. A change that moves names proceeds from right to left:
//! (1) write the new block, which nothing points to; (2) publish the inode's new size and map; (3)
//! insert the index entry, one change of one block; (4) remove the moved names from the old block.
//! An index block is split the same way. A lookup reads from left to right: inode, index blocks
//! from the root, leaf.
//!
//! - It reads the index after (3): the new leaf (1) and the size (2) are there, if it reads the
//!   inode's snapshot again.
//! - It reads the index before (3) and the old leaf before (4): the name is still there.
//! - It reads the index before (3) and the old leaf after (4): the name is missing there. But a
//!   miss counts only if the index, read again, leads to the same leaves (`search_until_stable`).
//!   The second read comes after (4), thus after (3), and leads to the new leaf.
//!
//! Two readings suffice. A path is wrong only because it passed a block just split, to the left of
//! its target; the next reading goes to the right. Equal paths are right. Each further round means
//! that another thread has split the target's leaf, so some thread makes progress.
//!
//! The block map may change under a lookup too: an extent block is split before the snapshot of the
//! inode says so. That shows as an error, never as another block, as a directory has no holes and
//! frees no block while it grows. So a failed lookup is repeated under the exclusive tree lock, and
//! only that outcome is reported. The same holds for a block that becomes the first index root.
//!
//! Changes read under the leaf's lock, and no index block is split while they share the tree. One
//! walk suffices: the index leads to the locked leaf, or they retry with the one it leads to.
//!
//! Models of all interleavings: `RUSTFLAGS="--cfg loom" cargo test -p dentree-ext4 --lib models`.
//! Stress test: `one_directory`.
//!
//! # Known limits
//! A directory without an index has one change at a time. Two directories may share a lock.
//!
//! Splits of one directory are serial, as each extends its size and block map. With 8 threads that
//! make 60,000 files on 2 processors, 21 to 63 of 840 splits wait for the growth lock, for 1 to 4%
//! of the threads' time; waits for leaves take 9 to 28 times as long. A single thread holds the
//! growth lock for 7% of its time, so it limits more than a dozen threads that run at once.
//! Measured by `cargo bench -p dentree-ext4 --bench growth_waits`.

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

/// From this link count on a change locks the directory exclusively, as the limit is exact.
const NEAR_MAX_LINKS: u16 = super::MAX_LINKS - 1000;

/// The locks of all directories.
pub(crate) struct DirectoryLocks {
    trees: Box<[NamedRwLock<()>]>,
    growths: Box<[NamedMutex<()>]>,
    leaves: Box<[NamedMutex<()>]>,
}

/// `count` locks of one class.
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

/// The locks that a change of a directory's entries holds.
#[expect(dead_code, reason = "guards are held, not read")]
pub(super) enum DirGuard<'a> {
    Exclusive(NamedWriteGuard<'a, ()>),
    Leaf(NamedMutexGuard<'a, ()>, NamedReadGuard<'a, ()>),
    Growth(NamedMutexGuard<'a, ()>, NamedMutexGuard<'a, ()>, NamedReadGuard<'a, ()>),
}

/// Where an entry goes, and the locks for it.
pub(super) struct Insertion<'a> {
    pub(super) plan: Plan,
    pub(super) guard: DirGuard<'a>,
}

impl Ext4 {
    /// Plans the insertion of `name`, which `dir` lacks, and takes the locks. `is_counted`: the
    /// entry counts as a link of `dir`.
    ///
    /// # Errors
    /// Those of [`plan_insert`](Ext4::plan_insert).
    pub(super) fn lock_for_insert(&self, dir: &Node, name: &[u8], is_counted: bool) -> Result<Insertion<'_>> {
        let is_near_limit = is_counted && dir.snapshot().inode.links >= NEAR_MAX_LINKS;
        if !is_near_limit && let Some(insertion) = self.lock_leaf_for_insert(dir, name)? {
            return Ok(insertion);
        }
        let guard = DirGuard::Exclusive(self.writer()?.directories.tree_alone(dir.snapshot().ino));
        Ok(Insertion { plan: self.plan_insert(dir, name)?, guard })
    }

    /// Like [`lock_for_insert`](Ext4::lock_for_insert) with the tree shared. `None` if that is not
    /// possible, or on any error.
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
            // Splits go from right to left: under the leaf's lock the index leads here only for
            // names of this leaf.
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

    /// Finds the entry of `name`, which must exist and name `node`, and locks it for removal.
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
            // Nearly all names are in the first leaf of their hash; only the others need a full
            // search.
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

    /// Whether the directory's leaves can be locked one by one.
    fn has_leaf_locks(&self, dir: &Snapshot) -> bool {
        self.is_indexed(dir) && !dir.has(InodeFlags::INLINE_DATA) && !dir.has(InodeFlags::ENCRYPT)
    }

    /// The current path to the leaf of a name, with the tree shared. `None` if it cannot be read.
    fn current_path(&self, dir: &Node, name: &[u8]) -> Option<(SnapshotRef, HtreePath)> {
        self.path_in(dir.snapshot(), name)
    }

    /// The path in a snapshot of the directory.
    fn path_in(&self, snapshot: SnapshotRef, name: &[u8]) -> Option<(SnapshotRef, HtreePath)> {
        let search_name = self.search_name(&snapshot, name)?;
        let path = self.path_for(&snapshot, &search_name).ok()??;
        Some((snapshot, path))
    }

    /// `path` if it is still current, else the current one.
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
