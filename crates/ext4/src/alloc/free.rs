//! Freeing blocks, and discarding free ones on the device (fstrim).

use super::bit_of;
use crate::map::write::Mapped;
use crate::{Error, Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupNumber, Problem, Superblock, all_set, clear_bits, free_runs};
use dentree_jbd2::Handle;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Ext4 {
    /// Frees blocks; they become available with the commit. `is_metadata`: they were changed
    /// through the journal. `Corrupt` if they are beyond the file system, system blocks, or free
    /// already.
    pub(crate) fn free_blocks(
        &self,
        handle: &mut Handle<'_>,
        first: BlockNumber,
        count: u64,
        is_metadata: bool,
    ) -> Result<()> {
        let place = Structure::FreedBlocks.at(first);
        self.sb.check_blocks("block", first, count).map_err(|problem| place.corrupt(problem))?;
        if is_metadata {
            handle.forget(first.0, count);
        }
        for (group, bits) in by_group(&self.sb, first, count) {
            self.free_in_group(handle, group, bits)?;
        }
        Ok(())
    }

    pub(crate) fn check_in_use(&self, first: BlockNumber, count: u64) -> Result<()> {
        let place = Structure::FreedBlocks.at(first);
        self.sb.check_blocks("block", first, count).map_err(|problem| place.corrupt(problem))?;
        for (group, bits) in by_group(&self.sb, first, count) {
            // No lock: a bitmap newer than the descriptor is verified already.
            let desc = self.writer()?.group(group);
            self.check_allocated(group, &bits, &self.block_bitmap(group, &desc)?)?;
        }
        Ok(())
    }

    /// Checks that runs are [in use](Ext4::check_in_use) and disjoint.
    pub(crate) fn check_distinct(&self, runs: impl Iterator<Item = (BlockNumber, u64)>) -> Result<()> {
        let mut runs: Vec<_> = runs.collect();
        runs.sort_unstable();
        let mut end = 0;
        for (first, count) in runs {
            self.check_in_use(first, count)?;
            if first.0 < end {
                let because = "is mapped twice";
                let twice = Problem::Value { field: "block", value: first.0, because };
                return Err(Structure::FreedBlocks.at(first).corrupt(twice));
            }
            end = first.0 + count;
        }
        Ok(())
    }

    fn check_allocated(&self, group: GroupNumber, bits: &Range<usize>, bitmap: &[u8]) -> Result<()> {
        let first = block_of(&self.sb, group, bits);
        let count = u64::try_from(bits.len()).unwrap_or(u64::MAX);
        let wrong = |because| {
            let problem = Problem::Value { field: "block", value: first.0, because };
            Err(Structure::FreedBlocks.at(first).corrupt(problem))
        };
        if self.writer()?.space.system.within(first, count).next().is_some() {
            return wrong("holds file system metadata");
        }
        if !all_set(bitmap, bits.start, bits.end) {
            return wrong("is free already, or one behind it");
        }
        Ok(())
    }

    fn free_in_group(&self, handle: &mut Handle<'_>, group: GroupNumber, bits: Range<usize>) -> Result<()> {
        let space = &self.writer()?.space;
        let count = u64::try_from(bits.len()).unwrap_or(0);
        let tid = handle.tid();
        let is_first = self.change_group(handle, group, |desc, handle| {
            let bitmap = self.block_bitmap(group, desc)?;
            self.check_allocated(group, &bits, &bitmap)?;
            self.change_block_bitmap(handle, group, desc, bitmap, bits.clone(), clear_bits)?;
            desc.free_blocks += u32::try_from(count).unwrap_or(0);
            // Before the group is unlocked.
            Ok(space.group(group).uncommitted().add(tid, &bits))
        })?;
        space.uncommitted.fetch_add(count, Relaxed);
        space.free.fetch_add(count, Relaxed);
        space.release(count);
        // One callback for each transaction and group.
        if is_first {
            let space = Arc::clone(space);
            handle.after_commit(move |outcome| {
                // An abort frees nothing.
                if outcome.is_ok() {
                    let state = space.group(group);
                    let freed = state.uncommitted().remove(tid);
                    state.no_run_of.store(0, Relaxed);
                    space.uncommitted.fetch_sub(u64::try_from(freed).unwrap_or(0), Relaxed);
                }
            });
        }
        Ok(())
    }

    pub(crate) fn free_mapped(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        first: BlockNumber,
        count: u64,
    ) -> Result<()> {
        let freed = self.free_blocks(handle, first, count, !file.inode.is_file());
        self.all_or_abort(freed)?;
        file.count_blocks(self, -i64::try_from(count).unwrap_or(0));
        Ok(())
    }

    pub(crate) fn free_tree_blocks(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        blocks: &[BlockNumber],
    ) -> Result<()> {
        for &block in blocks {
            let freed = self.free_blocks(handle, block, 1, true);
            self.all_or_abort(freed)?;
        }
        file.count_blocks(self, -i64::try_from(blocks.len()).unwrap_or(0));
        Ok(())
    }

    /// Half a change cannot be undone.
    pub(crate) fn all_or_abort<R>(&self, outcome: Result<R>) -> Result<R> {
        if let (Err(error), Some(writer)) = (&outcome, &self.writer) {
            writer.journal.abort(format!("a change failed halfway: {error}"));
        }
        outcome
    }
}

fn by_group(
    sb: &Superblock,
    first: BlockNumber,
    count: u64,
) -> impl Iterator<Item = (GroupNumber, Range<usize>)> + use<'_> {
    let (mut next, end) = (first.0, first.0 + count);
    std::iter::from_fn(move || {
        let (group, bit) = bit_of(sb, BlockNumber(next));
        let left = u64::from(sb.blocks_per_group) - u64::try_from(bit).unwrap_or(0);
        let part = left.min(end - next);
        next += part;
        (part > 0).then(|| (group, bit..bit + usize::try_from(part).unwrap_or(0)))
    })
}

fn block_of(sb: &Superblock, group: GroupNumber, bits: &Range<usize>) -> BlockNumber {
    BlockNumber(sb.group_start(group).0 + u64::try_from(bits.start).unwrap_or(0))
}

impl Ext4 {
    /// Discards free runs of at least `least` bytes within `bytes`, but no uncommitted frees, as a
    /// crash brings their file back, and no preallocations. The groups' locks keep allocations
    /// away. `Unsupported` if the device cannot discard.
    pub(crate) fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let log2 = self.sb.block_size.log2();
        let (start, end) = (bytes.start >> log2, (bytes.end >> log2).min(self.sb.blocks_count));
        let mut discarded = 0;
        for group in (0..self.sb.groups).map(GroupNumber) {
            let first = self.sb.group_start(group).0;
            let within =
                |block: u64| block.saturating_sub(first).min(u64::from(self.sb.blocks_in_group(group)));
            let blocks = within(start)..within(end);
            if !blocks.is_empty() {
                discarded += self.trim_group(group, blocks, (least >> log2).max(1))?;
            }
        }
        Ok(discarded << log2)
    }

    fn trim_group(&self, group: GroupNumber, blocks: Range<u64>, least: u64) -> Result<u64> {
        let space = &self.writer()?.space;
        let [from, to] = [blocks.start, blocks.end].map(|block| usize::try_from(block).unwrap_or(usize::MAX));
        let first = self.sb.group_start(group).0;
        self.with_group(group, |desc| {
            let bitmap = self.block_bitmap(group, desc)?;
            let covered = space.group(group).with_unavailable(&bitmap);
            let mut discarded = 0;
            for run in free_runs(covered.as_deref().unwrap_or(&bitmap), from, to) {
                let count = u64::try_from(run.len).unwrap_or(0);
                let start = BlockNumber(first + u64::try_from(run.first).unwrap_or(0));
                if count < least {
                    continue;
                }
                if let Some(system) = space.system.within(start, count).next() {
                    let (field, because) = ("block", "is free in the bitmap but holds metadata");
                    let problem = Problem::Value { field, value: system.start, because };
                    return Err(Structure::BlockBitmap(group).at(desc.block_bitmap).corrupt(problem));
                }
                self.discard(start, count)?;
                discarded += count;
            }
            Ok(discarded)
        })
    }

    fn discard(&self, first: BlockNumber, count: u64) -> Result<()> {
        let log2 = self.sb.block_size.log2();
        self.device.discard(first.0 << log2, count << log2).map_err(|source| match source.kind() {
            io::ErrorKind::Unsupported => Error::Unsupported("the device cannot discard blocks".to_owned()),
            _ => Structure::FreeBlocks.at(first).io_write(source),
        })
    }
}
