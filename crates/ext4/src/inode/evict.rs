//! The end of inodes without names: what they have is freed, then the inode.
//!
//! An inode that somebody holds when it loses its last name is an orphan until it is let go, and may go in several
//! transactions. One that nobody holds then goes together with its name under one handle, and is never noted as an orphan, where what it has
//! is named by the inode itself ([`Ext4::end_in_one`]): a crash shows both, or neither.

use super::ORPHAN_CREDITS;
use crate::alloc::INODE_CREDITS;
use crate::inode::Snapshot;
use crate::map::write::{Mapped, STEP_CREDITS};
use crate::txn::extended;
use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{ExtentNode, Inode, InodeFlags, InodeNumber, InodeTime};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;

/// What it takes to free an inode under one handle.
pub(crate) struct EndInOne {
    /// Whether it maps blocks.
    maps: bool,
    pub(crate) credits: u32,
}

impl Ext4 {
    /// Nobody holds an inode any more. Without a name it is freed; what of it is in memory alone is stored when that is due. An error is
    /// kept for the next sync; an inode that could not be freed stays an orphan, for whoever opens the file system next.
    pub(crate) fn evict_node(&self, node: &Node) {
        let Some(writer) = &self.writer else { return };
        if node.look(|snapshot| snapshot.kind == FileType::Directory) {
            writer.space.discard_prealloc(node.look(|snapshot| snapshot.ino));
        }
        if node.snapshot().inode.links > 0 {
            return self.store_or_remember(node);
        }
        if let Err(error) = self.free_orphan(node) {
            writer.unstored.remember(error);
        }
    }

    /// Frees an orphan that nobody will use again.
    pub(crate) fn free_orphan(&self, node: &Node) -> Result<()> {
        let mut unused = Vec::new();
        self.free_one_orphan(node, &mut unused)?;
        self.free_values(unused);
        Ok(())
    }

    /// Frees orphans that held values of attributes. What fails is told by the next sync; the inode stays an orphan.
    pub(crate) fn free_values(&self, mut unused: Vec<InodeNumber>) {
        while let Some(ino) = unused.pop() {
            let orphan = self.read_orphan(ino).map(|orphan| Node::new(orphan, None));
            let freed = orphan.and_then(|node| self.free_one_orphan(&node, &mut unused));
            if let (Err(error), Some(writer)) = (freed, &self.writer) {
                writer.unstored.remember(error);
            }
        }
    }

    /// Frees an orphan; `unused` gets the values that it was the last to have, orphans now.
    fn free_one_orphan(&self, node: &Node, unused: &mut Vec<InodeNumber>) -> Result<()> {
        let freed = self.free_content(node)?;
        let snapshot = node.snapshot();
        let of_attributes = match self.release_credits(&snapshot) {
            Err(cause @ Error::Corrupt { .. }) => {
                let lost = Error::BlocksLost { ino: snapshot.ino, cause: Box::new(cause) };
                self.contain(Err(lost))?;
                None
            }
            credits => Some(credits?),
        };
        let credits = INODE_CREDITS + ORPHAN_CREDITS + of_attributes.unwrap_or(0);
        let mut handle = match freed {
            Some(handle) => extended(handle, credits)?,
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

    /// What it takes to free an inode, that nobody holds, together with its name. `None` where the blocks that it maps are named by others, or
    /// where something is damaged: then it becomes an orphan.
    pub(crate) fn end_in_one(&self, snapshot: &Snapshot) -> Option<EndInOne> {
        let maps = !snapshot.maps_nothing() && self.maps_by_itself(&snapshot.inode)?;
        let of_map = if maps { STEP_CREDITS } else { 0 };
        let credits = INODE_CREDITS + of_map + self.release_credits(snapshot).ok()?;
        Some(EndInOne { maps, credits })
    }

    /// Whether an inode maps blocks, if its own bytes say so and which: at most four extents.
    fn maps_by_itself(&self, inode: &Inode) -> Option<bool> {
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

    /// Frees an inode whose last name goes under the same handle, and what it has; `unused` gets the values that it was the last to have,
    /// orphans now.
    pub(crate) fn end_inode(
        &self,
        handle: &mut Handle<'_>,
        snapshot: &Snapshot,
        end: &EndInOne,
        now: InodeTime,
        unused: &mut Vec<InodeNumber>,
    ) -> Result<()> {
        let (ino, mut inode) = (snapshot.ino, snapshot.inode.clone());
        if snapshot.kind == FileType::Directory {
            self.writer()?.space.discard_prealloc(ino);
        }
        if end.maps {
            self.remap(handle, &mut Mapped { ino, inode: &mut inode }, 0..1 << 32, None)?;
        }
        self.release_attributes(handle, snapshot, unused)?;
        (inode.links, inode.ctime) = (0, now);
        let dtime = self.dtime_at(now);
        self.update_inode(handle, ino, |bytes| inode.encode_freed(bytes, dtime, &self.sb))?;
        self.free_inode(handle, ino, snapshot.kind)
    }

    /// `i_dtime` of an inode that is freed. Past 2106 the low half of the time is kept. 0 would say that it was never freed, and what could be
    /// an inode number, of a clock that was never set, that it is an orphan.
    fn dtime_at(&self, now: InodeTime) -> u32 {
        u32::try_from(now.seconds & 0xFFFF_FFFF).unwrap_or(0).max(self.sb.inodes_count)
    }

    /// Finishes what a crash has left: inodes without names are freed, others are cut to their size.
    pub(crate) fn clean_up_orphans(&self) -> Result<()> {
        for ino in self.writer()?.orphans.all() {
            let node = Node::new(self.read_orphan(ino)?, None);
            let done = if node.snapshot().inode.links == 0 {
                self.free_orphan(&node)
            } else {
                self.cut_orphan(&node)
            };
            self.contain(done)?;
        }
        Ok(())
    }

    /// Cuts an orphan that has a name to its size.
    fn cut_orphan(&self, node: &Node) -> Result<()> {
        let cut = self.set_size(node, node.snapshot().inode.size);
        self.contain(cut)?;
        let mut handle = self.start(ORPHAN_CREDITS)?;
        let done = self.remove_orphan(&mut handle, node.ino(), 0);
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Leaves damage of one file to the next sync to tell: it must not keep anybody from the others. Not where a change stopped half way.
    pub(crate) fn contain(&self, outcome: Result<()>) -> Result<()> {
        let writer = self.writer()?;
        match outcome {
            Err(damage @ (Error::Corrupt { .. } | Error::BlocksLost { .. }))
                if !writer.journal.is_aborted() =>
            {
                writer.unstored.remember(damage);
                Ok(())
            }
            outcome => outcome,
        }
    }
}
