//! Freeing of inodes without links.
//!
//! An inode in use that loses its last link is an orphan until its eviction. An unused one is freed
//! with its last link, under one handle, if its own bytes name all that it maps
//! ([`Ext4::plan_free`]): a crash shows both or neither.

use super::ORPHAN_CREDITS;
use crate::alloc::INODE_CREDITS;
use crate::inode::Snapshot;
use crate::map::write::{Mapped, STEP_CREDITS};
use crate::txn::extend_or_restart;
use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{ExtentNode, Inode, InodeFlags, InodeNumber, InodeTime};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;

/// How to free an inode under one handle.
pub(crate) struct FreePlan {
    maps: bool,
    pub(crate) credits: u32,
}

impl Ext4 {
    /// Frees an inode without links, else writes it back. The next sync reports errors; an inode
    /// not freed stays an orphan until the next mount.
    pub(crate) fn evict(&self, node: &Node) {
        let Some(writer) = &self.writer else { return };
        if node.with_snapshot(|snapshot| snapshot.kind == FileType::Directory) {
            writer.space.discard_prealloc(node.with_snapshot(|snapshot| snapshot.ino));
        }
        if node.snapshot().inode.links > 0 {
            return self.write_back_evicted(node);
        }
        if let Err(error) = self.free_orphan(node) {
            writer.dirty.record_error(error);
        }
    }

    pub(crate) fn free_orphan(&self, node: &Node) -> Result<()> {
        let mut unused = Vec::new();
        self.free_one_orphan(node, &mut unused)?;
        self.free_values(unused);
        Ok(())
    }

    /// The next sync reports errors.
    pub(crate) fn free_values(&self, mut unused: Vec<InodeNumber>) {
        while let Some(ino) = unused.pop() {
            let orphan = self.read_orphan(ino).map(|orphan| Node::new(orphan, None));
            let freed = orphan.and_then(|node| self.free_one_orphan(&node, &mut unused));
            if let (Err(error), Some(writer)) = (freed, &self.writer) {
                writer.dirty.record_error(error);
            }
        }
    }

    /// Adds attribute values without users, now orphans, to `unused`.
    fn free_one_orphan(&self, node: &Node, unused: &mut Vec<InodeNumber>) -> Result<()> {
        let freed = self.free_content(node)?;
        let snapshot = node.snapshot();
        let of_attributes = match self.release_credits(&snapshot) {
            Err(cause @ Error::Corrupt { .. }) => {
                let lost = Error::BlocksLost { ino: snapshot.ino, cause: Box::new(cause) };
                self.defer_damage(Err(lost))?;
                None
            }
            credits => Some(credits?),
        };
        let credits = INODE_CREDITS + ORPHAN_CREDITS + of_attributes.unwrap_or(0);
        let mut handle = match freed {
            Some(handle) => extend_or_restart(handle, credits)?,
            None => self.start(credits)?,
        };
        let dtime = self.dtime_at(self.writer()?.clock.now());
        let released = match of_attributes {
            Some(_) => self.release_attributes(&mut handle, &snapshot, unused),
            None => Ok(()),
        };
        let done = released
            .and_then(|()| self.remove_orphan(&mut handle, snapshot.ino, dtime))
            .and_then(|()| self.free_inode(&mut handle, snapshot.ino, snapshot.kind));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// `None` if other blocks name what it maps, or on damage: then it becomes an orphan.
    pub(crate) fn plan_free(&self, snapshot: &Snapshot) -> Option<FreePlan> {
        let maps = !snapshot.maps_nothing() && self.maps_in_inode(&snapshot.inode)?;
        let of_map = if maps { STEP_CREDITS } else { 0 };
        let credits = INODE_CREDITS + of_map + self.release_credits(snapshot).ok()?;
        Some(FreePlan { maps, credits })
    }

    /// `None` if its bytes do not name all its blocks (at most four extents).
    fn maps_in_inode(&self, inode: &Inode) -> Option<bool> {
        if !inode.flags.has(InodeFlags::EXTENTS) {
            return inode.block.iter().all(|&byte| byte == 0).then_some(false);
        }
        let root = ExtentNode::parse_root(&inode.block).ok().filter(|root| root.depth() == 0)?;
        let mut runs = Vec::new();
        for extent in root.extents() {
            runs.push((extent.start, u64::from(extent.len)));
        }
        self.check_distinct(runs.iter().copied()).ok()?;
        Some(!runs.is_empty())
    }

    /// Frees an inode under the handle that removes its last link. Adds attribute values without
    /// users, now orphans, to `unused`.
    pub(crate) fn free_with_link(
        &self,
        handle: &mut Handle<'_>,
        snapshot: &Snapshot,
        end: &FreePlan,
        now: InodeTime,
        unused: &mut Vec<InodeNumber>,
    ) -> Result<()> {
        let (ino, mut inode) = (snapshot.ino, snapshot.inode.clone());
        if snapshot.kind == FileType::Directory {
            self.writer()?.space.discard_prealloc(ino);
        }
        if end.maps {
            self.remap(handle, &mut Mapped { ino, inode: &mut inode }, 0..1 << 32, None)?;
            inode.size = 0;
        }
        self.release_attributes(handle, snapshot, unused)?;
        (inode.links, inode.ctime) = (0, now);
        let dtime = self.dtime_at(now);
        self.update_inode(handle, ino, |bytes| inode.encode_freed(bytes, dtime, &self.sb))?;
        self.free_inode(handle, ino, snapshot.kind)
    }

    /// The low half of a time past 2106. At least the number of inodes: 0 means "not freed", and an
    /// inode number (a clock never set) "orphan".
    pub(crate) fn dtime_at(&self, now: InodeTime) -> u32 {
        u32::try_from(now.seconds & 0xFFFF_FFFF).unwrap_or(0).max(self.sb.inodes_count)
    }

    /// Frees inodes without links, truncates the others to their size.
    pub(crate) fn clean_up_orphans(&self) -> Result<()> {
        for ino in self.writer()?.orphans.all() {
            let node = Node::new(self.read_orphan(ino)?, None);
            let done = if node.snapshot().inode.links == 0 {
                self.free_orphan(&node)
            } else {
                self.truncate_orphan(&node)
            };
            self.defer_damage(done)?;
        }
        Ok(())
    }

    fn truncate_orphan(&self, node: &Node) -> Result<()> {
        let cut = self.set_size(node, node.snapshot().inode.size);
        self.defer_damage(cut)?;
        let mut handle = self.start(ORPHAN_CREDITS)?;
        let done = self.remove_orphan(&mut handle, node.ino(), 0);
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Damage of one file is reported by the next sync; an aborted journal fails at once.
    pub(crate) fn defer_damage(&self, outcome: Result<()>) -> Result<()> {
        let writer = self.writer()?;
        match outcome {
            Err(damage @ (Error::Corrupt { .. } | Error::BlocksLost { .. }))
                if !writer.journal.is_aborted() =>
            {
                writer.dirty.record_error(damage);
                Ok(())
            }
            outcome => outcome,
        }
    }
}
