//! Lookups in extent trees and indirect blocks.

use crate::inode::Snapshot;
use crate::map::{FILE_END, Mapping, Run, Wanted};
use crate::verified::VerifiedAs;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, Extent, ExtentNode, LogicalBlock, Step, verify_extent_block};
use dentree_vfs::FileType;
use std::ops::{ControlFlow, Range};

impl Ext4 {
    pub(crate) fn map_extents(
        &self,
        node: &Snapshot,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let place = node.place(Structure::ExtentNode);
        let root = ExtentNode::parse_root(&node.inode.block).map_err(|problem| place.corrupt(problem))?;
        self.map_below(node, &root, FILE_END, wanted)
    }

    fn map_below(
        &self,
        node: &Snapshot,
        tree: &ExtentNode<'_>,
        end: u64,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        while let Some(block) = wanted.before(end) {
            let flow = match tree.step(block) {
                Step::Mapped(extent) => wanted.found(block, self.run_in_extent(node, extent, block)?)?,
                Step::Hole { end } => {
                    let len = end - u64::from(block.0);
                    wanted.found(block, Run { mapping: Mapping::Hole, len })?
                }
                // `step` descends from index nodes only, so `depth` is above 0.
                Step::Down { child, range } => {
                    self.map_child(node, tree.depth() - 1, child, range, wanted)?
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn map_child(
        &self,
        node: &Snapshot,
        depth: u16,
        child: BlockNumber,
        range: Range<u64>,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let place = node.place(Structure::ExtentNode).at(child);
        let corrupt = |problem| place.corrupt(problem);
        self.sb.check_blocks("ei_leaf", child, 1).map_err(corrupt)?;
        // Each lookup and creation in a directory reads these nodes.
        let is_dir = node.kind == FileType::Directory;
        let buffer = if is_dir { self.metadata_often(child, place) } else { self.metadata(child, place) }?;
        if self.sb.has_metadata_csum() {
            let seed = node.inode.checksum_seed;
            let check = || verify_extent_block(&buffer, seed);
            self.verify_once(place, &buffer, VerifiedAs::ExtentNode(seed), check)?;
        }
        let end = range.end;
        let tree = ExtentNode::parse(&buffer, depth, range).map_err(corrupt)?;
        self.map_below(node, &tree, end, wanted)
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

const DIRECT: usize = 12;
const POINTER_LEN: usize = 4;

#[derive(Clone, Copy)]
struct Pointers<'a> {
    bytes: &'a [u8],
    first: u64,
    /// Levels below; 0 for pointers to file blocks.
    below: u32,
}

impl Ext4 {
    pub(crate) fn map_pointers(
        &self,
        node: &Snapshot,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let (direct, roots) = node.inode.block.split_at(DIRECT * POINTER_LEN);
        let mut flow = self.follow(node, Pointers { bytes: direct, first: 0, below: 0 }, wanted)?;
        let mut first = 12;
        for (below, root) in (1..).zip(roots.chunks_exact(POINTER_LEN)) {
            if flow.is_break() {
                return Ok(flow);
            }
            flow = self.follow(node, Pointers { bytes: root, first, below }, wanted)?;
            first += self.span(below);
        }
        while flow.is_continue()
            && let Some(block) = wanted.before(FILE_END)
        {
            flow = wanted.found(block, Run { mapping: Mapping::Hole, len: FILE_END - u64::from(block.0) })?;
        }
        Ok(flow)
    }

    fn span(&self, levels: u32) -> u64 {
        1 << ((self.sb.block_size.log2() - 2) * levels)
    }

    fn follow(
        &self,
        node: &Snapshot,
        from: Pointers<'_>,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let span = self.span(from.below);
        let end = from.first + u64::try_from(from.bytes.len() / POINTER_LEN).unwrap_or(0) * span;
        while let Some(block) = wanted.before(end) {
            let index = (u64::from(block.0) - from.first) / span;
            let rest = pointers_from(from.bytes, index).unwrap_or_default();
            let first = from.first + index * span;
            let flow = match pointers(rest).next().unwrap_or_default() {
                _ if from.below == 0 => wanted.found(block, self.run_of_pointers(node, rest)?)?,
                0 => {
                    let len = first + span - u64::from(block.0);
                    wanted.found(block, Run { mapping: Mapping::Hole, len })?
                }
                pointer => {
                    let child = BlockNumber(u64::from(pointer));
                    let place = node.place(Structure::IndirectBlock).at(child);
                    self.sb
                        .check_blocks("block pointer", child, 1)
                        .map_err(|problem| place.corrupt(problem))?;
                    let bytes = &self.metadata(child, place)?;
                    self.follow(node, Pointers { bytes, first, below: from.below - 1 }, wanted)?
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run_of_pointers(&self, node: &Snapshot, bytes: &[u8]) -> Result<Run> {
        let first = pointers(bytes).next().unwrap_or_default();
        if first == 0 {
            let len = (1..).zip(pointers(bytes)).take_while(|&(_, pointer)| pointer == 0).last();
            return Ok(Run { mapping: Mapping::Hole, len: len.map_or(1, |(count, _)| count) });
        }
        let start = u64::from(first);
        let len = (0..).zip(pointers(bytes)).take_while(|&(n, next)| u64::from(next) == start + n).count();
        let len = u64::try_from(len).unwrap_or(1);
        let start = BlockNumber(start);
        let place = node.place(Structure::IndirectBlock);
        self.sb.check_blocks("block pointer", start, len).map_err(|problem| place.corrupt(problem))?;
        Ok(Run { mapping: Mapping::Data(start), len })
    }
}

fn pointers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes)
}

fn pointers_from(bytes: &[u8], index: u64) -> Option<&[u8]> {
    let at = usize::try_from(index).ok()?.checked_mul(POINTER_LEN)?;
    bytes.get(at..).filter(|rest| !rest.is_empty())
}
