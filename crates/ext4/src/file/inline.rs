//! Inline data: the first bytes of an empty file, and later writes while they fit, go to the inode
//! table at once. Any other change moves them to a block, for good.

use super::content::Content;
use super::write::Times;
use super::writeback::adopt_map;
use crate::alloc::ALLOC_CREDITS;
use crate::inode::Snapshot;
use crate::map::FILE_END;
use crate::map::write::{Mapped, STEP_CREDITS, Target};
use crate::xattr::remove_inline_data;
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{Extent, I_BLOCK_LEN, Incompat, InodeFlags, write_extent_leaf};
use dentree_sync::RwLockWriteGuard;
use dentree_vfs::FileType;

impl Ext4 {
    /// Locks the attributes if a write may leave the file inline, as they share the space. Precedes
    /// the content lock.
    pub(super) fn lock_for_inline<'n>(
        &self,
        node: &'n Node,
        offset: Option<u64>,
        len: usize,
    ) -> Option<RwLockWriteGuard<'n, ()>> {
        let has_inline = self.sb.incompat.has(Incompat::INLINE_DATA);
        let is_short = || {
            node.with_snapshot(|snapshot| {
                let end = offset.unwrap_or(snapshot.inode.size).saturating_add(len as u64);
                end.max(snapshot.inode.size) < u64::from(self.sb.inode_size)
            })
        };
        (has_inline && is_short()).then(|| node.attributes_mut())
    }

    /// Returns whether the result fits. The caller has the attribute lock and the content lock.
    pub(super) fn write_inline(
        &self,
        node: &Node,
        content: &mut Content,
        (offset, data): (u64, &[u8]),
        times: Times,
    ) -> Result<bool> {
        let snapshot = node.snapshot();
        let Some(mut bytes) = self.inline_candidate(content, &snapshot)? else { return Ok(false) };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        bytes.resize(bytes.len().max(start.saturating_add(data.len())), 0);
        bytes.iter_mut().skip(start).zip(data).for_each(|(to, from)| *to = *from);
        self.set_inline(node, content, &bytes, times)
    }

    /// Returns whether the result fits. The caller has the attribute lock and the content lock.
    pub(super) fn set_inline_size(&self, node: &Node, content: &mut Content, size: u64) -> Result<bool> {
        let snapshot = node.snapshot();
        if !snapshot.has(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let Some(mut bytes) = self.inline_candidate(content, &snapshot)? else { return Ok(false) };
        bytes.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
        self.set_inline(node, content, &bytes, Times::Now)
    }

    /// The file has no blocks.
    fn set_inline(&self, node: &Node, content: &mut Content, bytes: &[u8], times: Times) -> Result<bool> {
        let (first, rest) = bytes.split_at(bytes.len().min(I_BLOCK_LEN));
        let Some(tail) = self.tail_with_inline(&node.snapshot(), rest)? else { return Ok(false) };
        let now = self.writer()?.now();
        let mut handle = self.start(1)?;
        self.change_inode(&mut handle, node, |snapshot| {
            let inode = &mut snapshot.inode;
            inode.flags = inode.flags.without(InodeFlags::EXTENTS).with(InodeFlags::INLINE_DATA);
            inode.block = [0; I_BLOCK_LEN];
            inode.block.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
            inode.size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            if times == Times::Now {
                (inode.mtime, inode.ctime) = (now, now);
            }
            (snapshot.tail, snapshot.disk_size) = (tail, None);
        })?;
        handle.stop();
        content.is_inode_dirty = false;
        self.update_dirty_list(node, content)?;
        Ok(true)
    }

    /// Content of an inline file, or an empty one that may become inline. One without links may
    /// become an attribute's value, which must have blocks.
    fn inline_candidate(&self, content: &Content, snapshot: &Snapshot) -> Result<Option<Vec<u8>>> {
        if snapshot.has(InodeFlags::INLINE_DATA) {
            let mut bytes = vec![0; usize::try_from(snapshot.inode.size).unwrap_or(usize::MAX)];
            self.read_inline(snapshot, 0, &mut bytes)?;
            return Ok(Some(bytes));
        }
        let is_empty = content.blocks.is_empty() && snapshot.inode.size == 0;
        let may_be = snapshot.kind == FileType::Regular && snapshot.inode.links > 0;
        Ok((is_empty && may_be && self.next_mapped(snapshot, 0..FILE_END)?.is_none()).then(Vec::new))
    }

    /// The caller has the content lock.
    pub(super) fn move_inline_out(&self, node: &Node, snapshot: &Snapshot) -> Result<()> {
        let len = usize::try_from(snapshot.inode.size).unwrap_or(usize::MAX);
        let size = self.sb.block_size.in_memory();
        let mut bytes = vec![0; size];
        self.read_inline(snapshot, 0, bytes.get_mut(..len.min(size)).unwrap_or_default())?;
        let mut handle = self.start(ALLOC_CREDITS + STEP_CREDITS + 1)?;
        let mut inode = snapshot.inode.clone();
        inode.flags = inode.flags.without(InodeFlags::INLINE_DATA);
        inode.block = [0; I_BLOCK_LEN];
        if self.sb.incompat.has(Incompat::EXTENTS) {
            inode.flags = inode.flags.with(InodeFlags::EXTENTS);
            write_extent_leaf(&mut inode.block, &[] as &[Extent]);
        }
        if len > 0 {
            let goal = self.goal_of(snapshot.ino);
            let (start, _) = self.allocate_blocks(&mut handle, goal, 1, self.reservation_class(node))?;
            let place = snapshot.place(Structure::Content).at(start);
            let written = self.device.write_at(start.0 << self.sb.block_size.log2(), &bytes);
            let mut file = Mapped { ino: snapshot.ino, inode: &mut inode };
            let mapped = written.map_err(|source| place.io_write(source)).and_then(|()| {
                self.remap(&mut handle, &mut file, 0..1, Some(Target { start, unwritten: false }))
            });
            if let Err(error) = mapped {
                self.free_blocks(&mut handle, start, 1, false)?;
                return Err(error);
            }
            file.count_blocks(self, 1);
        }
        let changed = self.change_inode(&mut handle, node, |now| {
            adopt_map(now, &inode, snapshot.inode.sectors);
            remove_inline_data(&mut now.tail)
        });
        let removed = changed.and_then(|removed| {
            removed.map_err(|problem| snapshot.place(Structure::InlineData).corrupt(problem))
        });
        self.all_or_abort(removed)
    }
}
