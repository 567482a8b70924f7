//! Write-back of dirty content.

use super::content::Content;
use super::content::Source;
use crate::alloc::ALLOC_CREDITS;
use crate::inode::Snapshot;
use crate::map::write::{Mapped, STEP_CREDITS, Target};
use crate::map::{Mapping, Run};
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{BlockNumber, Inode, LogicalBlock};
use dentree_jbd2::Handle;
use std::io::IoSlice;
use std::ops::ControlFlow;

/// Allocation, map and inode.
const RUN_CREDITS: u32 = ALLOC_CREDITS + STEP_CREDITS + 1;

const MOST_BLOCKS: usize = 4096;

/// How far back to look for a mapped block: concurrent writes to one file arrive nearly in order.
const NEAR: u32 = 4096;

/// An uncached write of a stream sends it to the disk while the next is collected. A later reader
/// waits for a large read at least.
const STREAM_BYTES: u32 = 1 << 20;

impl Ext4 {
    /// What was not written stays dirty.
    pub(crate) fn write_back(&self, node: &Node) -> Result<()> {
        let mut content = node.content_mut();
        self.retry_after_commit(|| self.write_back_locked(node, &mut content))
    }

    /// The caller has the content lock.
    pub(super) fn write_back_locked(&self, node: &Node, content: &mut Content) -> Result<()> {
        // fsync needs a transaction to wait for, even if no map changes.
        content.is_inode_dirty |= !content.blocks.is_empty();
        while let Some((&first, _)) = content.blocks.first_key_value() {
            let snapshot = node.snapshot();
            let run = self.map(&snapshot, LogicalBlock(first))?;
            let most = usize::try_from(run.len).unwrap_or(usize::MAX).min(MOST_BLOCKS);
            let together = (u64::from(first)..)
                .zip(content.blocks.keys())
                .take_while(|(n, block)| *n == u64::from(**block));
            let count = u32::try_from(together.take(most).count()).unwrap_or(u32::MAX);
            let written = match run.mapping {
                Mapping::Data(start) => {
                    self.write_run(&snapshot, Source::Dirty(content), first, count, start)?;
                    count
                }
                _ => self.write_new_run(node, &snapshot, Source::Dirty(content), first, count, run)?,
            };
            let is_new = run.mapping == Mapping::Hole;
            for block in first..first + written {
                self.remove_block(content, LogicalBlock(block), !is_new)?;
            }
        }
        if content.is_inode_dirty {
            let mut handle = self.start(1)?;
            self.change_inode(&mut handle, node, |snapshot| snapshot.disk_size = None)?;
            content.is_inode_dirty = false;
        }
        self.update_dirty_list(node, content)
    }

    pub(super) fn write_run(
        &self,
        snapshot: &Snapshot,
        source: Source<'_>,
        first: u32,
        count: u32,
        start: BlockNumber,
    ) -> Result<()> {
        let slices = match source {
            Source::Dirty(content) => {
                let blocks = content.blocks.range(first..first + count);
                blocks.map(|(_, block)| IoSlice::new(&block.bytes)).collect()
            }
            Source::Direct(blocks) => vec![IoSlice::new(blocks.range(first, count))],
        };
        let place = snapshot.place(Structure::Content).at(start);
        self.check_content_place(place, start, u64::from(count))?;
        let at = start.0 << self.sb.block_size.log2();
        let written = if count << self.sb.block_size.log2() >= STREAM_BYTES {
            self.device.write_out_at(at, &slices)
        } else {
            self.device.write_vectored_at(at, &slices)
        };
        written.map_err(|source| place.io_write(source))
    }

    /// Writes into a hole or unwritten blocks. Returns how many.
    pub(super) fn write_new_run(
        &self,
        node: &Node,
        snapshot: &Snapshot,
        source: Source<'_>,
        first: u32,
        count: u32,
        run: Run,
    ) -> Result<u32> {
        let mut handle = self.start(RUN_CREDITS)?;
        let (start, count, is_new) = match run.mapping {
            Mapping::Unwritten(start) => (start, count, false),
            _ => {
                let goal = self.goal_before(snapshot, first)?;
                let (start, count) = self.allocate_reserved(&mut handle, goal, count)?;
                (start, count, true)
            }
        };
        let written = self.write_run(snapshot, source, first, count, start);
        let target = Target { start, unwritten: false };
        let mapped = written.and_then(|()| self.map_run(&mut handle, node, first, count, target, is_new));
        let done = *mapped.as_ref().unwrap_or(&0);
        if is_new && done < count {
            let left = u64::from(count - done);
            self.free_blocks(&mut handle, BlockNumber(start.0 + u64::from(done)), left, false)?;
            // The retry needs the reservation.
            self.writer()?.space.reserve(left, crate::alloc::ReservationClass::Guaranteed)?;
        }
        mapped
    }

    /// Advances the length on disk. `is_new`: newly allocated. Returns how many blocks.
    pub(crate) fn map_run(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        first: u32,
        count: u32,
        target: Target,
        is_new: bool,
    ) -> Result<u32> {
        let mut inode = node.snapshot().inode.clone();
        let before = inode.sectors;
        let mut file = Mapped { ino: node.snapshot().ino, inode: &mut inode };
        let (begin, end) = (u64::from(first), u64::from(first) + u64::from(count));
        let mut at = begin;
        let mut outcome = Ok(());
        while at < end {
            if at > begin && !handle.extend(STEP_CREDITS) {
                break;
            }
            let here = Target { start: BlockNumber(target.start.0 + (at - begin)), ..target };
            match self.remap(handle, &mut file, at..end, Some(here)) {
                Ok(next) => at = next,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if at == begin {
            return outcome.map(|()| 0);
        }
        if is_new {
            file.count_blocks(self, i64::try_from(at - begin).unwrap_or(0));
        }
        self.set_map(handle, node, &inode, before, at, target.unwritten)?;
        Ok(u32::try_from(at - begin).unwrap_or(u32::MAX))
    }

    /// `end`: the file block after those mapped.
    fn set_map(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        inode: &Inode,
        sectors_before: u64,
        end: u64,
        unwritten: bool,
    ) -> Result<()> {
        let end = end << self.sb.block_size.log2();
        let changed = self.change_inode(handle, node, |snapshot| {
            adopt_map(snapshot, inode, sectors_before);
            if let Some(size) = snapshot.disk_size.filter(|_| !unwritten) {
                let now = size.max(end.min(snapshot.inode.size));
                snapshot.disk_size = Some(now).filter(|&now| now < snapshot.inode.size);
            }
        });
        self.all_or_abort(changed)
    }

    /// Keeps the distance to the nearest mapped predecessor, which leaves space for blocks between.
    pub(super) fn goal_before(&self, snapshot: &Snapshot, block: u32) -> Result<BlockNumber> {
        let mut goal = None;
        for near in [1, NEAR] {
            let range = u64::from(block.saturating_sub(near))..u64::from(block);
            self.map_range(snapshot, range, &mut |at, run| {
                if let Mapping::Data(start) | Mapping::Unwritten(start) = run.mapping {
                    goal = Some(BlockNumber(start.0 + u64::from(block - at.0)));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if goal.is_some() {
                break;
            }
        }
        Ok(goal.filter(|goal| goal.0 < self.sb.blocks_count).unwrap_or_else(|| self.goal_of(snapshot.ino)))
    }

    pub(crate) fn discard_content(&self, node: &Node) -> Result<()> {
        self.discard_content_locked(node, &mut node.content_mut())
    }

    /// The caller has the content lock.
    pub(crate) fn discard_content_locked(&self, node: &Node, content: &mut Content) -> Result<()> {
        if content.is_clean() {
            return Ok(());
        }
        self.discard_dirty(content, 0, 1 << 32)?;
        content.is_inode_dirty = false;
        self.update_dirty_list(node, content)
    }

    /// The next sync reports an error.
    pub(crate) fn write_back_evicted(&self, node: &Node) {
        if node.content().is_clean() {
            return;
        }
        if let Err(error) = self.write_back(node)
            && let Some(writer) = &self.writer
        {
            writer.dirty.record_error(error);
        }
    }
}

/// Copies the map of `inode`, a changed copy, and applies the change of its block count.
pub(crate) fn adopt_map(snapshot: &mut Snapshot, inode: &Inode, sectors_before: u64) {
    snapshot.inode.block = inode.block;
    snapshot.inode.flags = inode.flags;
    // Attributes may have changed the count meanwhile.
    let gained = inode.sectors.saturating_sub(sectors_before);
    let lost = sectors_before.saturating_sub(inode.sectors);
    snapshot.inode.sectors = snapshot.inode.sectors.saturating_add(gained).saturating_sub(lost);
}
