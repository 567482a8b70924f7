//! Truncation, and freeing of mapped blocks.

use crate::alloc::ReservationClass;
use crate::inode::ORPHAN_CREDITS;
use crate::inode::Snapshot;
use crate::map::FILE_END;
use crate::map::write::{Mapped, STEP_CREDITS};
use crate::txn::extend_or_restart;
use crate::{Error, Ext4, Node, Result};
use dentree_jbd2::Handle;
use std::ops::Range;

use super::writeback::adopt_map;

/// Map and inode.
const UNMAP_CREDITS: u32 = STEP_CREDITS + 1;

impl Ext4 {
    /// Growth makes a hole.
    pub(crate) fn set_size(&self, node: &Node, size: u64) -> Result<()> {
        self.retry_after_commit(|| {
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
            let snapshot = self.convert_inline(node, snapshot)?;
            let now = self.writer()?.now();
            let old = snapshot.inode.size;
            let log2 = self.sb.block_size.log2();
            let kept = self.sb.block_size.blocks_for(size);
            // A map that cannot be freed is not truncated.
            self.check_map(&snapshot, kept..FILE_END)?;
            if size > old {
                self.zero_tail(&mut content, &snapshot)?;
            } else {
                self.discard_dirty(&mut content, kept, FILE_END)?;
                if size < kept << log2 {
                    self.zero_part(&mut content, &snapshot, size, kept << log2)?;
                }
            }
            let cuts = size < old || self.next_mapped(&snapshot, kept..FILE_END)?.is_some();
            let mut handle = self.start(UNMAP_CREDITS + ORPHAN_CREDITS)?;
            if cuts {
                // It may take several transactions: after a crash the orphan list finishes them.
                let added = self.add_orphan(&mut handle, snapshot.ino);
                self.all_or_abort(added)?;
            }
            let changed = self.change_inode(&mut handle, node, |snapshot| {
                // Write-back advances it again.
                snapshot.disk_size = snapshot.disk_size.filter(|&disk_size| disk_size < size);
                snapshot.set_size(size, !content.blocks.is_empty());
                (snapshot.inode.mtime, snapshot.inode.ctime) = (now, now);
            });
            self.all_or_abort(changed)?;
            if cuts {
                let unmapped = self.unmap(handle, node, kept..FILE_END);
                let (handle, cut) = match unmapped {
                    Ok(handle) => (handle, Ok(())),
                    // The rest stays mapped past the end of file. Retrying at each mount would not
                    // help.
                    Err(error) => (self.start(2 * ORPHAN_CREDITS)?, Err(error)),
                };
                self.finish_truncate(handle, node)?;
                cut?;
            } else {
                handle.stop();
            }
            content.is_inode_dirty |= !content.blocks.is_empty();
            self.update_dirty_list(node, &content)
        })
    }

    /// Keeps an inode without links on the orphan list.
    fn finish_truncate(&self, handle: Handle<'_>, node: &Node) -> Result<()> {
        let snapshot = node.snapshot();
        if snapshot.inode.links == 0 {
            handle.stop();
            return Ok(());
        }
        let mut handle = extend_or_restart(handle, 2 * ORPHAN_CREDITS)?;
        let mut done = self.remove_orphan(&mut handle, snapshot.ino, 0);
        // A concurrent unlink found it on the orphan list and did not add it.
        if node.snapshot().inode.links == 0 {
            done = done.and_then(|()| self.add_orphan(&mut handle, snapshot.ino));
        }
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Returns the last step's handle. Of a damaged map nothing is freed, as its blocks may be
    /// another file's; the next sync reports them as lost.
    pub(crate) fn free_content(&self, node: &Node) -> Result<Option<Handle<'_>>> {
        self.discard_content(node)?;
        let _content = node.content_mut();
        if node.with_snapshot(Snapshot::maps_nothing) {
            return Ok(None);
        }
        match self.free_sound_map(node) {
            Err(cause @ Error::Corrupt { .. }) => {
                let lost = Error::BlocksLost { ino: node.ino(), cause: Box::new(cause) };
                self.defer_damage(Err(lost)).map(|()| None)
            }
            freed => freed,
        }
    }

    fn free_sound_map(&self, node: &Node) -> Result<Option<Handle<'_>>> {
        let all = 0..FILE_END;
        let snapshot = node.snapshot();
        self.check_map(&snapshot, all.clone())?;
        if self.next_mapped(&snapshot, all.clone())?.is_none() {
            return Ok(None);
        }
        let handle = self.start(UNMAP_CREDITS)?;
        self.unmap(handle, node, all).map(Some)
    }

    /// Takes as many transactions as needed. The handle has credits for the first; the caller has
    /// the content lock.
    pub(super) fn unmap<'a>(
        &'a self,
        handle: Handle<'a>,
        node: &Node,
        range: Range<u64>,
    ) -> Result<Handle<'a>> {
        let (mut handle, mut at) = (handle, range.start);
        let mut is_first = true;
        while let Some(here) = self.next_mapped(&node.snapshot(), at..range.end)? {
            if !is_first {
                handle = extend_or_restart(handle, UNMAP_CREDITS)?;
            }
            is_first = false;
            let snapshot = node.snapshot();
            let mut inode = snapshot.inode.clone();
            let mut file = Mapped { ino: snapshot.ino, inode: &mut inode };
            let next = self.remap(&mut handle, &mut file, here..range.end, None)?;
            let changed =
                self.change_inode(&mut handle, node, |now| adopt_map(now, &inode, snapshot.inode.sectors));
            self.all_or_abort(changed)?;
            at = next;
        }
        Ok(handle)
    }

    pub(super) fn reservation_class(&self, node: &Node) -> ReservationClass {
        ReservationClass::of_owner(node.snapshot().inode.uid)
    }
}
