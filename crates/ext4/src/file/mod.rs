//! File content.
//!
//! Allocation is delayed: written data stays in memory ([`Content`]) with its space reserved, so
//! the write reports ENOSPC. Under one handle, write-back allocates blocks, writes the data, maps
//! the blocks, and advances the length on disk (`docs/internals/writing.md`). Large writes bypass
//! the memory ([`direct`]).
//!
//! # Who protects what
//! A [`Node`]'s content lock guards its [`Content`] and block map, shared for reads.
//! [`DirtyInodes`] has a lock of its own, taken inside content locks and not held during I/O.
//!
//! # Limits of memory
//! A writer writes back its file from [`FILE_BUDGET`] of dirty data on, all files from
//! [`TOTAL_BUDGET`].

mod content;
mod direct;
mod fallocate;
mod inline;
mod read;
mod symlink;
mod truncate;
mod write;
mod writeback;

pub(crate) use content::Content;
pub(crate) use write::Times;

use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{Incompat, InodeFlags, InodeNumber, LogicalBlock, RoCompat};
use dentree_sync::{Mutex, MutexGuard};
use dentree_vfs::Durability;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FILE_BUDGET: u64 = 8 << 20;

const TOTAL_BUDGET: u64 = 64 << 20;

#[derive(Default)]
pub(crate) struct DirtyInodes {
    nodes: Mutex<BTreeMap<InodeNumber, Node>>,
    bytes: AtomicU64,
    /// First error of an evicted inode.
    write_error: Mutex<Option<Error>>,
}

impl DirtyInodes {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<InodeNumber, Node>> {
        self.nodes.lock()
    }

    /// `None` for a clean inode. An inode has only one node.
    pub(crate) fn node(&self, ino: InodeNumber) -> Option<Node> {
        self.nodes().get(&ino).cloned()
    }

    /// Keeps an error for the next sync.
    pub(crate) fn record_error(&self, error: Error) {
        self.write_error.lock().get_or_insert(error);
    }

    fn nodes_to_write(&self) -> Vec<Node> {
        self.nodes().values().cloned().collect()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Ext4 {
    pub(crate) fn fsync(&self, node: &Node, durability: Durability) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        // Syncing only data would save nothing: map and length are needed too.
        let _ = durability;
        self.write_back(node)?;
        match node.last_change() {
            Some(tid) => Ok(writer.journal.wait_commit(tid)?),
            None => Ok(()),
        }
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let written = self.write_back_all();
        writer.journal.force_commit()?;
        written?;
        let write_error = writer.dirty.write_error.lock().take();
        write_error.map_or(Ok(()), Err)
    }

    /// Whether [`sync`](dentree_vfs::FileSystem::sync) has something to write.
    pub fn has_unsynced(&self) -> bool {
        let Some(writer) = &self.writer else { return false };
        !writer.dirty.nodes().is_empty() || writer.journal.has_changes()
    }

    /// Only a crash before the next commit undoes that.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let mut outcome = Ok(());
        for node in writer.dirty.nodes_to_write() {
            outcome = outcome.and(self.write_back(&node));
        }
        outcome
    }

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

    fn max_size(&self, snapshot: &Snapshot) -> u64 {
        let log2 = self.sb.block_size.log2();
        // Inline content moves to the kind of map of new files.
        let inline = snapshot.has(InodeFlags::INLINE_DATA) && self.sb.incompat.has(Incompat::EXTENTS);
        let by_map = if inline || snapshot.has(InodeFlags::EXTENTS) {
            (1 << 32) - 1
        } else {
            let log_room = log2 - 2;
            (12 + (1 << log_room) + (1 << (2 * log_room)) + (1_u64 << (3 * log_room))).min((1 << 32) - 1)
        };
        let huge = self.sb.ro_compat.has(RoCompat::HUGE_FILE);
        // `i_blocks` counts sectors in 32 or 48 bits.
        let by_count = if huge { u64::MAX } else { ((1_u64 << 32) - 1) / 100 * 99 * 512 };
        let large = self.sb.ro_compat.has(RoCompat::LARGE_FILE);
        let by_size = if large || self.sb.incompat.has(Incompat::EXTENTS) { u64::MAX } else { (1 << 31) - 1 };
        (by_map << log2).min(by_count).min(by_size)
    }

    fn discard_dirty(&self, content: &mut Content, from: u64, end: u64) -> Result<()> {
        while let Some(block) = content.next_block(from, end) {
            self.remove_block(content, LogicalBlock(block), true)?;
        }
        Ok(())
    }

    /// `release`: the reservation is not needed.
    fn remove_block(&self, content: &mut Content, block: LogicalBlock, release: bool) -> Result<()> {
        let writer = self.writer()?;
        if let Some(removed) = content.blocks.remove(&block.0) {
            writer.dirty.bytes.fetch_sub(u64::from(self.sb.block_size.bytes()), Relaxed);
            if removed.is_reserved {
                content.reserved -= 1;
                writer.space.release(u64::from(release));
            }
        }
        Ok(())
    }

    /// Also updates the inode's count of reserved blocks. The caller has the content lock.
    fn update_dirty_list(&self, node: &Node, content: &Content) -> Result<()> {
        let writer = self.writer()?;
        let snapshot = node.snapshot();
        let ino = snapshot.ino;
        if snapshot.reserved != content.reserved {
            node.change(|snapshot| snapshot.reserved = content.reserved);
        }
        if content.is_clean() {
            let mut nodes = writer.dirty.nodes();
            if nodes.get(&ino).is_some_and(|listed| listed.is_same(node)) {
                nodes.remove(&ino);
            }
        } else {
            writer.dirty.nodes().entry(ino).or_insert_with(|| node.clone());
        }
        Ok(())
    }
}
