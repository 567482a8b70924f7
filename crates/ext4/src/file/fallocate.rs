//! `fallocate(2)`.

use super::content::Content;
use crate::alloc::ALLOC_CREDITS;
use crate::map::Mapping;
use crate::map::write::{STEP_CREDITS, Target};
use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{BlockNumber, InodeFlags, LogicalBlock};
use dentree_vfs::Allocate;
use std::ops::Range;

/// Allocation, map and inode.
const RUN_CREDITS: u32 = ALLOC_CREDITS + STEP_CREDITS + 1;

const MOST_BLOCKS: u64 = 32767;

impl Ext4 {
    pub(crate) fn allocate(&self, node: &Node, offset: u64, len: u64, how: Allocate) -> Result<()> {
        self.retry_after_commit(|| {
            let mut content = node.content_mut();
            let snapshot = node.snapshot();
            self.check_changeable(&snapshot)?;
            let end = offset.checked_add(len).filter(|&end| end <= self.max_size(&snapshot));
            let end = end.ok_or(Error::FileTooLarge(snapshot.ino))?;
            let snapshot = self.convert_inline(node, snapshot)?;
            if how != Allocate::PunchHole && !snapshot.has(InodeFlags::EXTENTS) {
                let ino = snapshot.ino;
                return Err(Error::Unsupported(format!(
                    "inode {ino} has indirect blocks, which cannot mark blocks as unwritten"
                )));
            }
            self.write_back_locked(node, &mut content)?;
            match how {
                Allocate::Reserve | Allocate::ReserveKeepSize => {
                    self.fill_holes(node, &self.whole_blocks(offset, end))?
                }
                Allocate::PunchHole => self.zero(node, &mut content, offset..end, true)?,
                Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => {
                    // Partial blocks get space too.
                    self.fill_holes(node, &self.whole_blocks(offset, end))?;
                    self.zero(node, &mut content, offset..end, false)?;
                }
            }
            let grows = matches!(how, Allocate::Reserve | Allocate::ZeroRange);
            self.update_after_fallocate(node, &mut content, grows.then_some(end))
        })
    }

    fn whole_blocks(&self, offset: u64, end: u64) -> Range<u64> {
        offset >> self.sb.block_size.log2()..self.sb.block_size.blocks_for(end)
    }

    fn update_after_fallocate(&self, node: &Node, content: &mut Content, end: Option<u64>) -> Result<()> {
        let now = self.writer()?.now();
        let snapshot = node.snapshot();
        let longer = end.filter(|&end| end > snapshot.inode.size);
        if longer.is_some() {
            self.zero_tail(content, &snapshot)?;
        }
        let mut handle = self.start(1)?;
        self.change_inode(&mut handle, node, |snapshot| {
            snapshot.set_size(longer.unwrap_or(snapshot.inode.size), !content.blocks.is_empty());
            (snapshot.inode.mtime, snapshot.inode.ctime) = (now, now);
        })?;
        handle.stop();
        content.is_inode_dirty |= !content.blocks.is_empty();
        self.update_dirty_list(node, content)
    }

    fn fill_holes(&self, node: &Node, blocks: &Range<u64>) -> Result<()> {
        let mut missing = 0;
        self.each_run(node, blocks, |mapping, run| {
            missing += if mapping == Mapping::Hole { run.end - run.start } else { 0 };
            Ok(run.end)
        })?;
        let space = &self.writer()?.space;
        space.reserve(missing, self.reservation_class(node))?;
        let filled = self.each_run(node, blocks, |mapping, run| {
            if mapping != Mapping::Hole {
                return Ok(run.end);
            }
            let first = u32::try_from(run.start).unwrap_or(u32::MAX);
            let want = u32::try_from((run.end - run.start).min(MOST_BLOCKS)).unwrap_or(u32::MAX);
            let mut handle = self.start(RUN_CREDITS)?;
            let goal = self.goal_before(&node.snapshot(), first)?;
            let (start, count) = self.allocate_reserved(&mut handle, goal, want)?;
            let target = Target { start, unwritten: true };
            let mapped = self.map_run(&mut handle, node, first, count, target, true);
            let done = *mapped.as_ref().unwrap_or(&0);
            if done < count {
                self.free_blocks(
                    &mut handle,
                    BlockNumber(start.0 + u64::from(done)),
                    u64::from(count - done),
                    false,
                )?;
                space.reserve(u64::from(count - done), crate::alloc::ReservationClass::Guaranteed)?;
            }
            missing -= u64::from(done);
            handle.stop();
            mapped.map(|done| run.start + u64::from(done))
        });
        space.release(missing);
        filled
    }

    /// Unmaps whole blocks (`punch`) or marks them unwritten; zeroes partial ones in memory.
    fn zero(&self, node: &Node, content: &mut Content, bytes: Range<u64>, punch: bool) -> Result<()> {
        let log2 = self.sb.block_size.log2();
        let snapshot = node.snapshot();
        let inner = self.sb.block_size.blocks_for(bytes.start)..bytes.end >> log2;
        if inner.start > inner.end {
            self.zero_part(content, &snapshot, bytes.start, bytes.end)?;
            return Ok(());
        }
        if punch {
            // A map that cannot be freed is not punched.
            self.check_map(&snapshot, inner.clone())?;
        }
        if bytes.start < inner.start << log2 {
            self.zero_part(content, &snapshot, bytes.start, inner.start << log2)?;
        }
        if inner.end << log2 < bytes.end {
            self.zero_part(content, &snapshot, inner.end << log2, bytes.end)?;
        }
        if punch {
            let handle = self.start(RUN_CREDITS)?;
            self.unmap(handle, node, inner)?.stop();
            return Ok(());
        }
        self.each_run(node, &inner, |mapping, run| {
            let Mapping::Data(start) = mapping else { return Ok(run.end) };
            let mut handle = self.start(RUN_CREDITS)?;
            let first = u32::try_from(run.start).unwrap_or(u32::MAX);
            let count = u32::try_from((run.end - run.start).min(MOST_BLOCKS)).unwrap_or(u32::MAX);
            let done =
                self.map_run(&mut handle, node, first, count, Target { start, unwritten: true }, false)?;
            handle.stop();
            Ok(run.start + u64::from(done))
        })
    }

    /// `each` returns where to continue.
    fn each_run(
        &self,
        node: &Node,
        blocks: &Range<u64>,
        mut each: impl FnMut(Mapping, Range<u64>) -> Result<u64>,
    ) -> Result<()> {
        let mut at = blocks.start;
        while let Some(here) = u32::try_from(at).ok().filter(|_| at < blocks.end) {
            let run = self.map(&node.snapshot(), LogicalBlock(here))?;
            at = each(run.mapping, at..blocks.end.min(at + run.len))?;
        }
        Ok(())
    }
}
