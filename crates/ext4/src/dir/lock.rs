//! Changes side by side in one directory.
//!
//! # Data
//! An indexed directory is a tree of blocks: index blocks, and below them leaves, each with the names of a range of hashes. A split
//! moves the upper part of a leaf's range to a new leaf and enters that in the index. Nothing is ever merged: a leaf's range only shrinks, and
//! what a block has lost lies to its right.
//!
//! `vfs` lets several threads make, link and unlink different names of one directory at once, and look names up meanwhile. Renames, and
//! removals of directories, come alone; listings never come together with changes.
//!
//! # Who protects what
//! ```text
//! tree      RwLock  shared: one leaf is changed, or split; alone: everything else, as for directories without an index
//! └─ leaf   Mutex   the entries and the range of one leaf
//!    └─ growth  Mutex   the block map and the size of the directory, and its index blocks while the tree is shared
//!       └─ handle       a transaction stays open; below it the inode's fields, groups, blocks
//! ```
//! Who shares the tree sits in its crowd ([`Crowd`]) once many do, and writes nothing that others write then.
//! Each is one of many that directories (and leaves) share by a few bits of their numbers: an operation holds one of each kind at most, so
//! sharing costs waits, and no circles. All are taken before the handle: who has an open handle waits for none of them, and so a commit,
//! for which handles wait, comes to its end.
//!
//! # Guarantees
//! - **P1** Changes of different leaves do not wait for each other. Splits of one directory do, for as long as a split takes; an index
//!   block that is split, which is every few thousandth insertion, has the directory alone.
//! - **P2** A look-up takes none of these locks. What it finds was there; what it does not find was not there at some instant of the call.
//! - **P3** A listing goes by hash where names may move (`list.rs`), so that no split between two parts of it hides or repeats a name.
//!
//! # Why a look-up may go without a lock
//! A block is read as one version of it, whole. Each change that moves names goes *right to left*: (1) the new block is written, which
//! nobody reaches yet; (2) the inode's new size and map are published; (3) the index entry is put in, which is one change of
//! one block; (4) the old block loses what the new one has. An index block is split the same way: the new one, its entry above, the old one.
//! A look-up reads left to right: inode, index blocks from the root, leaf.
//!
//! - It read the index entry (after 3): the new leaf has been written (1), and so has the size (2), if the snapshot of the inode is read again.
//! - It read the index before (3), and the old leaf before (4): the name is still there.
//! - It read the index before (3), and the old leaf after (4): the name is missing there. But a miss is believed only if the index,
//!   read again, still leads to the same leaves ([`settle`]). The second reading of the index comes after (4), so after (3): it leads to the new leaf.
//!
//! Reading it twice is enough, whatever goes on meanwhile: a way is only wrong because it passed a block that had just been split, to the left
//! of where it should be; the second time it goes to the right of that. Equal ways are right ones. Each further
//! round means that somebody else has split what the look-up wants: some thread always gets on.
//!
//! The block map of a directory may be changed under a look-up too: an extent block is split while the snapshot of the inode says nothing of it
//! yet. That shows as an error, never as another block: a directory has no holes, and its blocks are not freed while it grows. So what fails
//! is done again with the tree held still, and only that is told. The same holds for the one block that becomes an index's root.
//!
//! Those who change read what they change under the leaf's lock, and no index block is split while they share the tree; so one walk is enough for
//! them: the index leads to the leaf that they hold, or they go on to the one it leads to.
//!
//! Checked by `RUSTFLAGS="--cfg loom" cargo test -p dentree-ext4 --lib models`, and at work by the test `one_directory`.
//!
//! # Known limits
//! A directory without an index has one change at a time. The bits that share locks can make two directories wait for each other.
//!
//! Splits of one directory come one at a time, also under different index blocks: both take blocks at the directory's end, and change its one size and block
//! map. With eight threads that make 60,000 files in it, on two processors, 840 splits ask for the growth lock and 21 to 63 of them wait, in all 1 to 4% of the
//! threads' time; the leaves are waited for nine to twenty-eight times as long. One thread alone has it 7% of its time, so that it is a limit where
//! more than a dozen threads run at once. `cargo run --release -p dentree-ext4 --example growth_waits`.

use super::format::Found;
use super::insert::Plan;
use super::lookup::{TRIES, Way};
use crate::inode::{Held, Snapshot};
use crate::sync::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard, alone, lock, mutexes, rw_locks, share};
use crate::{Ext4, Node, Result};
use dentree_ext4_format::{InodeFlags, InodeNumber, LogicalBlock};
use dentree_lockmeter::{Crowd, Seated};

const TREES: usize = if cfg!(loom) { 1 } else { 256 };
const LEAVES: usize = if cfg!(loom) { 2 } else { 1024 };

/// Directories with so many links are changed alone by who adds one: the limit is exact.
const CROWDED: u16 = super::MAX_LINKS - 1000;

/// The locks of all directories, see the module's text.
pub(crate) struct DirectoryLocks {
    trees: Box<[Tree]>,
    growths: Box<[Mutex<()>]>,
    leaves: Box<[Mutex<()>]>,
}

/// On a cache line of its own.
#[repr(align(64))]
struct Tree {
    lock: RwLock<()>,
    /// Those who share the tree and have no part of the lock.
    crowd: Crowd,
}

/// A directory's tree is shared.
#[expect(dead_code, reason = "guards are held, not read")]
pub(super) enum Shared<'a> {
    Seated(Seated<'a>),
    Locked(ReadGuard<'a, ()>),
}

impl DirectoryLocks {
    pub(crate) fn new() -> DirectoryLocks {
        let trees = rw_locks("directory tree", TREES).into_iter();
        DirectoryLocks {
            trees: trees.map(|lock| Tree { lock, crowd: Crowd::default() }).collect(),
            growths: mutexes("directory growth", TREES),
            leaves: mutexes("directory leaf", LEAVES),
        }
    }

    fn tree(&self, dir: InodeNumber) -> &Tree {
        &self.trees[dir.0 as usize % TREES]
    }

    pub(super) fn share_tree(&self, dir: InodeNumber) -> Shared<'_> {
        let Tree { lock, crowd } = self.tree(dir);
        if let Some(seat) = crowd.sit() {
            return Shared::Seated(seat);
        }
        let shared = share(lock);
        // A crowd has models of its own: these here would be ten times as many.
        if cfg!(not(loom)) {
            crowd.note_shared();
        }
        Shared::Locked(shared)
    }

    pub(super) fn tree_alone(&self, dir: InodeNumber) -> WriteGuard<'_, ()> {
        let Tree { lock, crowd } = self.tree(dir);
        let alone = alone(lock);
        crowd.clear();
        alone
    }

    pub(super) fn leaf(&self, dir: InodeNumber, leaf: LogicalBlock) -> MutexGuard<'_, ()> {
        let mixed = dir.0.wrapping_mul(0x9E37_79B1).wrapping_add(leaf.0);
        lock(&self.leaves[mixed as usize % LEAVES])
    }

    pub(super) fn growth(&self, dir: InodeNumber) -> MutexGuard<'_, ()> {
        lock(&self.growths[dir.0 as usize % TREES])
    }
}

/// What a change of a directory's names holds while it goes on.
#[expect(dead_code, reason = "guards are held, not read")]
pub(super) enum Hold<'a> {
    Alone(WriteGuard<'a, ()>),
    Leaf(MutexGuard<'a, ()>, Shared<'a>),
    Growth(MutexGuard<'a, ()>, MutexGuard<'a, ()>, Shared<'a>),
}

/// Where an entry is to come, and what is held for it.
pub(super) struct Spot<'a> {
    pub(super) plan: Plan,
    pub(super) hold: Hold<'a>,
}

impl Ext4 {
    /// Finds how to add `name`, which `dir` does not have, and holds what that takes. `is_counted`: it is a directory's.
    ///
    /// # Errors
    /// Those of [`plan_entry`](Ext4::plan_entry).
    pub(super) fn place_entry(&self, dir: &Node, name: &[u8], is_counted: bool) -> Result<Spot<'_>> {
        let is_crowded = is_counted && dir.snapshot().inode.links >= CROWDED;
        if !is_crowded && let Some(spot) = self.place_beside(dir, name)? {
            return Ok(spot);
        }
        let hold = Hold::Alone(self.writer()?.directories.tree_alone(dir.snapshot().ino));
        Ok(Spot { plan: self.plan_entry(dir, name)?, hold })
    }

    /// As [`place_entry`](Ext4::place_entry), beside others; `None` where that cannot be, or where something is wrong.
    fn place_beside(&self, dir: &Node, name: &[u8]) -> Result<Option<Spot<'_>>> {
        let locks = &self.writer()?.directories;
        let tree = locks.share_tree(dir.ino());
        for _ in 0..TRIES {
            let snapshot = dir.snapshot();
            if !self.has_leaves(&snapshot) {
                return Ok(None);
            }
            let Some((snapshot, way)) = self.way_in(snapshot, name) else { return Ok(None) };
            let block = way.leaf.block;
            let leaf = locks.leaf(dir.ino(), block);
            // Splits come right to left: what leads here now that the leaf is held is what this leaf has.
            let Some((snapshot, way)) = self.way_again(dir, name, snapshot, way) else { return Ok(None) };
            if way.leaf.block != block {
                continue;
            }
            return Ok(match self.plan_indexed(&snapshot, way, name) {
                Ok(Plan::Split(_)) => {
                    let growth = locks.growth(dir.ino());
                    let Some((snapshot, way)) = self.way_now(dir, name) else { return Ok(None) };
                    match self.plan_indexed(&snapshot, way, name) {
                        Ok(Plan::Split(split)) if split.new_blocks == 1 => {
                            Some(Spot { plan: Plan::Split(split), hold: Hold::Growth(growth, leaf, tree) })
                        }
                        _ => None,
                    }
                }
                Ok(plan) => Some(Spot { plan, hold: Hold::Leaf(leaf, tree) }),
                Err(_) => None,
            });
        }
        Ok(None)
    }

    /// The entry of `name`, which must be there and name `node`, and what removing it holds.
    pub(super) fn entry_held(&self, dir: &Node, name: &[u8], node: &Node) -> Result<(Found, Hold<'_>)> {
        if let Some(held) = self.entry_beside(dir, name, node)? {
            return Ok(held);
        }
        let hold = Hold::Alone(self.writer()?.directories.tree_alone(dir.snapshot().ino));
        Ok((self.entry_for(&dir.snapshot(), name, node)?, hold))
    }

    fn entry_beside(&self, dir: &Node, name: &[u8], node: &Node) -> Result<Option<(Found, Hold<'_>)>> {
        let first = dir.snapshot();
        if !self.has_leaves(&first) {
            return Ok(None);
        }
        let locks = &self.writer()?.directories;
        let tree = locks.share_tree(first.ino);
        for attempt in 0..TRIES {
            // Nearly always it is in the first leaf for its hash; the others are worth a search of their own.
            let block = match attempt {
                0 => self.way_now(dir, name).map(|(_, way)| way.leaf.block),
                _ => self
                    .find_name(&dir.snapshot(), name)
                    .ok()
                    .flatten()
                    .and_then(|found| self.sb.block_size.split(found.position).map(|(block, _)| block)),
            };
            let Some(block) = block else { return Ok(None) };
            let leaf = locks.leaf(first.ino, block);
            let snapshot = dir.snapshot();
            let Some(wanted) = self.wanted(&snapshot, name) else { return Ok(None) };
            match self.search_leaf(&snapshot, block, &wanted) {
                Ok(Some(found)) if found.lookup.ino.0 == u64::from(node.snapshot().ino.0) => {
                    return Ok(Some((found, Hold::Leaf(leaf, tree))));
                }
                // It was moved by a split, or is in a further leaf.
                Ok(None) => {}
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Whether a directory has leaves that can be changed one by one.
    fn has_leaves(&self, dir: &Snapshot) -> bool {
        self.is_indexed(dir) && !dir.has(InodeFlags::INLINE_DATA) && !dir.has(InodeFlags::ENCRYPT)
    }

    /// The way to the leaf for a name, in a directory whose tree is shared; `None` where it cannot be read.
    fn way_now(&self, dir: &Node, name: &[u8]) -> Option<(Held, Way)> {
        self.way_in(dir.snapshot(), name)
    }

    /// The same in a snapshot of the directory.
    fn way_in(&self, snapshot: Held, name: &[u8]) -> Option<(Held, Way)> {
        let wanted = self.wanted(&snapshot, name)?;
        let way = self.way_for(&snapshot, &wanted).ok()??;
        Some((snapshot, way))
    }

    /// `way`, if that is how it is now, else the one that is.
    fn way_again(&self, dir: &Node, name: &[u8], snapshot: Held, way: Way) -> Option<(Held, Way)> {
        if self.are_current(&way.frames) { Some((snapshot, way)) } else { self.way_now(dir, name) }
    }
}
