//! Index blocks of htree directories, which map hashes to leaf blocks.
//!
//! Block 0 is the root, other index blocks are nodes. To old readers both look like directory
//! blocks with one or two entries:
//!
//! ```text
//!         root                                    node
//! 0x00    "."  inode, rec_len 12                  0x00  inode 0, rec_len of the whole block
//! 0x0C    ".." inode, rec_len of all the rest     0x08  limit, count, block of entry 0
//! 0x18    reserved 0, hash_version, info_length   0x10  entry 1: hash, block
//!         8, indirect_levels, unused_flags        …
//! 0x20    limit, count, block of entry 0
//! 0x28    entry 1: hash, block
//! …                                               (under metadata_csum: a tail after `limit`)
//! ```
//!
//! Some versions of the kernel's `directory.rst` have a node's block and entry 1 at 0xE and 0x12;
//! all images have them at 0xC and 0x10.
//!
//! Entry 0 has no hash: it covers all below entry 1. Lookups parse only a block's head;
//! [`IndexBlock::verify`] checks a whole block once, when it is read.

use crate::hash::{CharSign, HashVersion, MajorHash};
use crate::raw::{raw_layout, u32_at};
use crate::{ChecksumSeed, LogicalBlock, Problem};
use zerocopy::{FromBytes, little_endian as le};

mod change;

pub use change::{
    LeafSplit, fill_root, grow_root, has_index_room, init_index, init_root, insert_index, set_index_checksum,
    split_index, split_leaf,
};

raw_layout! {
    /// `struct fake_dirent` with a padded name.
    RawFakeDirent, size 12 {
        0x0 inode: le::U32,
        0x4 rec_len: le::U16,
        0x6 name_len: u8,
        0x7 file_type: u8,
        0x8 name: [u8; 4],
    }
}

raw_layout! {
    /// `struct dx_root` without entries.
    RawDxRoot, size 32 {
        0x00 dot: RawFakeDirent,
        0x0C dotdot: RawFakeDirent,
        0x18 reserved_zero: le::U32,
        0x1C hash_version: u8,
        0x1D info_length: u8,
        0x1E indirect_levels: u8,
        0x1F unused_flags: u8,
    }
}

raw_layout! {
    /// `struct dx_node` without entries.
    RawDxNode, size 8 {
        0x0 inode: le::U32,
        0x4 rec_len: le::U16,
        0x6 name_len: u8,
        0x7 file_type: u8,
    }
}

raw_layout! {
    /// `struct dx_countlimit`, in place of entry 0's hash.
    RawCountLimit, size 4 {
        0x0 limit: le::U16,
        0x2 count: le::U16,
    }
}

raw_layout! {
    /// `struct dx_entry`.
    RawDxEntry, size 8 {
        0x0 hash: le::U32,
        0x4 block: le::U32,
    }
}

/// `struct dx_tail`: a reserved word and the checksum.
const TAIL_SIZE: usize = 8;
/// The upper four bits were reserved for a fill hint.
const BLOCK_MASK: u32 = 0x0fff_ffff;
/// Without large_dir.
const MAX_LEVELS: u8 = 1;

/// An entry of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Lowest hash, as stored.
    hash: u32,
    /// An index block of the next level, or a leaf. Not validated.
    pub block: LogicalBlock,
}

impl IndexEntry {
    /// Lowest hash in the block; 0 in entry 0.
    pub fn hash(self) -> MajorHash {
        MajorHash::stored(self.hash)
    }

    /// With another block: entry 0 inherits its parent's hash.
    pub fn leading_to(self, block: LogicalBlock) -> IndexEntry {
        IndexEntry { block, ..self }
    }

    /// Whether names with this hash are also in the previous block.
    pub fn is_continuation(self) -> bool {
        self.hash & 1 == 1
    }

    /// Whether a search for `hash` must continue here from the previous block.
    pub fn continues(self, hash: MajorHash) -> bool {
        self.is_continuation() && self.hash() == hash
    }
}

/// The entries of an index block, by hash. Never empty.
#[derive(Clone, Copy)]
pub struct IndexBlock<'a> {
    bytes: &'a [u8],
    entries: &'a [RawDxEntry],
    /// Of the entries.
    offset: usize,
    /// Maximum number of entries.
    limit: usize,
}

impl<'a> IndexBlock<'a> {
    /// `has_tail`: the file system has metadata_csum.
    fn parse(bytes: &'a [u8], offset: usize, has_tail: bool) -> Result<Self, Problem> {
        let space = bytes.get(offset..).unwrap_or_default();
        let (head, _) =
            RawCountLimit::ref_from_prefix(space).map_err(|_| short(bytes, offset + TAIL_SIZE))?;
        let tail = if has_tail { TAIL_SIZE } else { 0 };
        let room = space.len().saturating_sub(tail) / size_of::<RawDxEntry>();
        let limit = usize::from(head.limit.get());
        let count = usize::from(head.count.get());
        if limit != room {
            return Err(Problem::Value {
                field: "limit",
                value: u64::from(head.limit.get()),
                because: "is not the number of entries that fit into the block",
            });
        }
        Problem::check_range("count", u64::from(head.count.get()), 1, u64::from(head.limit.get()))?;
        let (entries, _) = <[RawDxEntry]>::ref_from_prefix_with_elems(space, count)
            .map_err(|_| short(bytes, offset + count * size_of::<RawDxEntry>()))?;
        Ok(Self { bytes, entries, offset, limit })
    }

    /// Parses an index block below the root.
    pub fn parse_node(bytes: &'a [u8], has_tail: bool) -> Result<Self, Problem> {
        let (node, _) =
            RawDxNode::ref_from_prefix(bytes).map_err(|_| short(bytes, size_of::<RawDxNode>()))?;
        if node.inode.get() != 0 {
            return Err(not_an_index("inode", u64::from(node.inode.get())));
        }
        check_rec_len(node.rec_len, bytes.len(), bytes.len())?;
        Self::parse(bytes, size_of::<RawDxNode>(), has_tail)
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        self.entries.len() == self.limit
    }

    /// Number of entries, at least one.
    #[expect(clippy::len_without_is_empty, reason = "an index block is never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entry `at`.
    pub fn get(&self, at: usize) -> Option<IndexEntry> {
        let raw = self.entries.get(at)?;
        let hash = if at == 0 { 0 } else { raw.hash.get() };
        Some(IndexEntry { hash, block: LogicalBlock(raw.block.get() & BLOCK_MASK) })
    }

    /// All entries, by hash.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> + use<'a> {
        let block = *self;
        (0..block.len()).filter_map(move |at| block.get(at))
    }

    /// Index of the entry for `hash`: the last that does not start after it. Unsorted entries give
    /// a valid index, too.
    pub fn find(&self, hash: MajorHash) -> usize {
        self.entries[1..].partition_point(|entry| entry.hash.get() <= hash.get())
    }

    /// Checks that hashes ascend and, with a seed, the checksum.
    pub fn verify(&self, seed: Option<ChecksumSeed>) -> Result<(), Problem> {
        if let Some(seed) = seed {
            let (stored, computed) = self.checksums(seed)?;
            Problem::check_sum(stored, computed)?;
        }
        let mut previous = 0;
        for entry in self.iter() {
            let value = entry.hash().get();
            if value < previous {
                return Err(Problem::Order {
                    field: "hash",
                    value: u64::from(value),
                    previous: u64::from(previous),
                });
            }
            previous = value;
        }
        Ok(())
    }

    /// Stored and computed checksum: over used entries, then the tail.
    fn checksums(&self, seed: ChecksumSeed) -> Result<(u32, u32), Problem> {
        let tail_at = self.offset + self.limit * size_of::<RawDxEntry>();
        let used = self.offset + size_of_val(self.entries);
        let tail = self.bytes.get(tail_at..).and_then(<[u8]>::first_chunk::<TAIL_SIZE>);
        let (Some(tail), Some(used)) = (tail, self.bytes.get(..used)) else {
            return Err(short(self.bytes, tail_at + TAIL_SIZE));
        };
        let sum = ChecksumSeed(seed.sum(used));
        let [a, b, c, d, ..] = *tail;
        let computed = sum.sum(&[a, b, c, d, 0, 0, 0, 0]);
        Ok((u32_at(tail, 4).unwrap_or_default(), computed))
    }
}

/// The root of an htree.
#[derive(Clone, Copy)]
pub struct IndexRoot<'a> {
    /// The directory's hash function.
    pub hash_version: HashVersion,
    /// Index levels below the root.
    pub indirect_levels: u8,
    /// The root's entries.
    pub entries: IndexBlock<'a>,
}

impl<'a> IndexRoot<'a> {
    /// Parses block 0. `sign`, `large_dir` and `has_tail` (metadata_csum) are the superblock's.
    pub fn parse(bytes: &'a [u8], sign: CharSign, large_dir: bool, has_tail: bool) -> Result<Self, Problem> {
        let (root, _) =
            RawDxRoot::ref_from_prefix(bytes).map_err(|_| short(bytes, size_of::<RawDxRoot>()))?;
        let dot_size = size_of::<RawFakeDirent>();
        check_rec_len(root.dot.rec_len, dot_size, bytes.len())?;
        check_rec_len(root.dotdot.rec_len, bytes.len() - dot_size, bytes.len())?;
        if root.reserved_zero.get() != 0 {
            return Err(not_an_index("reserved_zero", u64::from(root.reserved_zero.get())));
        }
        if root.info_length != 8 {
            return Err(not_an_index("info_length", u64::from(root.info_length)));
        }
        if root.unused_flags & 1 != 0 {
            return Err(Problem::Value {
                field: "unused_flags",
                value: u64::from(root.unused_flags),
                because: "selects an undefined index format",
            });
        }
        let max_levels = MAX_LEVELS + u8::from(large_dir);
        Problem::check_range("indirect_levels", u64::from(root.indirect_levels), 0, u64::from(max_levels))?;
        let hash_version = HashVersion::from_disk(root.hash_version, sign).ok_or(Problem::Value {
            field: "hash_version",
            value: u64::from(root.hash_version),
            because: "is not a known directory hash",
        })?;
        let entries = IndexBlock::parse(bytes, size_of::<RawDxRoot>(), has_tail)?;
        Ok(Self { hash_version, indirect_levels: root.indirect_levels, entries })
    }
}

fn short(bytes: &[u8], need: usize) -> Problem {
    Problem::Short { what: "a directory index block", need, have: bytes.len() }
}

fn not_an_index(field: &'static str, value: u64) -> Problem {
    Problem::Value { field, value, because: "is not valid in a directory index block" }
}

/// In 64 KiB blocks 0 and 65535 mean the whole block.
fn check_rec_len(stored: le::U16, expected: usize, block: usize) -> Result<(), Problem> {
    let stored = stored.get();
    let len = match stored {
        0 | 0xffff if block == 1 << 16 => block,
        len => usize::from(len),
    };
    if len == expected { Ok(()) } else { Err(not_an_index("rec_len", u64::from(stored))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashAlgorithm;
    use proptest::prelude::*;

    /// The first hash is not stored.
    fn build(size: usize, node: bool, has_tail: bool, entries: &[(u32, u32)]) -> Vec<u8> {
        let mut block = vec![0; size];
        let rec_len = |len: usize| u16::try_from(len).unwrap_or(0).to_le_bytes();
        let offset = if node {
            block[4..6].copy_from_slice(&rec_len(size));
            8
        } else {
            block[4..9].copy_from_slice(&[12, 0, 1, 2, b'.']);
            block[0x10..0x12].copy_from_slice(&rec_len(size - 12));
            block[0x12..0x16].copy_from_slice(&[2, 2, b'.', b'.']);
            block[0x1c..0x20].copy_from_slice(&[1, 8, 1, 0]);
            32
        };
        for (at, (hash, target)) in entries.iter().enumerate() {
            let at = offset + at * 8;
            block[at..at + 4].copy_from_slice(&hash.to_le_bytes());
            block[at + 4..at + 8].copy_from_slice(&target.to_le_bytes());
        }
        let limit = (size - offset - if has_tail { 8 } else { 0 }) / 8;
        block[offset..offset + 2].copy_from_slice(&u16::try_from(limit).unwrap().to_le_bytes());
        block[offset + 2..offset + 4].copy_from_slice(&u16::try_from(entries.len()).unwrap().to_le_bytes());
        block
    }

    fn parse_root(bytes: &[u8]) -> Result<IndexRoot<'_>, Problem> {
        IndexRoot::parse(bytes, CharSign::Signed, false, false)
    }

    fn hash(value: u32) -> MajorHash {
        MajorHash::from_raw(value)
    }

    #[test]
    fn a_hash_belongs_to_the_last_entry_that_does_not_start_after_it() {
        let block = build(1024, true, false, &[(0, 1), (0x100, 2), (0x201, 3), (0x300, 0xf000_0004)]);
        let index = IndexBlock::parse_node(&block, false).unwrap();
        let places = [0, 0xfe, 0x100, 0x1fe, 0x200, 0x202, 0x300, 0xffff_fffc].map(|h| index.find(hash(h)));
        assert_eq!(places, [0, 0, 1, 1, 1, 2, 3, 3]);
        assert_eq!(
            index.get(3).unwrap().block,
            LogicalBlock(4),
            "the upper bits of a block number do not count"
        );
        assert_eq!(index.get(4), None);
    }

    #[test]
    fn a_search_continues_in_blocks_with_the_same_hash() {
        let block = build(1024, true, false, &[(0, 1), (0x100, 2), (0x201, 3), (0x300, 4)]);
        let index = IndexBlock::parse_node(&block, false).unwrap();
        assert!(index.get(2).unwrap().continues(hash(0x200)));
        assert!(!index.get(2).unwrap().continues(hash(0x202)));
        assert!(
            !index.get(3).unwrap().continues(hash(0x300)),
            "a block that begins with its hash continues nothing"
        );
    }

    #[test]
    fn a_root_holds_hash_version_and_depth() {
        let block = build(4096, false, true, &[(0, 1), (0x8000_0000, 2)]);
        let root = IndexRoot::parse(&block, CharSign::Unsigned, false, true).unwrap();
        assert_eq!(root.hash_version.algorithm, HashAlgorithm::HalfMd4);
        assert_eq!(root.hash_version.sign, CharSign::Unsigned);
        assert_eq!(root.indirect_levels, 1);
        assert_eq!(root.entries.iter().map(|e| e.block.0).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn blocks_of_64_kib_have_length_0() {
        let block = build(1 << 16, true, true, &[(0, 1)]);
        assert_eq!(IndexBlock::parse_node(&block, true).unwrap().len(), 1);
        let block = build(1 << 16, false, true, &[(0, 1)]);
        assert!(IndexRoot::parse(&block, CharSign::Signed, true, true).is_ok());
    }

    #[test]
    fn a_damaged_header_names_its_field() {
        let good = build(1024, false, false, &[(0, 1)]);
        for (at, value, field) in [
            (0x04, 16, "rec_len"),
            (0x10, 0, "rec_len"),
            (0x18, 1, "reserved_zero"),
            (0x1c, 9, "hash_version"),
            (0x1d, 16, "info_length"),
            (0x1e, 2, "indirect_levels"),
            (0x1f, 1, "unused_flags"),
            (0x20, 0xff, "limit"),
            (0x22, 0, "count"),
            (0x22, 0xff, "count"),
        ] {
            let mut block = good.clone();
            block[at] = value;
            let problem = parse_root(&block).err().expect(field);
            assert!(problem.to_string().starts_with(field), "{problem}");
        }
        assert!(parse_root(&good).is_ok());
    }

    #[test]
    fn hashes_out_of_order_and_wrong_checksums_are_found_by_verify() {
        let block = build(1024, true, false, &[(0, 1), (0x300, 2), (0x200, 3)]);
        let index = IndexBlock::parse_node(&block, false).unwrap();
        assert!(matches!(index.verify(None), Err(Problem::Order { field: "hash", .. })));
        let block = build(1024, true, true, &[(0, 1), (0x300, 2)]);
        let index = IndexBlock::parse_node(&block, true).unwrap();
        assert!(matches!(index.verify(Some(ChecksumSeed(7))), Err(Problem::Checksum { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_and_searches_stay_inside(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
            plausible in any::<bool>(),
            has_tail in any::<bool>(),
            sought in any::<u32>(),
        ) {
            if plausible && bytes.len() >= 64 {
                let head = build(bytes.len(), true, has_tail, &[]);
                bytes[..10].copy_from_slice(&head[..10]);
                bytes[11] = 0;
            }
            let root = IndexRoot::parse(&bytes, CharSign::Signed, true, has_tail).map(|root| root.entries);
            for index in root.into_iter().chain(IndexBlock::parse_node(&bytes, has_tail)) {
                prop_assert!(index.find(hash(sought)) < index.len());
                prop_assert_eq!(index.iter().count(), index.len());
                let _ = index.verify(has_tail.then_some(ChecksumSeed(!0)));
            }
        }

        #[test]
        fn entries_are_read_as_written_and_found_like_by_a_linear_search(
            mut hashes in proptest::collection::vec(any::<u32>(), 1..100),
            node in any::<bool>(),
            has_tail in any::<bool>(),
            sought in any::<u32>(),
        ) {
            hashes.sort_unstable();
            hashes[0] = 0;
            let entries: Vec<_> = hashes.iter().zip(1_u32..).map(|(&hash, block)| (hash, block)).collect();
            let block = build(1024, node, has_tail, &entries);
            let index = if node {
                IndexBlock::parse_node(&block, has_tail).unwrap()
            } else {
                IndexRoot::parse(&block, CharSign::Signed, false, has_tail).unwrap().entries
            };
            prop_assert!(index.verify(None).is_ok());
            prop_assert!(index.iter().map(|e| e.block.0).eq(1..=u32::try_from(hashes.len()).unwrap()));
            let sought = hash(sought);
            let linear = hashes.iter().rposition(|&h| h <= sought.get()).unwrap();
            prop_assert_eq!(index.find(sought), linear);
        }
    }
}
