//! The end of inodes without names: what they have is freed, then the inode.

use super::{INODE_CREDITS, ORPHAN_CREDITS};
use crate::writer::extended;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::InodeNumber;
use dentree_vfs::FileType;

impl Ext4 {
    /// Nobody holds an inode any more. Without a name it is freed; what of it is in memory alone is stored when that is due. An error is
    /// kept for the next sync; an inode that could not be freed stays an orphan, for whoever opens the file system next.
    pub(crate) fn evict_node(&self, node: &Node) {
        let Some(writer) = &self.writer else { return };
        if node.look(|snapshot| snapshot.kind == FileType::Directory) {
            writer.space.give_up_room(node.look(|snapshot| snapshot.ino));
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
        self.free_inode(node, &mut unused)?;
        self.free_values(unused);
        Ok(())
    }

    /// Frees orphans that held values of attributes. What fails is told by the next sync; the inode stays an orphan.
    pub(crate) fn free_values(&self, mut unused: Vec<InodeNumber>) {
        while let Some(ino) = unused.pop() {
            let orphan = self.read_orphan(ino).map(|orphan| Node::new(orphan, None));
            let freed = orphan.and_then(|node| self.free_inode(&node, &mut unused));
            if let (Err(error), Some(writer)) = (freed, &self.writer) {
                writer.unstored.remember(error);
            }
        }
    }

    /// Frees an orphan; `unused` gets the values that it was the last to have, orphans now.
    fn free_inode(&self, node: &Node, unused: &mut Vec<InodeNumber>) -> Result<()> {
        let freed = self.free_content(node)?;
        let snapshot = node.snapshot();
        let credits = INODE_CREDITS + ORPHAN_CREDITS + self.release_credits(&snapshot)?;
        let mut handle = match freed {
            Some(handle) => extended(handle, credits)?,
            None => self.start(credits)?,
        };
        let now = self.writer()?.now();
        // Past 2106 the low half is kept. 0 would say that it was never freed, and what could be an inode number, of a clock that
        // was never set, that it is an orphan.
        let dtime = u32::try_from(now.seconds & 0xFFFF_FFFF).unwrap_or(0).max(self.sb.inodes_count);
        let done = self
            .release_attributes(&mut handle, &snapshot, unused)
            .and_then(|()| self.remove_orphan(&mut handle, snapshot.ino, dtime))
            .and_then(|()| self.give_back_inode(&mut handle, snapshot.ino, snapshot.kind));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Finishes what a crash has left: inodes without names are freed, others are cut to their size.
    pub(crate) fn clean_up_orphans(&self) -> Result<()> {
        for ino in self.writer()?.orphans.all() {
            let node = Node::new(self.read_orphan(ino)?, None);
            if node.snapshot().inode.links == 0 {
                self.free_orphan(&node)?;
                continue;
            }
            self.set_size(&node, node.snapshot().inode.size)?;
            let mut handle = self.start(ORPHAN_CREDITS)?;
            let done = self.remove_orphan(&mut handle, ino, 0);
            self.all_or_abort(done)?;
            handle.stop();
        }
        Ok(())
    }
}
