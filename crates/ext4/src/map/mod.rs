//! Block maps: from file blocks to device blocks, by extents or by direct and indirect pointers.
//!
//! [`Ext4::map_blocks`] serves a block, a run or a list of runs in one walk from left to right,
//! which reads, verifies and parses each node once. Callers that need blocks one by one keep the
//! result of one walk for many ([`MapCache`]). `write/` changes maps.

mod read;
pub(crate) mod write;

use crate::inode::Snapshot;
use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, Incompat, InodeFlags, LogicalBlock, write_extent_leaf};
use std::ops::{ControlFlow, Range};

#[cfg(all(test, not(loom)))]
mod tests;

/// The number of blocks that a file can have.
pub(crate) const FILE_END: u64 = 1 << 32;

/// What a run of file blocks is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// Device blocks from this one on, within the file system.
    Data(BlockNumber),
    /// Device blocks that were never written: reads as zeros.
    Unwritten(BlockNumber),
    /// Nothing: reads as zeros.
    Hole,
}

/// File blocks from the requested one on with equal mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) mapping: Mapping,
    /// At least one.
    pub(crate) len: u64,
}

impl Run {
    /// The mapping of the block `offset` behind the first.
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

/// Receives each run of a walk with its first file block.
pub(crate) type Each<'a> = dyn FnMut(LogicalBlock, Run) -> Result<ControlFlow<()>> + 'a;

/// What a walk has yet to find.
pub(crate) struct Wanted<'a, 'e> {
    /// Ascending and disjoint. Of the first range, blocks from `at` on.
    ranges: &'a [Range<u64>],
    at: u64,
    each: &'a mut Each<'e>,
}

impl Wanted<'_, '_> {
    /// The next block to find, if it lies before `end`.
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

    /// Reports a run that contains the next block. Returns whether to continue.
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
    /// Calls `each`, in order, for the runs that map the file blocks in `wanted` (ascending,
    /// disjoint ranges), until it breaks. Runs adjacent on the device may be reported separately.
    /// Not for inline content.
    ///
    /// # Errors
    /// `Corrupt` and `Io` at the first unusable node, and those of `each`; runs before it were
    /// reported.
    pub(crate) fn map_blocks(
        &self,
        node: &Snapshot,
        wanted: &[Range<u64>],
        each: &mut Each<'_>,
    ) -> Result<()> {
        let mut wanted = Wanted { ranges: wanted, at: 0, each };
        let walked = if node.has(InodeFlags::EXTENTS) {
            self.map_extents(node, &mut wanted)
        } else {
            self.map_pointers(node, &mut wanted)
        };
        walked.map(drop)
    }

    /// Like [`map_blocks`](Ext4::map_blocks), for one range.
    pub(crate) fn map_range(&self, node: &Snapshot, wanted: Range<u64>, each: &mut Each<'_>) -> Result<()> {
        self.map_blocks(node, std::slice::from_ref(&wanted), each)
    }

    /// Makes the block map empty, of the kind for new inodes.
    pub(crate) fn init_map(&self, inode: &mut Snapshot) {
        inode.inode.size = 0;
        inode.inode.block.fill(0);
        if self.sb.incompat.has(Incompat::EXTENTS) {
            inode.inode.flags = inode.inode.flags.with(InodeFlags::EXTENTS);
            write_extent_leaf(&mut inode.inode.block, &[]);
        }
    }

    /// The mapping of the file blocks from `block` on.
    pub(crate) fn map(&self, node: &Snapshot, block: LogicalBlock) -> Result<Run> {
        let mut first = Run { mapping: Mapping::Hole, len: 1 };
        self.map_range(node, u64::from(block.0)..FILE_END, &mut |_, run| {
            first = run;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }
}

/// Runs kept beyond one for each requested range: bounds the memory for fragmented files.
const MOST_RUNS: usize = 256;

/// The mappings that one walk found, for callers that need one block after the other.
#[derive(Default)]
pub(crate) struct MapCache {
    /// With their first blocks, ascending.
    runs: Vec<(u32, Run)>,
}

impl MapCache {
    /// The mapping of a block. If it is not known, one walk also maps the blocks that `wanted`
    /// returns.
    ///
    /// # Errors
    /// Only of this block; errors in others show when they are requested.
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

    /// Like `find` for sequential access: also maps all blocks before `end`.
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
