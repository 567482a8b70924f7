//! From a block of a file to a block of the device: extents, or direct and indirect pointers.

use crate::{Ext4, Result, Snapshot};
use dentree_ext4_format::{BlockNumber, InodeFlags, LogicalBlock};

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

impl Ext4 {
    /// How the file's blocks from `block` on are mapped.
    pub(crate) fn map(&self, node: &Snapshot, block: LogicalBlock) -> Result<Run> {
        if node.has(InodeFlags::EXTENTS) {
            self.map_extents(node, block)
        } else {
            self.map_pointers(node, block)
        }
    }
}
