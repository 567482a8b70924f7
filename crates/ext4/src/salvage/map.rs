//! Block maps, with the parts that are gone.
//!
//! Unlike [`walk_map`](crate::Ext4::walk_map), which reports damage, this walk reports which blocks
//! of the file are behind the damage.

use super::reader::read_past_damage;
use crate::Ext4;
use crate::inode::Snapshot;
use crate::layout::pointer_roots;
use crate::map::FILE_END;
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockNumber, Extent, ExtentNode, InodeFlags, verify_extent_block};
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A part of a file, in blocks. What is not among the parts is a hole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// Content on the device.
    Data {
        /// The first block of the file.
        logical: u64,
        /// Where it lies.
        start: BlockNumber,
        len: u64,
    },
    /// The part of the map that says where these blocks lie is gone.
    Lost(Range<u64>),
}

/// A walk through a block map, from left to right.
pub(super) struct Walk<'a> {
    fs: &'a Ext4,
    before: Option<&'a Arc<dyn BlockDevice>>,
    node: &'a Snapshot,
    each: &'a mut dyn FnMut(Piece) -> ControlFlow<()>,
    /// Blocks of the map that were walked. Those of a hostile map may lead to each other.
    walked: HashSet<u64>,
    /// A node has a wrong checksum, but its fields fit.
    is_doubtful: bool,
}

/// Calls `each` for the parts of a file. Returns whether the map is intact as far as it was walked.
pub(super) fn walk(
    fs: &Ext4,
    before: Option<&Arc<dyn BlockDevice>>,
    node: &Snapshot,
    each: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> bool {
    if node.maps_nothing() {
        return true;
    }
    let mut last = None;
    let mut joined = |piece| join(&mut last, piece, each);
    let mut walk = Walk { fs, before, node, each: &mut joined, walked: HashSet::new(), is_doubtful: false };
    let ended = if node.has(InodeFlags::EXTENTS) { walk.extents() } else { walk.pointers() };
    let is_intact = !walk.is_doubtful;
    if let Some(last) = last.filter(|_| ended.is_continue()) {
        // The last one: there is nothing to end.
        let _ = each(last);
    }
    is_intact
}

/// Joins content that follows the last piece in the file and on the device: pointers are of single
/// blocks. Passes on what does not.
fn join(
    last: &mut Option<Piece>,
    piece: Piece,
    each: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if let (Some(Piece::Data { logical, start, len }), Piece::Data { logical: next, start: there, len: more }) =
        (&mut *last, &piece)
        && (*logical + *len, start.0 + *len) == (*next, there.0)
    {
        *len += more;
        return ControlFlow::Continue(());
    }
    last.replace(piece).map_or(ControlFlow::Continue(()), each)
}

impl Walk<'_> {
    fn extents(&mut self) -> ControlFlow<()> {
        let block = self.node.inode.block;
        match ExtentNode::parse_root(&block) {
            Ok(root) => self.extent_node(&root, FILE_END),
            Err(_) => (self.each)(Piece::Lost(0..FILE_END)),
        }
    }

    fn extent_node(&mut self, node: &ExtentNode<'_>, end: u64) -> ControlFlow<()> {
        for Extent { logical, len, start, unwritten } in node.extents() {
            let (logical, len) = (u64::from(logical.0), u64::from(len));
            if self.fs.sb.check_blocks("ee_start", start, len).is_err() {
                (self.each)(Piece::Lost(logical..logical + len))?;
            } else if !unwritten {
                (self.each)(Piece::Data { logical, start, len })?;
            }
        }
        let starts = node.indices().map(|index| u64::from(index.logical.0)).skip(1);
        for (index, end) in node.indices().zip(starts.chain([end])) {
            self.extent_child(index.child, node.depth() - 1, u64::from(index.logical.0)..end)?;
        }
        ControlFlow::Continue(())
    }

    fn extent_child(&mut self, child: BlockNumber, depth: u16, range: Range<u64>) -> ControlFlow<()> {
        let is_new = self.walked.insert(child.0);
        if !is_new || self.fs.sb.check_blocks("ei_leaf", child, 1).is_err() {
            return (self.each)(Piece::Lost(range));
        }
        let (sb, seed) = (&self.fs.sb, self.node.inode.checksum_seed);
        let is_sound = |bytes: &[u8]| !sb.has_metadata_csum() || verify_extent_block(bytes, seed).is_ok();
        let mut bytes = self.read(child);
        let mut is_proved = is_sound(&bytes);
        if !is_proved && let Some(logged) = self.logged(child).filter(|bytes| is_sound(bytes)) {
            (bytes, is_proved) = (logged, true);
        }
        let (first, end) = (range.start, range.end);
        match ExtentNode::parse(&bytes, depth, range) {
            Ok(node) => {
                self.is_doubtful |= !is_proved;
                self.extent_node(&node, end)
            }
            Err(_) => (self.each)(Piece::Lost(first..end)),
        }
    }

    fn pointers(&mut self) -> ControlFlow<()> {
        let block = self.node.inode.block;
        let per_block = u64::from(self.fs.sb.block_size.bytes() / 4);
        pointer_roots(&block, per_block)
            .try_for_each(|(pointers, first, levels)| self.pointer_block(pointers, first, levels))
    }

    /// Follows pointers with `levels` of blocks of pointers below them; the first maps file block
    /// `first`.
    fn pointer_block(&mut self, bytes: &[u8], first: u64, levels: u32) -> ControlFlow<()> {
        let span = u64::from(self.fs.sb.block_size.bytes() / 4).pow(levels);
        for (logical, bytes) in (first..).step_by(usize::try_from(span).unwrap_or(1)).zip(bytes.as_chunks().0)
        {
            let start = BlockNumber(u64::from(u32::from_le_bytes(*bytes)));
            if start.0 == 0 {
                continue;
            }
            if logical >= FILE_END {
                return ControlFlow::Continue(());
            }
            let is_wrong = self.fs.sb.check_blocks("block pointer", start, 1).is_err();
            if !is_wrong && levels == 0 {
                (self.each)(Piece::Data { logical, start, len: 1 })?;
                continue;
            }
            if is_wrong || !self.walked.insert(start.0) {
                (self.each)(Piece::Lost(logical..logical + span))?;
                continue;
            }
            let below = self.read(start);
            if self.is_garbage(&below) {
                (self.each)(Piece::Lost(logical..logical + span))?;
                continue;
            }
            self.pointer_block(&below, logical, levels - 1)?;
        }
        ControlFlow::Continue(())
    }

    /// Whether a block cannot hold pointers: more than one in sixteen leads nowhere.
    fn is_garbage(&self, bytes: &[u8]) -> bool {
        let pointers = bytes.as_chunks().0.iter().map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
        let (mut used, mut wrong) = (0, 0);
        for pointer in pointers.filter(|pointer| *pointer != 0) {
            used += 1;
            let checked = self.fs.sb.check_blocks("block pointer", BlockNumber(pointer), 1);
            wrong += i32::from(checked.is_err());
        }
        wrong > used / 16
    }

    fn read(&self, block: BlockNumber) -> Vec<u8> {
        let size = self.fs.sb.block_size;
        let mut bytes = vec![0; size.in_memory()];
        read_past_damage(&*self.fs.device, block.0 << size.log2(), &mut bytes, &mut |_| {});
        bytes
    }

    fn logged(&self, block: BlockNumber) -> Option<Vec<u8>> {
        let size = self.fs.sb.block_size;
        let mut bytes = vec![0; size.in_memory()];
        self.before?.read_at(block.0 << size.log2(), &mut bytes).ok()?;
        Some(bytes)
    }
}
