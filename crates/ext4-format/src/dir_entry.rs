//! Directory entries and leaf blocks. Source: kernel document `directory.rst`.

use crate::raw::raw_layout;
use crate::{BlockSize, ChecksumSeed, InodeNumber, LogicalBlock, Problem, crc32c_before};
use std::ops::Range;
use zerocopy::{FromBytes, little_endian as le};

pub(crate) const HEADER_LEN: usize = 8;
const TAIL_LEN: usize = 12;
/// Header, and a name of 1 to 4 bytes.
const MIN_ENTRY_LEN: usize = 12;
const TAIL_FILE_TYPE: u8 = 0xDE;

raw_layout! {
    /// `struct ext4_dir_entry_2` without the name.
    RawEntry, size 0x8 {
        0x0 inode: le::U32,
        0x4 rec_len: le::U16,
        0x6 name_len: u8,
        0x7 file_type: u8,
    }
}

raw_layout! {
    /// `struct ext4_dir_entry_tail`: a leaf's checksum, disguised as an unused entry.
    RawTail, size 0xC {
        0x0 det_reserved_zero1: le::U32,
        0x4 det_rec_len: le::U16,
        0x6 det_reserved_zero2: u8,
        0x7 det_reserved_ft: u8,
        0x8 det_checksum: le::U32,
    }
}

impl RawTail {
    /// Whether it looks like an unused entry.
    fn is_disguised(&self) -> bool {
        self.det_reserved_zero1.get() == 0
            && self.det_rec_len.get() == 12
            && self.det_reserved_zero2 == 0
            && self.det_reserved_ft == TAIL_FILE_TYPE
    }
}

/// A used entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// 1 to 255 bytes; may contain `/` and NUL.
    pub name: &'a [u8],
    /// Inode number, in range.
    pub inode: InodeNumber,
    /// `file_type`; meaningless without filetype.
    pub file_type: u8,
    /// Offset in the block.
    pub start: usize,
    /// Offset of the next entry.
    pub end: usize,
}

impl Entry<'_> {
    /// Range of the name in the block.
    #[inline]
    pub fn name_range(&self) -> Range<usize> {
        let start = self.start + HEADER_LEN;
        start..start + self.name.len()
    }
}

/// An entry to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEntry<'a> {
    /// 1 to 255 bytes.
    pub name: &'a [u8],
    /// Inode number.
    pub inode: InodeNumber,
    /// 0 without filetype; 1 regular, 2 directory, 3 character device, 4 block device, 5 pipe, 6
    /// socket, 7 symbolic link.
    pub file_type: u8,
}

/// The used entries of a leaf block or of inline data. Stops after an error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    block_size: BlockSize,
    inodes_count: u32,
}

impl<'a> Entries<'a> {
    /// Entries in `bytes`.
    pub fn new(bytes: &'a [u8], block_size: BlockSize, inodes_count: u32) -> Entries<'a> {
        Entries { bytes, at: 0, block_size, inodes_count }
    }

    /// Starts at byte `start`, which must be an entry.
    pub fn starting_at(self, start: usize) -> Entries<'a> {
        Entries { at: start, ..self }
    }

    /// Skips valid entries with less than `need` spare bytes, except the last. A fast path of
    /// insertions, which scan the whole leaf.
    pub(crate) fn skip_full(&mut self, need: usize) {
        if self.block_size.log2() == 16 {
            return;
        }
        let Some(last) = self.bytes.len().checked_sub(MIN_ENTRY_LEN) else { return };
        while let Some(Ok((raw, _))) = self.bytes.get(self.at..).map(RawEntry::ref_from_prefix) {
            let (len, name_len) = (usize::from(raw.rec_len.get()), usize::from(raw.name_len));
            let used = (HEADER_LEN + name_len).next_multiple_of(4);
            let is_full = used <= len && len - used < need;
            let is_sound = len.is_multiple_of(4) && name_len > 0 && self.at + len <= last;
            if !(is_full && is_sound && (1..=self.inodes_count).contains(&raw.inode.get())) {
                return;
            }
            self.at += len;
        }
    }

    /// Parses the entry at `self.at`; `None` if unused.
    #[inline]
    pub(crate) fn parse(&mut self) -> Result<Option<Entry<'a>>, Problem> {
        let start = self.at;
        let left = self.bytes.get(start..).unwrap_or_default();
        let short = |need| Problem::Short { what: "a directory entry", need, have: left.len() };
        let (raw, rest) = RawEntry::ref_from_prefix(left).map_err(|_| short(HEADER_LEN))?;
        let len = rec_len(raw.rec_len.get(), self.block_size);
        let name_len = usize::from(raw.name_len);
        let need = (HEADER_LEN + name_len).max(MIN_ENTRY_LEN);
        check_rec_len(len, need, left.len())?;
        self.at = start + len;
        let inode = raw.inode.get();
        if inode == 0 {
            return Ok(None);
        }
        Problem::check_range("inode", u64::from(inode), 1, u64::from(self.inodes_count))?;
        Problem::check_range("name_len", u64::from(raw.name_len), 1, 255)?;
        let name = rest.get(..name_len).ok_or(short(need))?;
        Ok(Some(Entry { name, inode: InodeNumber(inode), file_type: raw.file_type, start, end: self.at }))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Problem>;

    // Searches from other crates scan half a leaf on average.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            match self.parse() {
                Ok(None) => {}
                Ok(Some(entry)) => return Some(Ok(entry)),
                Err(problem) => {
                    self.at = self.bytes.len();
                    return Some(Err(problem));
                }
            }
        }
        None
    }
}

/// In 64 KiB blocks two bits are moved, and two values mean the whole block.
fn rec_len(stored: u16, block_size: BlockSize) -> usize {
    let stored_wide = usize::from(stored);
    match stored {
        _ if block_size.log2() < 16 => stored_wide,
        0 | u16::MAX => block_size.in_memory(),
        _ => stored_wide & 0xFFFC | (stored_wide & 3) << 16,
    }
}

/// Inverse of [`rec_len`].
pub(crate) fn stored_rec_len(len: usize, block_size: BlockSize) -> u16 {
    if block_size.log2() == 16 && len == block_size.in_memory() {
        return u16::MAX;
    }
    // The second term is zero below 64 KiB.
    u16::try_from(len & 0xFFFC | len >> 16 & 3).unwrap_or(u16::MAX)
}

fn check_rec_len(len: usize, need: usize, left: usize) -> Result<(), Problem> {
    let wide = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    Problem::check_range("rec_len", wide(len), wide(need), wide(left))?;
    let because = match left - len {
        _ if !len.is_multiple_of(4) => "is not a multiple of 4",
        0 | MIN_ENTRY_LEN.. => return Ok(()),
        _ => "leaves too few bytes for an entry before the end of the block",
    };
    Err(Problem::Value { field: "rec_len", value: wide(len), because })
}

/// Kind of a directory block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockRole {
    /// Entries, maybe with a checksum.
    Leaf,
    /// htree index, disguised as an unused entry, or in block 0 as `.` and `..`.
    Index,
}

/// `indexed`: the directory has an htree.
pub fn block_role(bytes: &[u8], block: LogicalBlock, indexed: bool, block_size: BlockSize) -> BlockRole {
    let whole = RawEntry::ref_from_prefix(bytes).is_ok_and(|(first, _)| {
        first.inode.get() == 0 && rec_len(first.rec_len.get(), block_size) == block_size.in_memory()
    });
    if indexed && (block.0 == 0 || whole) { BlockRole::Index } else { BlockRole::Leaf }
}

/// Writes an entry over `at..end` of a leaf block, except the bytes after its name. Without an
/// inode it is unused. Has no effect if it does not fit. `end` is a multiple of 4, at most 256 KiB
/// after `at`.
pub fn write_entry(
    bytes: &mut [u8],
    at: usize,
    end: usize,
    entry: Option<NewEntry<'_>>,
    block_size: BlockSize,
) {
    let Some((raw, rest)) = bytes.get_mut(at..end).and_then(|bytes| RawEntry::mut_from_prefix(bytes).ok())
    else {
        return;
    };
    raw.rec_len.set(stored_rec_len(end - at, block_size));
    let Some(entry) = entry else {
        (raw.inode, raw.name_len, raw.file_type) = (le::U32::new(0), 0, 0);
        return;
    };
    let (Some(place), Ok(name_len)) = (rest.get_mut(..entry.name.len()), u8::try_from(entry.name.len()))
    else {
        return;
    };
    place.copy_from_slice(entry.name);
    raw.inode.set(entry.inode.0);
    raw.name_len = name_len;
    raw.file_type = entry.file_type;
}

/// Bytes of a leaf block for entries.
pub fn leaf_room(block_size: BlockSize, has_checksums: bool) -> usize {
    block_size.in_memory() - if has_checksums { TAIL_LEN } else { 0 }
}

/// Writes a leaf block's checksum.
pub fn set_leaf_checksum(bytes: &mut [u8], inode_seed: ChecksumSeed) {
    let at = bytes.len().saturating_sub(TAIL_LEN);
    let (summed, tail) = bytes.split_at_mut(at);
    let Ok(tail) = RawTail::mut_from_bytes(tail) else { return };
    tail.det_reserved_zero1.set(0);
    tail.det_rec_len.set(12);
    (tail.det_reserved_zero2, tail.det_reserved_ft) = (0, TAIL_FILE_TYPE);
    tail.det_checksum.set(inode_seed.sum(summed));
}

/// Updates a leaf's valid checksum by [`EntriesMut::sum_change`](crate::EntriesMut::sum_change).
pub fn update_leaf_checksum(bytes: &mut [u8], sum_change: u32) {
    let at = bytes.len().saturating_sub(TAIL_LEN);
    if let Some(Ok(tail)) = bytes.get_mut(at..).map(RawTail::mut_from_bytes) {
        tail.det_checksum.set(tail.det_checksum.get() ^ sum_change);
    }
}

/// The seed with which the checksum at the end of a block is right: that of the directory, if the
/// block is a leaf of one. `None` if the block does not end as a leaf does.
pub fn leaf_seed(bytes: &[u8]) -> Option<ChecksumSeed> {
    let (summed, tail) = bytes.split_at_checked(bytes.len().checked_sub(TAIL_LEN)?)?;
    let tail = RawTail::ref_from_bytes(tail).ok().filter(|tail| tail.is_disguised())?;
    Some(ChecksumSeed(crc32c_before(tail.det_checksum.get(), summed)))
}

/// Verifies a leaf block's checksum.
pub fn verify_leaf(bytes: &[u8], inode_seed: ChecksumSeed) -> Result<(), Problem> {
    let missing = Problem::Missing { what: "the checksum at the end of the directory block" };
    let (summed, tail) = bytes.split_at_checked(bytes.len().saturating_sub(TAIL_LEN)).ok_or(missing)?;
    let tail = RawTail::ref_from_bytes(tail).map_err(|_| missing)?;
    if !tail.is_disguised() {
        return Err(missing);
    }
    Problem::check_sum(tail.det_checksum.get(), inode_seed.sum(summed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;

    fn block_size() -> BlockSize {
        BlockSize::from_log_block_size(0).unwrap()
    }

    fn entry(inode: u32, rec_len: u16, name: &[u8]) -> Vec<u8> {
        let mut bytes = inode.to_le_bytes().to_vec();
        bytes.extend_from_slice(&rec_len.to_le_bytes());
        bytes.extend_from_slice(&[u8::try_from(name.len()).unwrap(), 1]);
        bytes.extend_from_slice(name);
        bytes.resize(usize::from(rec_len).max(bytes.len()), 0);
        bytes
    }

    fn names(bytes: &[u8]) -> Result<Vec<&[u8]>, Problem> {
        Entries::new(bytes, block_size(), KIB).map(|entry| entry.map(|entry| entry.name)).collect()
    }

    #[test]
    fn unused_entries_are_skipped() {
        let bytes = [entry(5, 12, b"a"), entry(0, 16, b"gone"), entry(6, 24, b"last")].concat();
        assert_eq!(names(&bytes).unwrap(), [b"a".as_slice(), b"last"]);
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        for bytes in [
            entry(5, 0, b""),
            entry(5, 8, b"a"),
            entry(5, 12, b"too long"),
            [entry(5, 12, b"a"), entry(5, 40, b"b")].concat()[..32].to_vec(),
            entry(5, 13, b"a"),
            [entry(5, 12, b"a"), vec![0; 8]].concat(),
            entry(KIB + 1, 12, b"a"),
            entry(5, 12, b""),
        ] {
            assert!(names(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn lengths_in_64_kib_blocks_move_two_bits() {
        let big = BlockSize::from_log_block_size(6).unwrap();
        assert_eq!(rec_len(0xFFFF, big), 65536);
        assert_eq!(rec_len(0, big), 65536);
        assert_eq!(rec_len(12, big), 12);
        assert_eq!(rec_len(0xFFFC, big), 65532);
        for len in [12, 4096, 65532, 65536] {
            assert_eq!(rec_len(stored_rec_len(len, big), big), len);
        }
    }

    #[test]
    fn a_written_leaf_lists_its_entries_with_a_valid_checksum() {
        let mut block = vec![0; 1024];
        let end = leaf_room(block_size(), true);
        let entry = |name, inode| Some(NewEntry { name, inode: InodeNumber(inode), file_type: 2 });
        write_entry(&mut block, 0, 12, entry(b".", 2), block_size());
        write_entry(&mut block, 12, 40, None, block_size());
        write_entry(&mut block, 40, end, entry(b"lost+found", 11), block_size());
        set_leaf_checksum(&mut block, ChecksumSeed(3));
        assert_eq!(names(&block[..end]).unwrap(), [b".".as_slice(), b"lost+found"]);
        assert_eq!(verify_leaf(&block, ChecksumSeed(3)), Ok(()));
        assert!(verify_leaf(&block, ChecksumSeed(4)).is_err());
        assert_eq!(leaf_seed(&block), Some(ChecksumSeed(3)));
        assert_eq!(leaf_seed(&block[..1000]), None);
    }
}
