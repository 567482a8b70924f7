//! From blocks of a file to blocks of the device: extents, or direct and indirect pointers.
//!
//! There is one walk, for a block, a run of blocks or a list of runs: [`Ext4::map_blocks`]. It goes through the tree from left to right, and looks
//! up, verifies and parses each node that leads to any of the blocks once. Who needs blocks one after the other keeps what one
//! walk has told of many ([`Placed`]).

mod read;
pub(crate) mod write;

use crate::inode::Snapshot;
use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, Incompat, InodeFlags, LogicalBlock, write_extent_leaf};
use std::ops::{ControlFlow, Range};

#[cfg(all(test, not(loom)))]
mod tests;

/// The file block behind the last that there can be.
pub(crate) const FILE_END: u64 = 1 << 32;

/// Where a run of a file's blocks lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// On the device from this block on, within the file system.
    Data(BlockNumber),
    /// There, too, but never written: reads as zeros.
    Unwritten(BlockNumber),
    /// Nowhere: reads as zeros.
    Hole,
}

/// Blocks of a file, from the one asked for on, that are mapped alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) mapping: Mapping,
    /// How many blocks, at least one.
    pub(crate) len: u64,
}

impl Run {
    /// How the block is mapped that is so many behind the first.
    pub(crate) fn mapping_at(&self, offset: u32) -> Mapping {
        match self.mapping {
            Mapping::Data(start) => Mapping::Data(BlockNumber(start.0 + u64::from(offset))),
            Mapping::Unwritten(start) => Mapping::Unwritten(BlockNumber(start.0 + u64::from(offset))),
            Mapping::Hole => Mapping::Hole,
        }
    }

    /// Whether `next`, which follows this run in the file, also follows it on the device.
    pub(crate) fn goes_on(&self, next: &Run) -> bool {
        match (self.mapping, next.mapping) {
            (Mapping::Data(here), Mapping::Data(there)) => here.0 + self.len == there.0,
            (Mapping::Data(_), _) | (_, Mapping::Data(_)) => false,
            _ => true,
        }
    }
}

/// Who is told of the runs that a walk finds, each with its first file block.
pub(crate) type Each<'a> = dyn FnMut(LogicalBlock, Run) -> Result<ControlFlow<()>> + 'a;

/// What a walk is still to find.
pub(crate) struct Sought<'a, 'e> {
    /// The first of these ranges, which ascend and share nothing, is sought from `at` on.
    ranges: &'a [Range<u64>],
    at: u64,
    each: &'a mut Each<'e>,
}

impl Sought<'_, '_> {
    /// The first block that is sought, if it lies before `end`.
    pub(crate) fn before(&mut self, end: u64) -> Option<LogicalBlock> {
        while let Some(range) = self.ranges.first() {
            self.at = self.at.max(range.start);
            if self.at < range.end {
                return u32::try_from(self.at).ok().filter(|_| self.at < end).map(LogicalBlock);
            }
            self.ranges = self.ranges.get(1..).unwrap_or_default();
        }
        None
    }

    /// The first block that is sought begins this run; answers whether to go on behind it.
    pub(crate) fn found(&mut self, first: LogicalBlock, run: Run) -> Result<ControlFlow<()>> {
        let end = u64::from(first.0) + run.len;
        while let Some(block) = self.before(end) {
            let stop = self.ranges.first().map_or(end, |range| range.end.min(end));
            let part = Run { mapping: run.mapping_at(block.0 - first.0), len: stop - self.at };
            self.at = stop;
            if (self.each)(block, part)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Ext4 {
    /// Tells `each`, in their order, of the runs that the file's blocks in `wanted` (ranges that ascend and share nothing) are mapped by, until it breaks. Runs
    /// that lie behind each other on the device need not come as one. The content must not be in the inode.
    ///
    /// # Errors
    /// `Corrupt` and `Io` at the first node that cannot be used, and those of `each`; of what lies before `each` was told.
    pub(crate) fn map_blocks(
        &self,
        node: &Snapshot,
        wanted: &[Range<u64>],
        each: &mut Each<'_>,
    ) -> Result<()> {
        let mut sought = Sought { ranges: wanted, at: 0, each };
        let walked = if node.has(InodeFlags::EXTENTS) {
            self.map_extents(node, &mut sought)
        } else {
            self.map_pointers(node, &mut sought)
        };
        walked.map(drop)
    }

    /// The same for one range.
    pub(crate) fn map_range(&self, node: &Snapshot, wanted: Range<u64>, each: &mut Each<'_>) -> Result<()> {
        self.map_blocks(node, std::slice::from_ref(&wanted), each)
    }

    /// Makes the block map of a draft an empty one, of the kind that the file system uses for new inodes.
    pub(crate) fn init_map(&self, draft: &mut Snapshot) {
        draft.inode.size = 0;
        draft.inode.block.fill(0);
        if self.sb.incompat.has(Incompat::EXTENTS) {
            draft.inode.flags = draft.inode.flags.with(InodeFlags::EXTENTS);
            write_extent_leaf(&mut draft.inode.block, &[]);
        }
    }

    /// How the file's blocks from `block` on are mapped.
    pub(crate) fn map(&self, node: &Snapshot, block: LogicalBlock) -> Result<Run> {
        let mut first = Run { mapping: Mapping::Hole, len: 1 };
        self.map_range(node, u64::from(block.0)..FILE_END, &mut |_, run| {
            first = run;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }
}

/// Runs that a walk may find more than it is given ranges: so much memory a fragmented file takes.
const MOST_RUNS: usize = 256;

/// Where blocks of a file lie that are wanted one after the other, as far as one walk has told.
#[derive(Default)]
pub(crate) struct Placed {
    /// With their first blocks, which ascend.
    runs: Vec<(u32, Run)>,
}

impl Placed {
    /// How a block is mapped. Where that is not known yet, what `wanted` answers is mapped with it.
    ///
    /// # Errors
    /// Of this block: what is wrong with the others is told when they are asked for.
    pub(crate) fn find(
        &mut self,
        fs: &Ext4,
        node: &Snapshot,
        block: LogicalBlock,
        wanted: impl FnOnce() -> Vec<Range<u64>>,
    ) -> Result<Mapping> {
        if let Some(mapping) = self.known(block) {
            return Ok(mapping);
        }
        let (wanted, runs) = (wanted(), &mut self.runs);
        let most = wanted.len().max(MOST_RUNS);
        runs.clear();
        let walked = fs.map_blocks(node, &wanted, &mut |at, run| {
            runs.push((at.0, run));
            Ok(if runs.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        match self.known(block) {
            Some(mapping) => Ok(mapping),
            None => walked.and_then(|()| fs.map(node, block)).map(|run| run.mapping),
        }
    }

    /// The same for one that is read in order, with all up to before `end`.
    pub(crate) fn next(
        &mut self,
        fs: &Ext4,
        node: &Snapshot,
        block: LogicalBlock,
        end: u32,
    ) -> Result<Mapping> {
        self.find(fs, node, block, || std::iter::once(u64::from(block.0)..u64::from(end)).collect())
    }

    fn known(&self, block: LogicalBlock) -> Option<Mapping> {
        let behind = self.runs.partition_point(|&(first, _)| first <= block.0);
        let &(first, run) = self.runs.get(behind.checked_sub(1)?)?;
        let offset = block.0 - first;
        (u64::from(offset) < run.len).then(|| run.mapping_at(offset))
    }
}
