//! Block maps: from file blocks to device blocks, by extents or indirect blocks.
//!
//! A walk reads, verifies and parses each node once, for any number of ranges. Callers that need
//! one block after the other keep its result in a [`MapCache`].

mod read;
pub(crate) mod write;

use crate::inode::Snapshot;
use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, Incompat, InodeFlags, LogicalBlock, write_extent_leaf};
use std::ops::{ControlFlow, Range};

#[cfg(all(test, not(loom)))]
mod tests;

/// End of the logical block numbers.
pub(crate) const FILE_END: u64 = 1 << 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    Data(BlockNumber),
    /// Never written: reads as zeros.
    Unwritten(BlockNumber),
    Hole,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) mapping: Mapping,
    pub(crate) len: u64,
}

impl Run {
    pub(crate) fn mapping_at(&self, offset: u32) -> Mapping {
        match self.mapping {
            Mapping::Data(start) => Mapping::Data(BlockNumber(start.0 + u64::from(offset))),
            Mapping::Unwritten(start) => Mapping::Unwritten(BlockNumber(start.0 + u64::from(offset))),
            Mapping::Hole => Mapping::Hole,
        }
    }

    /// Whether `next`, which follows in the file, also follows on the device.
    pub(crate) fn goes_on(&self, next: &Run) -> bool {
        match (self.mapping, next.mapping) {
            (Mapping::Data(here), Mapping::Data(there)) => here.0 + self.len == there.0,
            (Mapping::Data(_), _) | (_, Mapping::Data(_)) => false,
            _ => true,
        }
    }
}

pub(crate) type Each<'a> = dyn FnMut(LogicalBlock, Run) -> Result<ControlFlow<()>> + 'a;

pub(crate) struct Wanted<'a, 'e> {
    /// Ascending and disjoint. Of the first range, blocks from `at` on.
    ranges: &'a [Range<u64>],
    at: u64,
    each: &'a mut Each<'e>,
}

impl Wanted<'_, '_> {
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
    /// Calls `each` for the runs of the `wanted` ranges (ascending, disjoint) until it breaks. Runs
    /// adjacent on the device may be reported separately. Not for inline content.
    ///
    /// # Errors
    /// `Corrupt` and `Io` at the first unusable node, after the runs before it.
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

    pub(crate) fn map_range(&self, node: &Snapshot, wanted: Range<u64>, each: &mut Each<'_>) -> Result<()> {
        self.map_blocks(node, std::slice::from_ref(&wanted), each)
    }

    /// Makes the map empty, by extents where the file system has them.
    pub(crate) fn init_map(&self, inode: &mut Snapshot) {
        inode.inode.size = 0;
        inode.inode.block.fill(0);
        if self.sb.incompat.has(Incompat::EXTENTS) {
            inode.inode.flags = inode.inode.flags.with(InodeFlags::EXTENTS);
            write_extent_leaf(&mut inode.inode.block, &[]);
        }
    }

    /// The run that starts at `block`.
    pub(crate) fn map(&self, node: &Snapshot, block: LogicalBlock) -> Result<Run> {
        let mut first = Run { mapping: Mapping::Hole, len: 1 };
        self.map_range(node, u64::from(block.0)..FILE_END, &mut |_, run| {
            first = run;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }
}

/// Bounds the memory for fragmented files.
const MOST_RUNS: usize = 256;

/// The runs that the last walk found.
#[derive(Default)]
pub(crate) struct MapCache {
    runs: Vec<(u32, Run)>,
}

impl MapCache {
    /// On a miss, one walk also maps `wanted`, whose errors show when their blocks are requested.
    pub(crate) fn find(
        &mut self,
        fs: &Ext4,
        node: &Snapshot,
        block: LogicalBlock,
        wanted: impl FnOnce() -> Vec<Range<u64>>,
    ) -> Result<Mapping> {
        if let Some(mapping) = self.cached(block) {
            return Ok(mapping);
        }
        let (wanted, runs) = (wanted(), &mut self.runs);
        let most = wanted.len().max(MOST_RUNS);
        runs.clear();
        let walked = fs.map_blocks(node, &wanted, &mut |at, run| {
            runs.push((at.0, run));
            Ok(if runs.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        match self.cached(block) {
            Some(mapping) => Ok(mapping),
            None => walked.and_then(|()| fs.map(node, block)).map(|run| run.mapping),
        }
    }

    /// [`find`](MapCache::find) for sequential access up to `end`.
    pub(crate) fn next(
        &mut self,
        fs: &Ext4,
        node: &Snapshot,
        block: LogicalBlock,
        end: u32,
    ) -> Result<Mapping> {
        self.find(fs, node, block, || std::iter::once(u64::from(block.0)..u64::from(end)).collect())
    }

    fn cached(&self, block: LogicalBlock) -> Option<Mapping> {
        let behind = self.runs.partition_point(|&(first, _)| first <= block.0);
        let &(first, run) = self.runs.get(behind.checked_sub(1)?)?;
        let offset = block.0 - first;
        (u64::from(offset) < run.len).then(|| run.mapping_at(offset))
    }
}
