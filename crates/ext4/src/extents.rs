//! Extent trees.

use crate::checked::Checked;
use crate::map::{Mapping, Run};
use crate::{Ext4, Result, Snapshot, Structure};
use dentree_ext4_format::{BlockNumber, Extent, ExtentNode, LogicalBlock, Step, verify_extent_block};

impl Ext4 {
    /// Descends the extent tree: each node is one level shallower and maps a part of its parent's range.
    pub(crate) fn map_extents(&self, node: &Snapshot, block: LogicalBlock) -> Result<Run> {
        let place = node.place(Structure::ExtentNode);
        let root = ExtentNode::parse_root(&node.inode.block).map_err(|problem| place.corrupt(problem))?;
        let mut depth = root.depth();
        let mut step = root.step(block);
        loop {
            let (child, range) = match step {
                Step::Mapped(extent) => return self.run_in_extent(node, extent, block),
                Step::Hole { end } => {
                    return Ok(Run { mapping: Mapping::Hole, len: end - u64::from(block.0) });
                }
                Step::Down { child, range } => (child, range),
            };
            let place = place.at(child);
            let corrupt = |problem| place.corrupt(problem);
            self.sb.check_blocks("ei_leaf", child, 1).map_err(corrupt)?;
            let buffer = self.metadata(child, place)?;
            if self.sb.has_metadata_csum() {
                let seed = node.inode.checksum_seed;
                let check = || verify_extent_block(&buffer, seed);
                self.check_once(place, &buffer, Checked::ExtentNode(seed), check)?;
            }
            // Only nodes above the leaves send a search down.
            depth -= 1;
            step = ExtentNode::parse(&buffer, depth, range).map_err(corrupt)?.step(block);
        }
    }

    fn run_in_extent(&self, node: &Snapshot, extent: Extent, block: LogicalBlock) -> Result<Run> {
        let place = node.place(Structure::ExtentNode);
        self.sb
            .check_blocks("ee_start", extent.start, u64::from(extent.len))
            .map_err(|problem| place.corrupt(problem))?;
        let skipped = block.0 - extent.logical.0;
        let start = BlockNumber(extent.start.0 + u64::from(skipped));
        let mapping = if extent.unwritten { Mapping::Unwritten(start) } else { Mapping::Data(start) };
        Ok(Run { mapping, len: u64::from(extent.len - skipped) })
    }
}
