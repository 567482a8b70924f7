//! Walks over the nodes of a block map, for freeing; also those that map nothing, which other
//! programs leave behind.

use crate::inode::Snapshot;
use crate::map::FILE_END;
use crate::verified::VerifiedAs;
use crate::{Ext4, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::{
    BlockNumber, ChecksumSeed, ExtentNode, InodeFlags, InodeNumber, Problem, verify_extent_block,
};
use std::ops::{ControlFlow, Range};

const DIRECT: usize = 12;
const POINTER_LEN: usize = 4;

#[derive(Clone, Copy)]
pub(crate) enum Part {
    Node { block: BlockNumber, is_empty: bool },
    Run { start: BlockNumber, len: u64 },
}

/// Receives the first file block of a part, and the part. Device blocks are unchecked.
type Visit<'a> = dyn FnMut(u64, Part) -> Result<ControlFlow<()>> + 'a;

#[derive(Clone, Copy)]
struct Pointers<'a> {
    bytes: &'a [u8],
    first: u64,
    /// Levels below; 0 for pointers to file blocks.
    below: u32,
}

impl Ext4 {
    /// The first file block of `range` covered by a mapped block or an empty node.
    pub(crate) fn next_mapped(&self, node: &Snapshot, range: Range<u64>) -> Result<Option<u64>> {
        let mut next = None;
        self.map_parts(node, range, &mut |at, part| {
            if matches!(part, Part::Node { is_empty: false, .. }) {
                return Ok(ControlFlow::Continue(()));
            }
            next = Some(at);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(next)
    }

    /// Checks that all that `range` maps, nodes included, is in use and no system block.
    pub(crate) fn check_map(&self, node: &Snapshot, range: Range<u64>) -> Result<()> {
        let mut seen = 0;
        self.map_parts(node, range, &mut |_, part| {
            let (first, count) = match part {
                Part::Node { block, .. } => (block, 1),
                Part::Run { start, len } => (start, len),
            };
            // Parts of a valid map are distinct.
            seen += count;
            let place = node.place(Structure::FreedBlocks);
            Problem::check_range("the number of blocks", seen, 1, self.sb.blocks_count)
                .map_err(|problem| place.corrupt(problem))?;
            self.check_in_use(first, count)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn map_parts(&self, node: &Snapshot, range: Range<u64>, visit: &mut Visit<'_>) -> Result<()> {
        if node.has(InodeFlags::EXTENTS) {
            let place = node.place(Structure::ExtentNode);
            let root = ExtentNode::parse_root(&node.inode.block).map_err(|problem| place.corrupt(problem))?;
            return self.extent_parts(node, &root, FILE_END, &range, visit).map(drop);
        }
        let (direct, roots) = node.inode.block.split_at(DIRECT * POINTER_LEN);
        let mut flow =
            self.pointer_parts(node, Pointers { bytes: direct, first: 0, below: 0 }, &range, visit)?;
        let mut first = 12;
        for (below, root) in (1..).zip(roots.chunks_exact(POINTER_LEN)) {
            if flow.is_break() {
                break;
            }
            flow = self.pointer_parts(node, Pointers { bytes: root, first, below }, &range, visit)?;
            first += self.pointer_span(below);
        }
        Ok(())
    }

    fn extent_parts(
        &self,
        node: &Snapshot,
        tree: &ExtentNode<'_>,
        end: u64,
        range: &Range<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        for part in tree.extents().filter_map(|extent| extent.part(range.clone())) {
            let run = Part::Run { start: part.start, len: u64::from(part.len) };
            if visit(u64::from(part.logical.0), run)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let mut indices = tree.indices().peekable();
        while let Some(index) = indices.next() {
            let first = u64::from(index.logical.0);
            let end = indices.peek().map_or(end, |next| u64::from(next.logical.0));
            if end <= range.start {
                continue;
            }
            if first >= range.end {
                break;
            }
            let buffer = self.extent_block(node.ino, index.child, node.inode.checksum_seed)?;
            let place = node.place(Structure::ExtentNode).at(index.child);
            let child = ExtentNode::parse(&buffer, tree.depth() - 1, first..end)
                .map_err(|problem| place.corrupt(problem))?;
            let is_empty = child.extents().len() + child.indices().len() == 0;
            let here = Part::Node { block: index.child, is_empty };
            if visit(first.max(range.start), here)?.is_break()
                || self.extent_parts(node, &child, end, range, visit)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    pub(super) fn extent_block(
        &self,
        ino: InodeNumber,
        block: BlockNumber,
        seed: ChecksumSeed,
    ) -> Result<Buffer> {
        let place = Structure::ExtentNode.of(ino).at(block);
        self.sb.check_blocks("ei_leaf", block, 1).map_err(|problem| place.corrupt(problem))?;
        let buffer = self.metadata(block, place)?;
        if self.sb.has_metadata_csum() {
            let check = || verify_extent_block(&buffer, seed);
            self.verify_once(place, &buffer, VerifiedAs::ExtentNode(seed), check)?;
        }
        Ok(buffer)
    }

    fn pointer_span(&self, below: u32) -> u64 {
        1 << ((self.sb.block_size.log2() - 2) * below)
    }

    fn pointer_parts(
        &self,
        node: &Snapshot,
        from: Pointers<'_>,
        range: &Range<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let span = self.pointer_span(from.below);
        let all = from.bytes.as_chunks::<POINTER_LEN>().0.iter().copied().map(u32::from_le_bytes);
        let places = (0..).map(|n| from.first + n * span).zip(all);
        let wanted = places
            .skip_while(|&(first, _)| first + span <= range.start)
            .take_while(|&(first, _)| first < range.end)
            .filter(|&(_, pointer)| pointer != 0);
        for (first, pointer) in wanted {
            let (at, block) = (first.max(range.start), BlockNumber(u64::from(pointer)));
            if from.below == 0 {
                if visit(at, Part::Run { start: block, len: 1 })?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let place = node.place(Structure::IndirectBlock).at(block);
            self.sb.check_blocks("block pointer", block, 1).map_err(|problem| place.corrupt(problem))?;
            let bytes = &self.metadata(block, place)?;
            let is_empty = bytes.iter().all(|&byte| byte == 0);
            let below = Pointers { bytes, first, below: from.below - 1 };
            if visit(at, Part::Node { block, is_empty })?.is_break()
                || self.pointer_parts(node, below, range, visit)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
