//! Allocation of contiguous blocks near a goal.

use super::{ReservationClass, SystemBlocks, bit_of};
use crate::map::write::Mapped;
use crate::verified::VerifiedAs;
use crate::{Error, Ext4, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::{
    BlockNumber, FreeRun, GroupDesc, GroupFlags, GroupNumber, InodeNumber, Problem, find_free, set_bits,
};
use dentree_jbd2::Handle;
use std::ops::{Deref, Range, RangeInclusive};
use std::sync::atomic::Ordering::Relaxed;

/// A bitmap and a descriptor.
pub(crate) const ALLOC_CREDITS: u32 = 2;

/// Passes: 1/n of the wanted length suffices; groups searched.
const PASSES: [(u32, u32); 3] = [(1, 32), (8, 128), (u32::MAX, u32::MAX)];

pub(super) enum Bitmap {
    Stored(Buffer),
    /// `BLOCK_UNINIT`: built from the layout.
    New(Vec<u8>),
}

impl Deref for Bitmap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bitmap::Stored(buffer) => buffer,
            Bitmap::New(bytes) => bytes,
        }
    }
}

impl Ext4 {
    /// Allocates up to `want` (not 0) [reserved](super::Space::reserve) contiguous blocks, at
    /// `goal` if it is free. Returns the first and their count. `NoSpace` if all free blocks [wait
    /// for a commit](Ext4::retry_after_commit).
    pub(crate) fn allocate_reserved(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockNumber,
        want: u32,
    ) -> Result<(BlockNumber, u32)> {
        let space = &self.writer()?.space;
        let mut preallocs_made = None;
        loop {
            if let Some(taken) = self.allocate_near(handle, goal, want, preallocs_made.is_some())? {
                return Ok(taken);
            }
            // The first round trusts the groups' hints, which a concurrent free may outdate. The
            // search ends when no preallocation has hidden blocks from a round.
            let made = Some(space.discard_all_preallocs());
            if made == preallocs_made {
                return Err(Error::NoSpace);
            }
            preallocs_made = made;
        }
    }

    /// `everywhere` ignores the groups' hints.
    fn allocate_near(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockNumber,
        want: u32,
        everywhere: bool,
    ) -> Result<Option<(BlockNumber, u32)>> {
        let (near, goal_bit) = bit_of(&self.sb, goal);
        let space = &self.writer()?.space;
        for (part, groups) in PASSES {
            let least = (want / part).max(1);
            for step in 0..groups.min(self.sb.groups) {
                let group = GroupNumber((near.0 + step) % self.sb.groups);
                if !everywhere && !space.group(group).may_have_run(least) {
                    continue;
                }
                let from = if step == 0 { goal_bit } else { 0 };
                let request = Request { from, lens: least..=want, dir: None };
                if let Some(taken) = self.allocate_in_group(handle, group, &request)? {
                    return Ok(Some(taken));
                }
            }
        }
        Ok(None)
    }

    pub(super) fn allocate_and_preallocate(
        &self,
        handle: &mut Handle<'_>,
        dir: InodeNumber,
        group: GroupNumber,
        from: usize,
        lens: RangeInclusive<u32>,
    ) -> Result<Option<BlockNumber>> {
        let taken = self.allocate_in_group(handle, group, &Request { from, lens, dir: Some(dir) })?;
        Ok(taken.map(|(block, _)| block))
    }

    pub(crate) fn allocate_blocks(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockNumber,
        want: u32,
        class: ReservationClass,
    ) -> Result<(BlockNumber, u32)> {
        let space = &self.writer()?.space;
        space.reserve(u64::from(want), class)?;
        match self.allocate_reserved(handle, goal, want) {
            Ok((first, count)) => {
                space.release(u64::from(want - count));
                Ok((first, count))
            }
            Err(error) => {
                space.release(u64::from(want));
                Err(error)
            }
        }
    }

    /// Allocates for a directory of `blocks` blocks, by [preallocation](super::prealloc).
    pub(crate) fn allocate_dir_block(
        &self,
        handle: &mut Handle<'_>,
        dir: InodeNumber,
        goal: BlockNumber,
        blocks: u64,
        class: ReservationClass,
    ) -> Result<BlockNumber> {
        let space = &self.writer()?.space;
        space.reserve(1, class)?;
        self.allocate_reserved_dir_block(handle, dir, goal, blocks).inspect_err(|_| space.release(1))
    }

    /// All or none; adds them to `i_blocks`.
    pub(crate) fn allocate_tree_blocks(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        goal: BlockNumber,
        count: usize,
    ) -> Result<Vec<BlockNumber>> {
        let mut blocks: Vec<BlockNumber> = Vec::new();
        while blocks.len() < count {
            let near = blocks.last().copied().unwrap_or(goal);
            match self.allocate_blocks(handle, near, 1, ReservationClass::Guaranteed) {
                Ok((block, _)) => blocks.push(block),
                Err(error) => {
                    for block in blocks {
                        self.free_blocks(handle, block, 1, false)?;
                    }
                    return Err(error);
                }
            }
        }
        file.count_blocks(self, i64::try_from(count).unwrap_or(0));
        Ok(blocks)
    }

    fn allocate_in_group(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        request: &Request,
    ) -> Result<Option<(BlockNumber, u32)>> {
        let least = *request.lens.start();
        if self.writer()?.group(group).free_blocks < least {
            return Ok(None);
        }
        let space = &self.writer()?.space;
        let allowed = space.end().saturating_sub(self.sb.group_start(group).0);
        let bits = allowed.min(u64::from(self.sb.blocks_in_group(group)));
        let bits = usize::try_from(bits).unwrap_or(usize::MAX);
        if bits == 0 {
            return Ok(None);
        }
        self.change_group(handle, group, |desc, handle| {
            let bitmap = self.block_bitmap(group, desc)?;
            if let Some(dir) = request.dir {
                // The run may be in this preallocation.
                space.discard_prealloc(dir);
            }
            let run = match space.group(group).with_unavailable(&bitmap) {
                None => request.search(&bitmap, bits),
                Some(seen) => request.search(&seen, bits),
            };
            let found = u32::try_from(run.len).unwrap_or(0);
            if found < least {
                space.group(group).no_run_of.store(found + 1, Relaxed);
                return Ok(None);
            }
            let count = if request.dir.is_some() { 1 } else { found };
            let end = run.first + usize::try_from(count).unwrap_or(0);
            let first = BlockNumber(self.sb.group_start(group).0 + u64::try_from(run.first).unwrap_or(0));
            let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
            let left = desc.free_blocks.checked_sub(count);
            let range = Problem::Range {
                field: "bg_free_blocks_count",
                value: u64::from(desc.free_blocks),
                min: u64::from(count),
                max: u64::from(u32::MAX),
            };
            let left = left.ok_or_else(|| place.corrupt(range))?;
            if let Some(taken) = space.system.within(first, u64::from(count)).next() {
                let because = "is free in the bitmap but holds metadata";
                let field = "block";
                return Err(place.corrupt(Problem::Value { field, value: taken.start, because }));
            }
            self.change_block_bitmap(handle, group, desc, bitmap, run.first..end, set_bits)?;
            desc.free_blocks = left;
            space.free.fetch_sub(u64::from(count), Relaxed);
            if let Some(dir) = request.dir {
                space.preallocate(dir, group, end..run.first + run.len);
            }
            Ok(Some((first, count)))
        })
    }

    pub(super) fn block_bitmap(&self, group: GroupNumber, desc: &GroupDesc) -> Result<Bitmap> {
        let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
        let is_new = self.sb.has_group_checksums() && desc.flags.has(GroupFlags::BLOCK_UNINIT);
        if !is_new {
            let ahead = |_| Some(|| self.bitmaps_ahead(group, desc));
            let bytes = self.metadata_ahead(desc.block_bitmap, place, ahead)?;
            let check = || match self.sb.block_bitmap_sum(&bytes) {
                Some(sum) => Problem::check_sum(desc.block_bitmap_sum, sum),
                None => Ok(()),
            };
            self.verify_once(place, &bytes, VerifiedAs::BlockBitmap(group), check)?;
            return Ok(Bitmap::Stored(bytes));
        }
        Ok(Bitmap::New(self.initial_block_bitmap(group, &self.writer()?.space.system)))
    }

    /// Only system blocks are in use.
    pub(crate) fn initial_block_bitmap(&self, group: GroupNumber, system: &SystemBlocks) -> Vec<u8> {
        let mut bytes = vec![0; self.sb.block_size.in_memory()];
        let start = self.sb.group_start(group);
        let count = self.sb.blocks_in_group(group);
        let bit = |block: u64| {
            usize::try_from((block - start.0) >> self.sb.log_cluster_ratio).unwrap_or(usize::MAX)
        };
        for range in system.within(start, u64::from(count)) {
            set_bits(&mut bytes, bit(range.start), bit(range.end - 1) + 1);
        }
        let all = bytes.len() * 8;
        let clusters = count.div_ceil(1 << self.sb.log_cluster_ratio);
        set_bits(&mut bytes, usize::try_from(clusters).unwrap_or(all), all);
        bytes
    }

    /// Also updates the checksum in the descriptor.
    pub(super) fn change_block_bitmap(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        desc: &mut GroupDesc,
        bitmap: Bitmap,
        bits: Range<usize>,
        change: fn(&mut [u8], usize, usize),
    ) -> Result<()> {
        let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
        let sum = desc.block_bitmap_sum;
        let changed = match bitmap {
            Bitmap::New(initial) => handle.create(desc.block_bitmap.0, |bytes| {
                bytes.copy_from_slice(&initial);
                change(bytes, bits.start, bits.end);
                self.sb.block_bitmap_sum(bytes).unwrap_or(sum)
            }),
            Bitmap::Stored(buffer) => {
                // Else the change makes a copy.
                drop(buffer);
                handle.update(desc.block_bitmap.0, |bytes| {
                    change(bytes, bits.start, bits.end);
                    self.sb.changed_block_bitmap_sum(sum, bits, bytes)
                })
            }
        };
        desc.block_bitmap_sum = changed.map_err(|source| place.io(source))?;
        desc.flags = desc.flags.without(GroupFlags::BLOCK_UNINIT);
        Ok(())
    }
}

struct Request {
    from: usize,
    /// Acceptable lengths; the longest is preferred.
    lens: RangeInclusive<u32>,
    /// Preallocate the rest for this directory.
    dir: Option<InodeNumber>,
}

impl Request {
    /// Prefers the goal if the run there is long enough; then the first run of full length, after
    /// the goal before others; then the longest.
    fn search(&self, bitmap: &[u8], bits: usize) -> FreeRun {
        let [least, want] =
            [self.lens.start(), self.lens.end()].map(|&len| usize::try_from(len).unwrap_or(usize::MAX));
        let from = self.from;
        let here = find_free(bitmap, from, bits.min(from.saturating_add(want)), want);
        if here.len >= least && here.len > 0 && here.first == from && from > 0 {
            return here;
        }
        let behind = find_free(bitmap, from, bits, want);
        if behind.len == want {
            return behind;
        }
        let before = find_free(bitmap, 0, bits.min(from.saturating_add(want)), want);
        if before.len > behind.len { before } else { behind }
    }
}
