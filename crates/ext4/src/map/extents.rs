//! Extent trees.

use crate::inode::Snapshot;
use crate::map::{FILE_END, Mapping, Run, Sought};
use crate::verified::Checked;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, Extent, ExtentNode, LogicalBlock, Step, verify_extent_block};
use dentree_vfs::FileType;
use std::ops::{ControlFlow, Range};

impl Ext4 {
    /// Finds blocks in the extent tree of an inode.
    pub(crate) fn map_extents(
        &self,
        node: &Snapshot,
        sought: &mut Sought<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let place = node.place(Structure::ExtentNode);
        let root = ExtentNode::parse_root(&node.inode.block).map_err(|problem| place.corrupt(problem))?;
        self.map_below(node, &root, FILE_END, sought)
    }

    /// Finds those that a node of the tree maps, which end before `end`.
    fn map_below(
        &self,
        node: &Snapshot,
        tree: &ExtentNode<'_>,
        end: u64,
        sought: &mut Sought<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        while let Some(block) = sought.before(end) {
            let flow = match tree.step(block) {
                Step::Mapped(extent) => sought.found(block, self.run_in_extent(node, extent, block)?)?,
                Step::Hole { end } => {
                    let len = end - u64::from(block.0);
                    sought.found(block, Run { mapping: Mapping::Hole, len })?
                }
                // Only nodes above the leaves send a search down: so each step is one level shallower.
                Step::Down { child, range } => {
                    self.map_child(node, tree.depth() - 1, child, range, sought)?
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Finds those that the node in block `child` maps, `depth` levels above the leaves and for the file blocks of `range`.
    fn map_child(
        &self,
        node: &Snapshot,
        depth: u16,
        child: BlockNumber,
        range: Range<u64>,
        sought: &mut Sought<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let place = node.place(Structure::ExtentNode).at(child);
        let corrupt = |problem| place.corrupt(problem);
        self.sb.check_blocks("ei_leaf", child, 1).map_err(corrupt)?;
        // Who looks up a name, or makes one, comes by here.
        let is_dir = node.kind == FileType::Directory;
        let buffer = if is_dir { self.metadata_often(child, place) } else { self.metadata(child, place) }?;
        if self.sb.has_metadata_csum() {
            let seed = node.inode.checksum_seed;
            let check = || verify_extent_block(&buffer, seed);
            self.check_once(place, &buffer, Checked::ExtentNode(seed), check)?;
        }
        let end = range.end;
        let tree = ExtentNode::parse(&buffer, depth, range).map_err(corrupt)?;
        self.map_below(node, &tree, end, sought)
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
