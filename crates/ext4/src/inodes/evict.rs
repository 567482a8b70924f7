//! The end of inodes without names: what they have is freed, then the inode.

use super::{INODE_CREDITS, ORPHAN_CREDITS};
use crate::{Ext4, Node, Result, Snapshot, Structure};
use dentree_ext4_format::xattr::{XattrBlock, set_block_refcount};
use dentree_jbd2::Handle;

/// Blocks that dropping a block of attributes changes: it, or bitmap and descriptor of its group.
const XATTR_CREDITS: u32 = 3;

impl Ext4 {
    /// Nobody holds an inode any more. Without a name it is freed; what of it is in memory alone is stored when that is due. An error is
    /// kept for the next sync; an inode that could not be freed stays an orphan, for whoever opens the file system next.
    pub(crate) fn evict_node(&self, node: &Node) {
        let Some(writer) = &self.writer else { return };
        if node.snapshot().inode.links > 0 {
            return self.store_or_remember(node);
        }
        if let Err(error) = self.free_orphan(node) {
            writer.unstored.remember(error);
        }
    }

    fn free_orphan(&self, node: &Node) -> Result<()> {
        self.free_content(node)?;
        let snapshot = node.snapshot();
        let mut handle = self.start(INODE_CREDITS + ORPHAN_CREDITS + XATTR_CREDITS)?;
        let now = self.writer()?.now();
        // Past 2106 the low half is kept. 0 would say that it was never freed, and what could be an inode number, of a clock that
        // was never set, that it is an orphan.
        let dtime = u32::try_from(now.seconds & 0xFFFF_FFFF).unwrap_or(0).max(self.sb.inodes_count);
        let done = self
            .drop_xattr_block(&mut handle, &snapshot)
            .and_then(|()| self.remove_orphan(&mut handle, snapshot.ino, dtime))
            .and_then(|()| self.give_back_inode(&mut handle, snapshot.ino, snapshot.kind));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// The attributes in a block of their own have one user less; without any the block is freed.
    fn drop_xattr_block(&self, handle: &mut Handle<'_>, inode: &Snapshot) -> Result<()> {
        let Some(block) = inode.inode.xattr_block else { return Ok(()) };
        let place = inode.place(Structure::XattrBlock).at(block);
        let seed = self.sb.has_metadata_csum().then_some(self.sb.checksum_seed);
        let left = self.update(handle, block, place, |bytes| {
            let parsed = XattrBlock::parse(bytes)?;
            seed.map_or(Ok(()), |seed| parsed.verify(seed, block))?;
            let left = parsed.refcount.saturating_sub(1);
            if left > 0 {
                set_block_refcount(bytes, left, block, seed);
            }
            Ok(left)
        })?;
        match left.map_err(|problem| place.corrupt(problem))? {
            0 => self.free_blocks(handle, block, 1, true),
            _ => Ok(()),
        }
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
