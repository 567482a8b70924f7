//! Changes of file content.
//!
//! What is written stays in memory ([`Content`]) until it is *stored*: space for it is promised at once, so that a full device is
//! told to the writer, but where it goes is decided when much of it is there. Storing takes a run of blocks, writes the data, maps the
//! run, and moves the length on the device, in this order and under one handle: see `docs/internals/writing.md`. A large write is stored
//! from where it is, without having been in memory here ([`direct`]).
//!
//! # Who protects what
//! The content lock of a [`Node`] guards its [`Content`] and its block map: shared for reading, exclusive for everything else, storing
//! included. [`Unstored`] lists the inodes that have something to store; its lock is taken inside content locks and holds for no I/O.
//!
//! # How much is in memory
//! A file that has [`FILE_BUDGET`] is stored by who writes to it; where all have [`TOTAL_BUDGET`], who writes stores others' too.

mod direct;
mod fallocate;
mod inline;
mod read;
mod source;
mod stored;
mod symlink;
mod truncate;
mod write;
mod writeback;

pub(crate) use write::Times;

use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{Incompat, InodeFlags, InodeNumber, LogicalBlock, RoCompat};
use dentree_vfs::Durability;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of one file that are not stored, at most.
const FILE_BUDGET: u64 = 8 << 20;

/// Bytes of all files that are not stored, at most.
const TOTAL_BUDGET: u64 = 64 << 20;

/// The content of a file that is not stored.
#[derive(Debug, Default)]
pub(crate) struct Content {
    blocks: BTreeMap<u32, Block>,
    /// How many of them are promised a block of the device.
    promised: u64,
    /// Times or length have changed without the inode table.
    is_inode_unstored: bool,
}

/// A block of a file, as it is to be.
#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// A block of the device was promised for it: it has none yet.
    is_promised: bool,
}

impl Content {
    /// Whether there is nothing to store.
    fn is_stored(&self) -> bool {
        self.blocks.is_empty() && !self.is_inode_unstored
    }

    /// The first block from `from` to before `end` that is here.
    fn next_block(&self, from: u64, end: u64) -> Option<u32> {
        let from = u32::try_from(from).ok()?;
        let next = self.blocks.range(from..).next().map(|(&block, _)| block);
        next.filter(|&block| u64::from(block) < end)
    }
}

/// The inodes that have content to store.
#[derive(Default)]
pub(crate) struct Unstored {
    nodes: Mutex<BTreeMap<InodeNumber, Node>>,
    bytes: AtomicU64,
    /// What could not be stored, of inodes that nobody holds any more.
    lost: Mutex<Option<Error>>,
}

impl Unstored {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<InodeNumber, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode, if it has content to store: there must be no second of it.
    pub(crate) fn node(&self, ino: InodeNumber) -> Option<Node> {
        self.nodes().get(&ino).cloned()
    }

    /// Keeps an error that nobody waits for, for the next sync.
    pub(crate) fn remember(&self, error: Error) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn all(&self) -> Vec<Node> {
        self.nodes().values().cloned().collect()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Ext4 {
    /// Stores what of a file is in memory, and waits until that and the inode survive a power cut.
    pub(crate) fn sync_node(&self, node: &Node, durability: Durability) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        // With data alone its map and length go, too: there is nothing to save.
        let _ = durability;
        self.store(node)?;
        match node.last_change() {
            Some(tid) => Ok(writer.journal.wait_commit(tid)?),
            None => Ok(()),
        }
    }

    /// Stores all that is in memory, and waits until everything survives a power cut.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let stored = self.store_all();
        writer.journal.force_commit()?;
        stored?;
        let lost = writer.unstored.lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        lost.map_or(Ok(()), Err)
    }

    /// Whether [`sync`](dentree_vfs::FileSystem::sync) has something to write. Changes that other threads
    /// are making may be missed.
    pub fn has_unsynced(&self) -> bool {
        let Some(writer) = &self.writer else { return false };
        !writer.unstored.nodes().is_empty() || writer.journal.has_changes()
    }

    /// Stores all that is in memory, of as many files as can be. They are in the image then, but for a crash before the next commit.
    pub(crate) fn store_all(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let mut outcome = Ok(());
        for node in writer.unstored.all() {
            outcome = outcome.and(self.store(&node));
        }
        outcome
    }

    /// Refuses files whose content must not be changed here.
    fn check_changeable(&self, snapshot: &Snapshot) -> Result<()> {
        if self.writer()?.journal.is_aborted() {
            return Err(Error::ReadOnly);
        }
        if snapshot.has(InodeFlags::ENCRYPT) {
            return Err(Error::Encrypted(snapshot.ino));
        }
        if snapshot.has(InodeFlags::VERITY) {
            let ino = snapshot.ino;
            return Err(Error::Unsupported(format!(
                "inode {ino} is sealed by fs-verity: its content cannot be changed"
            )));
        }
        Ok(())
    }

    /// The longest that a file can be.
    fn max_size(&self, snapshot: &Snapshot) -> u64 {
        let log2 = self.sb.block_size.log2();
        // What lies in the inode would be moved out to what the file system uses for new files.
        let inline = snapshot.has(InodeFlags::INLINE_DATA) && self.sb.incompat.has(Incompat::EXTENTS);
        let by_map = if inline || snapshot.has(InodeFlags::EXTENTS) {
            (1 << 32) - 1
        } else {
            let log_room = log2 - 2;
            (12 + (1 << log_room) + (1 << (2 * log_room)) + (1_u64 << (3 * log_room))).min((1 << 32) - 1)
        };
        let huge = self.sb.ro_compat.has(RoCompat::HUGE_FILE);
        // `i_blocks` counts sectors, of pointer blocks too, in 32 or 48 bits.
        let by_count = if huge { u64::MAX } else { ((1_u64 << 32) - 1) / 100 * 99 * 512 };
        let large = self.sb.ro_compat.has(RoCompat::LARGE_FILE);
        let by_size = if large || self.sb.incompat.has(Incompat::EXTENTS) { u64::MAX } else { (1 << 31) - 1 };
        (by_map << log2).min(by_count).min(by_size)
    }

    /// Drops what is in memory of the file blocks from `from` to before `end`, as if it had never been written.
    fn drop_unstored(&self, content: &mut Content, from: u64, end: u64) -> Result<()> {
        while let Some(block) = content.next_block(from, end) {
            self.forget_block(content, LogicalBlock(block), true)?;
        }
        Ok(())
    }

    /// Takes a block out of memory. `release`: what was promised for it is not needed.
    fn forget_block(&self, content: &mut Content, block: LogicalBlock, release: bool) -> Result<()> {
        let writer = self.writer()?;
        if let Some(gone) = content.blocks.remove(&block.0) {
            writer.unstored.bytes.fetch_sub(u64::from(self.sb.block_size.bytes()), Relaxed);
            if gone.is_promised {
                content.promised -= 1;
                writer.space.release(u64::from(release));
            }
        }
        Ok(())
    }

    /// Notes whether a file has something to store, and how much space that will take. The caller has its content lock.
    fn list_unstored(&self, node: &Node, content: &Content) -> Result<()> {
        let writer = self.writer()?;
        let snapshot = node.snapshot();
        let ino = snapshot.ino;
        if snapshot.promised != content.promised {
            node.change(|snapshot| snapshot.promised = content.promised);
        }
        if content.is_stored() {
            let mut nodes = writer.unstored.nodes();
            if nodes.get(&ino).is_some_and(|listed| listed.is_same(node)) {
                nodes.remove(&ino);
            }
        } else {
            writer.unstored.nodes().entry(ino).or_insert_with(|| node.clone());
        }
        Ok(())
    }
}
