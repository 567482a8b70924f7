//! Extent tree nodes. Source: kernel document `ifork.rst`.

use crate::raw::{join, raw_layout, split, split16, u32_at};
use crate::{BlockNumber, ChecksumSeed, LogicalBlock, Problem};
use std::ops::Range;
use zerocopy::{FromBytes, little_endian as le};

/// Maximum depth: five index levels map 2^32 blocks.
pub const MAX_DEPTH: u16 = 5;

const MAGIC: u16 = 0xF30A;
const HEADER_LEN: usize = 12;
const ENTRY_LEN: usize = 12;
/// Greater lengths mean unwritten extents.
const MAX_INIT_LEN: u16 = 32768;
pub(crate) const MAX_WRITTEN_LEN: u32 = 32768;
/// The mark takes the highest length.
pub(crate) const MAX_UNWRITTEN_LEN: u32 = 32767;

raw_layout! {
    /// `struct ext4_extent_header`.
    RawHeader, size 0xC {
        0x0 eh_magic: le::U16,
        0x2 eh_entries: le::U16,
        0x4 eh_max: le::U16,
        0x6 eh_depth: le::U16,
        0x8 eh_generation: le::U32,
    }
}

raw_layout! {
    /// `struct ext4_extent`: entry of a leaf.
    RawExtent, size 0xC {
        0x0 ee_block: le::U32,
        0x4 ee_len: le::U16,
        0x6 ee_start_hi: le::U16,
        0x8 ee_start_lo: le::U32,
    }
}

raw_layout! {
    /// `struct ext4_extent_idx`: entry of other nodes.
    RawIndex, size 0xC {
        0x0 ei_block: le::U32,
        0x4 ei_leaf_lo: le::U32,
        0x8 ei_leaf_hi: le::U16,
        0xA ei_unused: le::U16,
    }
}

/// A contiguous run of a file's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First file block.
    pub logical: LogicalBlock,
    /// Number of blocks.
    pub len: u32,
    /// First block on the device.
    pub start: BlockNumber,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

/// Pointer to a node one level down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentIndex {
    /// First file block that the node may map.
    pub logical: LogicalBlock,
    /// The node's block.
    pub child: BlockNumber,
}

/// A node. Its entries ascend without overlap in its parent's range.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    depth: u16,
    end: u64,
    entries: Entries<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Entries<'a> {
    Leaf(&'a [RawExtent]),
    Index(&'a [RawIndex]),
}

impl std::fmt::Debug for RawExtent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Extent::from(*self).fmt(f)
    }
}

impl std::fmt::Debug for RawIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        ExtentIndex::from(*self).fmt(f)
    }
}

impl From<RawExtent> for Extent {
    fn from(raw: RawExtent) -> Extent {
        let len = raw.ee_len.get();
        let unwritten = len > MAX_INIT_LEN;
        Extent {
            logical: LogicalBlock(raw.ee_block.get()),
            len: u32::from(if unwritten { len - MAX_INIT_LEN } else { len }),
            start: BlockNumber(join(raw.ee_start_hi.get(), raw.ee_start_lo)),
            unwritten,
        }
    }
}

impl From<RawIndex> for ExtentIndex {
    fn from(raw: RawIndex) -> ExtentIndex {
        ExtentIndex {
            logical: LogicalBlock(raw.ei_block.get()),
            child: BlockNumber(join(raw.ei_leaf_hi.get(), raw.ei_leaf_lo)),
        }
    }
}

/// Result of a lookup in a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Mapped by this extent.
    Mapped(Extent),
    /// Not mapped.
    Hole {
        /// First block after the hole, up to 2^32.
        end: u64,
    },
    /// Continue in a child.
    Down {
        /// Its block.
        child: BlockNumber,
        /// File blocks that it may map.
        range: Range<u64>,
    },
}

impl<'a> ExtentNode<'a> {
    /// Parses a node `depth` levels above the leaves for the file blocks `range`.
    pub fn parse(bytes: &'a [u8], depth: u16, range: Range<u64>) -> Result<ExtentNode<'a>, Problem> {
        let (header, rest) = header(bytes)?;
        let found = header.eh_depth.get();
        Problem::check_range("eh_depth", u64::from(found), u64::from(depth), u64::from(depth))?;
        let room = u64::try_from(rest.len() / ENTRY_LEN).unwrap_or(u64::MAX);
        Problem::check_range("eh_max", u64::from(header.eh_max.get()), 0, room)?;
        let count = header.eh_entries.get();
        Problem::check_range("eh_entries", u64::from(count), 0, u64::from(header.eh_max.get()))?;
        let short = || Problem::Short { what: "extent entries", need: usize::from(count), have: rest.len() };
        let entries = if depth == 0 {
            let found = <[RawExtent]>::ref_from_prefix_with_elems(rest, usize::from(count));
            Entries::Leaf(found.map_err(|_| short())?.0)
        } else {
            let found = <[RawIndex]>::ref_from_prefix_with_elems(rest, usize::from(count));
            Entries::Index(found.map_err(|_| short())?.0)
        };
        let node = ExtentNode { depth, end: range.end, entries };
        node.check_order(range)?;
        Ok(node)
    }

    /// Parses the root, `i_block`.
    pub fn parse_root(i_block: &'a [u8; 60]) -> Result<ExtentNode<'a>, Problem> {
        let depth = header(i_block)?.0.eh_depth.get();
        Problem::check_range("eh_depth", u64::from(depth), 0, u64::from(MAX_DEPTH))?;
        ExtentNode::parse(i_block, depth, 0..1 << 32)
    }

    /// Levels below.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Extents; none above the leaves.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + 'a {
        let extents = if let Entries::Leaf(extents) = self.entries { extents } else { &[] };
        extents.iter().copied().map(Extent::from)
    }

    /// Pointers; none in a leaf.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = ExtentIndex> + 'a {
        let indices = if let Entries::Index(indices) = self.entries { indices } else { &[] };
        indices.iter().copied().map(ExtentIndex::from)
    }

    fn check_order(&self, range: Range<u64>) -> Result<(), Problem> {
        let mut previous = range.start;
        let mut ascend = |field, first: LogicalBlock, len: u32| {
            let value = u64::from(first.0);
            let end = value + u64::from(len);
            if value < previous || end > range.end {
                return Err(Problem::Order { field, value, previous });
            }
            previous = end;
            Ok(())
        };
        match self.entries {
            Entries::Leaf(extents) => extents.iter().try_for_each(|&raw| {
                let extent = Extent::from(raw);
                Problem::check_range("ee_len", u64::from(extent.len), 1, u64::from(MAX_INIT_LEN))?;
                ascend("ee_block", extent.logical, extent.len)
            }),
            Entries::Index(indices) => {
                indices.iter().try_for_each(|&raw| ascend("ei_block", ExtentIndex::from(raw).logical, 1))
            }
        }
    }

    /// Looks up a file block of this node's range.
    pub fn step(&self, block: LogicalBlock) -> Step {
        match self.entries {
            Entries::Leaf(extents) => {
                let after = extents.partition_point(|raw| raw.ee_block.get() <= block.0);
                let next = extents.get(after).map_or(self.end, |raw| u64::from(raw.ee_block.get()));
                let before =
                    after.checked_sub(1).and_then(|at| extents.get(at)).map(|&raw| Extent::from(raw));
                match before.filter(|extent| block.0 - extent.logical.0 < extent.len) {
                    Some(extent) => Step::Mapped(extent),
                    None => Step::Hole { end: next },
                }
            }
            Entries::Index(indices) => {
                let after = indices.partition_point(|raw| raw.ei_block.get() <= block.0);
                let end = indices.get(after).map_or(self.end, |raw| u64::from(raw.ei_block.get()));
                match after.checked_sub(1).and_then(|at| indices.get(at)).map(|&raw| ExtentIndex::from(raw)) {
                    Some(index) => Step::Down { child: index.child, range: u64::from(index.logical.0)..end },
                    None => Step::Hole { end },
                }
            }
        }
    }
}

fn header(bytes: &[u8]) -> Result<(&RawHeader, &[u8]), Problem> {
    let short = |_| Problem::Short { what: "an extent header", need: HEADER_LEN, have: bytes.len() };
    let (header, rest) = RawHeader::ref_from_prefix(bytes).map_err(|e| short(e.map_src(drop)))?;
    let found = header.eh_magic.get();
    if found != MAGIC {
        return Err(Problem::Magic { found: u64::from(found), expected: u64::from(MAGIC) });
    }
    Ok((header, rest))
}

/// Writes a leaf to `i_block`, or to a block that [`set_extent_checksum`] finishes. Extents beyond
/// the space are dropped.
pub fn write_extent_leaf(bytes: &mut [u8], extents: &[Extent]) {
    let Some(entries) = write_header(bytes, 0, extents.len()) else { return };
    let Ok((places, _)) = <[RawExtent]>::mut_from_prefix_with_elems(entries, entries.len() / ENTRY_LEN)
    else {
        return;
    };
    for (place, extent) in places.iter_mut().zip(extents) {
        let (high, low) = split(extent.start.0);
        let mark = if extent.unwritten { u32::from(MAX_INIT_LEN) } else { 0 };
        place.ee_block.set(extent.logical.0);
        place.ee_len.set(split16(extent.len + mark).1);
        place.ee_start_hi.set(split16(high).1);
        place.ee_start_lo.set(low);
    }
}

/// As [`write_extent_leaf`], for a node `depth` levels above the leaves.
pub fn write_extent_index(bytes: &mut [u8], depth: u16, indices: &[ExtentIndex]) {
    let Some(entries) = write_header(bytes, depth, indices.len()) else { return };
    let Ok((places, _)) = <[RawIndex]>::mut_from_prefix_with_elems(entries, entries.len() / ENTRY_LEN) else {
        return;
    };
    for (place, index) in places.iter_mut().zip(indices) {
        let (high, low) = split(index.child.0);
        place.ei_block.set(index.logical.0);
        place.ei_leaf_lo.set(low);
        place.ei_leaf_hi.set(split16(high).1);
        place.ei_unused.set(0);
    }
}

fn write_header(bytes: &mut [u8], depth: u16, entries: usize) -> Option<&mut [u8]> {
    let (header, rest) = RawHeader::mut_from_prefix(bytes).ok()?;
    let max = u16::try_from(rest.len() / ENTRY_LEN).ok()?;
    header.eh_magic.set(MAGIC);
    header.eh_entries.set(u16::try_from(entries).unwrap_or(u16::MAX).min(max));
    header.eh_max.set(max);
    header.eh_depth.set(depth);
    header.eh_generation.set(0);
    Some(rest)
}

/// Writes an extent block's checksum, after the space for entries.
pub fn set_extent_checksum(bytes: &mut [u8], inode_seed: ChecksumSeed) {
    let Ok((header, _)) = header(bytes) else { return };
    let tail = HEADER_LEN + ENTRY_LEN * usize::from(header.eh_max.get());
    let sum = inode_seed.sum(bytes.get(..tail).unwrap_or_default());
    if let Some(field) = bytes.get_mut(tail..tail + 4) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Verifies an extent block's checksum.
pub fn verify_extent_block(bytes: &[u8], inode_seed: ChecksumSeed) -> Result<(), Problem> {
    let tail = HEADER_LEN + ENTRY_LEN * usize::from(header(bytes)?.0.eh_max.get());
    let short = Problem::Short { what: "an extent block's checksum", need: tail + 4, have: bytes.len() };
    let stored = u32_at(bytes, tail).ok_or(short)?;
    Problem::check_sum(stored, inode_seed.sum(bytes.get(..tail).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(extents: &[(u32, u16, u32)]) -> Vec<u8> {
        let count = u16::try_from(extents.len()).unwrap();
        let mut bytes = Vec::new();
        for word in [MAGIC, count, count, 0, 0, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for &(block, len, start) in extents {
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&[0, 0]);
            bytes.extend_from_slice(&start.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn holes_before_between_and_after_extents_have_their_ends() {
        let bytes = leaf(&[(10, 5, 100), (20, 32768 + 2, 200)]);
        let node = ExtentNode::parse(&bytes, 0, 0..50).unwrap();
        assert_eq!(node.step(LogicalBlock(0)), Step::Hole { end: 10 });
        assert_eq!(node.step(LogicalBlock(15)), Step::Hole { end: 20 });
        assert_eq!(node.step(LogicalBlock(22)), Step::Hole { end: 50 });
        let Step::Mapped(extent) = node.step(LogicalBlock(21)) else { panic!("not mapped") };
        assert!(extent.unwritten);
        assert_eq!((extent.logical, extent.len, extent.start), (LogicalBlock(20), 2, BlockNumber(200)));
    }

    #[test]
    fn entries_out_of_order_overlapping_empty_or_out_of_range_are_refused() {
        for extents in [
            &[(10, 5, 100), (12, 1, 200)][..],
            &[(10, 5, 100), (3, 1, 200)],
            &[(10, 0, 100)],
            &[(48, 5, 100)],
            &[(4_294_967_295, 2, 100)],
        ] {
            assert!(ExtentNode::parse(&leaf(extents), 0, 0..50).is_err(), "{extents:?}");
        }
    }

    #[test]
    fn written_nodes_parse_to_the_same_with_a_valid_checksum() {
        let extent = |logical, len, start, unwritten| Extent {
            logical: LogicalBlock(logical),
            len,
            start: BlockNumber(start),
            unwritten,
        };
        let mut block = vec![0; 1024];
        write_extent_leaf(&mut block, &[extent(0, 32768, 1 << 40, false), extent(40_000, 32767, 7, true)]);
        set_extent_checksum(&mut block, ChecksumSeed(1));
        assert_eq!(verify_extent_block(&block, ChecksumSeed(1)), Ok(()));
        assert!(verify_extent_block(&block, ChecksumSeed(2)).is_err());
        let node = ExtentNode::parse(&block, 0, 0..1 << 32).unwrap();
        assert_eq!(node.step(LogicalBlock(9)), Step::Mapped(extent(0, 32768, 1 << 40, false)));
        assert_eq!(node.step(LogicalBlock(40_001)), Step::Mapped(extent(40_000, 32767, 7, true)));
        let mut root = [0; 60];
        let child = ExtentIndex { logical: LogicalBlock(0), child: BlockNumber(1 << 40) };
        write_extent_index(&mut root, 1, &[child]);
        let down = ExtentNode::parse_root(&root).unwrap().step(LogicalBlock(5));
        assert_eq!(down, Step::Down { child: BlockNumber(1 << 40), range: 0..1 << 32 });
    }

    #[test]
    fn a_depth_other_than_expected_is_refused() {
        let bytes = leaf(&[(0, 1, 1)]);
        assert!(ExtentNode::parse(&bytes, 1, 0..50).is_err());
    }
}
