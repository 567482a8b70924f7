//! Cutting and lengthening files, and freeing what they map.

use crate::inodes::ORPHAN_CREDITS;
use crate::map::Mapping;
use crate::remap::{Mapped, STEP_CREDITS};
use crate::space::Claim;
use crate::writer::extended;
use crate::{Error, Ext4, Node, Result, Snapshot};
use dentree_ext4_format::LogicalBlock;
use dentree_jbd2::Handle;
use std::ops::Range;

use super::store::adopt_map;

/// Blocks that one step of unmapping changes: the map, and the inode.
const UNMAP_CREDITS: u32 = STEP_CREDITS + 1;

impl Ext4 {
    /// Sets a file's length: cuts it, or lengthens it by a hole.
    pub(crate) fn set_size(&self, node: &Node, size: u64) -> Result<()> {
        self.with_space(|| {
            let may_be_inline = self.lock_for_inline(node, Some(size), 0);
            let mut content = node.content_mut();
            let snapshot = node.snapshot();
            self.check_changeable(&snapshot)?;
            if size > self.max_size(&snapshot) {
                return Err(Error::FileTooLarge(snapshot.ino));
            }
            if may_be_inline.is_some() && self.set_inline_size(node, &mut content, size)? {
                return Ok(());
            }
            let snapshot = self.without_inline(node, snapshot)?;
            let now = self.writer()?.now();
            let old = snapshot.inode.size;
            let log2 = self.sb.block_size.log2();
            let kept = self.sb.block_size.blocks_for(size);
            if size > old {
                self.zero_tail(&mut content, &snapshot)?;
            } else {
                self.drop_unstored(&mut content, kept, 1 << 32)?;
                if size < kept << log2 {
                    self.zero_part(&mut content, &snapshot, size, kept << log2)?;
                }
            }
            let cuts = size < old || self.maps_behind(node, kept)?;
            let mut handle = self.start(UNMAP_CREDITS + ORPHAN_CREDITS)?;
            if cuts {
                // It may take several transactions: a crash between them must not leave blocks behind the end.
                let noted = self.add_orphan(&mut handle, snapshot.ino);
                self.all_or_abort(noted)?;
            }
            let changed = self.change_inode(&mut handle, node, |snapshot| {
                // What is to be stored yet moves the length on again.
                snapshot.stored_size = snapshot.stored_size.filter(|&stored| stored < size);
                snapshot.set_size(size, !content.blocks.is_empty());
                (snapshot.inode.mtime, snapshot.inode.ctime) = (now, now);
            });
            self.all_or_abort(changed)?;
            if cuts {
                let handle = self.unmap(handle, node, kept..1 << 32)?;
                self.end_truncation(handle, node)?;
            } else {
                handle.stop();
            }
            content.is_inode_unstored |= !content.blocks.is_empty();
            self.list_unstored(node, &content)
        })
    }

    /// A file that has a name is no orphan once it is cut.
    fn end_truncation(&self, handle: Handle<'_>, node: &Node) -> Result<()> {
        let snapshot = node.snapshot();
        if snapshot.inode.links == 0 {
            handle.stop();
            return Ok(());
        }
        let mut handle = extended(handle, 2 * ORPHAN_CREDITS)?;
        let mut done = self.remove_orphan(&mut handle, snapshot.ino, 0);
        // Who has taken the last name meanwhile has found it noted already.
        if node.snapshot().inode.links == 0 {
            done = done.and_then(|()| self.add_orphan(&mut handle, snapshot.ino));
        }
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Whether anything is mapped at or behind a file block.
    pub(super) fn maps_behind(&self, node: &Node, block: u64) -> Result<bool> {
        let mut at = block;
        while let Ok(here) = u32::try_from(at) {
            let run = self.map(&node.snapshot(), LogicalBlock(here))?;
            if run.mapping != Mapping::Hole {
                return Ok(true);
            }
            at += run.len;
        }
        Ok(false)
    }

    /// Frees all that a file, a directory or a symbolic link maps: nobody will read it again. It is on the list of orphans. Answers the
    /// handle of the last step, where there was any.
    pub(crate) fn free_content(&self, node: &Node) -> Result<Option<Handle<'_>>> {
        self.drop_content(node)?;
        let _content = node.content_mut();
        if node.look(Snapshot::maps_nothing) || !self.maps_behind(node, 0)? {
            return Ok(None);
        }
        let handle = self.start(UNMAP_CREDITS)?;
        Ok(Some(self.unmap(handle, node, 0..1 << 32)?))
    }

    /// Unmaps the file blocks of `range` and frees what they were mapped to, in as many transactions as it takes. The handle has
    /// credits for the first step; the caller has the content lock.
    pub(super) fn unmap<'a>(
        &'a self,
        handle: Handle<'a>,
        node: &Node,
        range: Range<u64>,
    ) -> Result<Handle<'a>> {
        let (mut handle, mut at) = (handle, range.start);
        let mut is_first = true;
        while let Some(here) = u32::try_from(at).ok().filter(|_| at < range.end) {
            let snapshot = node.snapshot();
            let run = self.map(&snapshot, LogicalBlock(here))?;
            if run.mapping == Mapping::Hole {
                at += run.len;
                continue;
            }
            if !is_first {
                handle = extended(handle, UNMAP_CREDITS)?;
            }
            is_first = false;
            let mut inode = snapshot.inode.clone();
            let mut file = Mapped { ino: snapshot.ino, inode: &mut inode };
            let next = self.remap(&mut handle, &mut file, at..range.end, None)?;
            let changed =
                self.change_inode(&mut handle, node, |now| adopt_map(now, &inode, snapshot.inode.sectors));
            self.all_or_abort(changed)?;
            at = next;
        }
        Ok(handle)
    }

    /// Whose claim on space a file makes.
    pub(super) fn claim_of(&self, node: &Node) -> Claim {
        Claim::of_owner(node.snapshot().inode.uid)
    }
}
