//! Changes of an htree, from leaf to root.
//!
//! [`split_leaf`] splits a full leaf, [`insert_index`] adds an entry for the new one. If the index
//! block is full, [`split_index`] splits it, or [`grow_root`] adds a level. Each leaves one or two
//! valid blocks, for which [`set_index_checksum`] writes the checksum. Arguments are parsed blocks.

use super::{
    IndexBlock, RawCountLimit, RawDxEntry, RawDxNode, RawDxRoot, RawFakeDirent, TAIL_SIZE, not_an_index,
    short,
};
use crate::dir_entry::stored_rec_len;
use crate::dir_leaf::entry_len;
use crate::hash::MajorHash;
use crate::{BlockSize, ChecksumSeed, LogicalBlock, NewEntry, Problem};
use zerocopy::{FromBytes, IntoBytes, little_endian as le};

const DOT_LEN: usize = size_of::<RawFakeDirent>();
const ENTRY_SIZE: usize = size_of::<RawDxEntry>();
/// `info_length`.
const INFO_LENGTH: u8 = 8;

/// A full leaf's entries and a new one, divided into two leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeafSplit<'a> {
    /// Entries that stay.
    pub low: Vec<NewEntry<'a>>,
    /// Entries of the new leaf.
    pub high: Vec<NewEntry<'a>>,
    /// The new leaf's hash in the index, with bit 0 if `low` ends with the same hash.
    pub hash: u32,
}

/// Divides entries by hash into halves of about equal size. `None`: fewer than two.
pub fn split_leaf<'a>(
    entries: impl IntoIterator<Item = NewEntry<'a>>,
    hash: impl Fn(&[u8]) -> MajorHash,
) -> Option<LeafSplit<'a>> {
    let mut sorted: Vec<_> = entries.into_iter().map(|entry| (hash(entry.name), entry)).collect();
    sorted.sort_by_key(|&(hash, _)| hash);
    let len = |&(_, entry): &(MajorHash, NewEntry<'_>)| entry_len(entry.name.len());
    let half = sorted.iter().map(len).sum::<usize>() / 2;
    let mut before = 0;
    let at = sorted.iter().position(|entry| {
        before += len(entry);
        before > half
    })?;
    // The middle entry goes to the smaller side.
    let middle = sorted.get(at).map_or(0, len);
    let at = if before - half <= middle / 2 { at + 1 } else { at };
    let at = at.clamp(1, sorted.len().checked_sub(1).filter(|&last| last > 0)?);
    let high = sorted.split_off(at);
    let (&(below, _), &(first, _)) = (sorted.last()?, high.first()?);
    let strip = |half: Vec<(MajorHash, NewEntry<'a>)>| half.into_iter().map(|(_, entry)| entry).collect();
    Some(LeafSplit { hash: first.get() | u32::from(below == first), low: strip(sorted), high: strip(high) })
}

/// Initializes a root with one leaf. `dots` are `.` and `..`; `hash_version` is the number on disk.
pub fn init_root(
    bytes: &mut [u8],
    block_size: BlockSize,
    has_tail: bool,
    dots: [NewEntry<'_>; 2],
    hash_version: u8,
    leaf: LogicalBlock,
) -> Result<(), Problem> {
    let all = bytes.len();
    bytes.fill(0);
    let (raw, _) = RawDxRoot::mut_from_prefix(bytes).map_err(|_| not_large(all))?;
    let [dot, dotdot] = dots;
    raw.dot = fake_dirent(&dot, DOT_LEN, block_size);
    raw.dotdot = fake_dirent(&dotdot, all - DOT_LEN, block_size);
    raw.hash_version = hash_version;
    raw.info_length = INFO_LENGTH;
    set_entries(bytes, size_of::<RawDxRoot>(), has_tail, &[RawDxEntry::new(0, leaf)])
}

/// Initializes a node with these blocks and their lowest hashes: ascending, at least one.
pub fn init_index(
    bytes: &mut [u8],
    block_size: BlockSize,
    has_tail: bool,
    below: &[(u32, LogicalBlock)],
) -> Result<(), Problem> {
    let all: Vec<_> = below.iter().map(|&(hash, block)| RawDxEntry::new(hash, block)).collect();
    init_node(bytes, block_size, has_tail, &all)
}

/// Replaces a root's entries; `levels` of index blocks are below.
pub fn fill_root(
    bytes: &mut [u8],
    has_tail: bool,
    levels: u8,
    below: &[(u32, LogicalBlock)],
) -> Result<(), Problem> {
    let len = bytes.len();
    let (raw, _) = RawDxRoot::mut_from_prefix(bytes).map_err(|_| not_large(len))?;
    raw.indirect_levels = levels;
    let all: Vec<_> = below.iter().map(|&(hash, block)| RawDxEntry::new(hash, block)).collect();
    set_entries(bytes, size_of::<RawDxRoot>(), has_tail, &all)
}

/// Whether the root or a node has space for an entry.
pub fn has_index_room(bytes: &[u8], is_root: bool, has_tail: bool) -> Result<bool, Problem> {
    Ok(!entries(bytes, is_root, has_tail)?.is_full())
}

/// Adds an entry after entry `after`; `hash` has its continuation bit.
pub fn insert_index(
    bytes: &mut [u8],
    is_root: bool,
    has_tail: bool,
    after: usize,
    hash: u32,
    block: LogicalBlock,
) -> Result<(), Problem> {
    let index = entries(bytes, is_root, has_tail)?;
    let mut all = index.entries.to_vec();
    Problem::check_range("the index entry's position", wide(after + 1), 1, wide(all.len()))?;
    all.insert(after + 1, RawDxEntry::new(hash, block));
    let offset = index.offset;
    set_entries(bytes, offset, has_tail, &all)
}

/// Moves a node's upper half to block `upper`. Returns its first hash as stored, and the number of
/// entries that stay.
pub fn split_index(
    bytes: &mut [u8],
    upper: &mut [u8],
    block_size: BlockSize,
    has_tail: bool,
) -> Result<(u32, usize), Problem> {
    let index = entries(bytes, false, has_tail)?;
    let (low, high) = index.entries.split_at(index.len() / 2);
    let (low, high) = (low.to_vec(), high.to_vec());
    let (Some(first), false) = (high.first(), low.is_empty()) else {
        return Err(Problem::Range { field: "count", value: wide(index.len()), min: 2, max: u64::MAX });
    };
    let offset = index.offset;
    init_node(upper, block_size, has_tail, &high)?;
    set_entries(bytes, offset, has_tail, &low)?;
    Ok((first.hash.get(), low.len()))
}

/// Adds a level: moves the root's entries to block `child`.
pub fn grow_root(
    bytes: &mut [u8],
    child: &mut [u8],
    block_size: BlockSize,
    has_tail: bool,
    child_at: LogicalBlock,
) -> Result<(), Problem> {
    let all = entries(bytes, true, has_tail)?.entries.to_vec();
    init_node(child, block_size, has_tail, &all)?;
    let len = bytes.len();
    let (raw, _) = RawDxRoot::mut_from_prefix(bytes).map_err(|_| not_large(len))?;
    raw.indirect_levels += 1;
    set_entries(bytes, size_of::<RawDxRoot>(), has_tail, &[RawDxEntry::new(0, child_at)])
}

/// Writes an index block's checksum.
pub fn set_index_checksum(bytes: &mut [u8], is_root: bool, inode_seed: ChecksumSeed) -> Result<(), Problem> {
    let (_, computed) = entries(bytes, is_root, true)?.checksums(inode_seed)?;
    if let Some(stored) = bytes.last_chunk_mut::<4>() {
        *stored = computed.to_le_bytes();
    }
    Ok(())
}

impl RawDxEntry {
    fn new(hash: u32, block: LogicalBlock) -> RawDxEntry {
        RawDxEntry { hash: le::U32::new(hash), block: le::U32::new(block.0) }
    }
}

fn fake_dirent(entry: &NewEntry<'_>, len: usize, block_size: BlockSize) -> RawFakeDirent {
    let mut name = [0; 4];
    name.iter_mut().zip(entry.name).for_each(|(to, from)| *to = *from);
    RawFakeDirent {
        inode: le::U32::new(entry.inode.0),
        rec_len: le::U16::new(stored_rec_len(len, block_size)),
        name_len: u8::try_from(entry.name.len()).unwrap_or(u8::MAX),
        file_type: entry.file_type,
        name,
    }
}

fn init_node(
    bytes: &mut [u8],
    block_size: BlockSize,
    has_tail: bool,
    all: &[RawDxEntry],
) -> Result<(), Problem> {
    bytes.fill(0);
    let head = RawDxNode {
        inode: le::U32::ZERO,
        rec_len: le::U16::new(stored_rec_len(bytes.len(), block_size)),
        name_len: 0,
        file_type: 0,
    };
    head.write_to_prefix(bytes).map_err(|_| not_large(bytes.len()))?;
    set_entries(bytes, size_of::<RawDxNode>(), has_tail, all)
}

fn entries(bytes: &[u8], is_root: bool, has_tail: bool) -> Result<IndexBlock<'_>, Problem> {
    if !is_root {
        return IndexBlock::parse_node(bytes, has_tail);
    }
    let (raw, _) = RawDxRoot::ref_from_prefix(bytes).map_err(|_| short(bytes, size_of::<RawDxRoot>()))?;
    if raw.info_length != INFO_LENGTH {
        return Err(not_an_index("info_length", u64::from(raw.info_length)));
    }
    IndexBlock::parse(bytes, size_of::<RawDxRoot>(), has_tail)
}

/// Entry 0 has no hash.
fn set_entries(bytes: &mut [u8], offset: usize, has_tail: bool, all: &[RawDxEntry]) -> Result<(), Problem> {
    let len = bytes.len();
    let tail = if has_tail { TAIL_SIZE } else { 0 };
    let room = bytes.get_mut(offset..len.saturating_sub(tail)).ok_or(not_large(len))?;
    let (room, _) = room.as_chunks_mut::<ENTRY_SIZE>();
    let limit = room.len();
    Problem::check_range("count", wide(all.len()), 1, wide(limit))?;
    for (to, entry) in room.iter_mut().zip(all) {
        to.copy_from_slice(entry.as_bytes());
    }
    for unused in room.iter_mut().skip(all.len()) {
        unused.fill(0);
    }
    let narrow = |count| u16::try_from(count).unwrap_or(u16::MAX);
    let head = RawCountLimit { limit: le::U16::new(narrow(limit)), count: le::U16::new(narrow(all.len())) };
    if let Some((first, _)) = room.first_mut().and_then(|entry| RawCountLimit::mut_from_prefix(entry).ok()) {
        *first = head;
    }
    Ok(())
}

fn not_large(have: usize) -> Problem {
    Problem::Short { what: "a directory index block", need: size_of::<RawDxRoot>() + ENTRY_SIZE, have }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::IndexRoot;
    use super::*;
    use crate::hash::{CharSign, HashSeed, HashVersion};
    use crate::{Entries, EntriesMut, InodeNumber, leaf_room, set_leaf_checksum, verify_leaf};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const INODES: u32 = 1 << 30;
    const SEED: ChecksumSeed = ChecksumSeed(9);
    const VERSION: u8 = 1;

    fn block_size() -> BlockSize {
        BlockSize::from_log_block_size(0).unwrap()
    }

    fn dots() -> [NewEntry<'static>; 2] {
        [(&b"."[..], 12), (b"..", 2)].map(|(name, inode)| NewEntry {
            name,
            inode: InodeNumber(inode),
            file_type: 2,
        })
    }

    /// A directory in memory.
    struct Directory {
        blocks: Vec<Vec<u8>>,
        has_tail: bool,
        /// Few bits, so that names collide.
        mask: u32,
    }

    impl Directory {
        fn new(has_tail: bool, mask: u32) -> Directory {
            let mut directory = Directory { blocks: vec![vec![0; 1024]; 2], has_tail, mask };
            init_root(&mut directory.blocks[0], block_size(), has_tail, dots(), VERSION, LogicalBlock(1))
                .unwrap();
            directory.area(1).clear();
            directory
        }

        fn hash(&self, name: &[u8]) -> MajorHash {
            let version = HashVersion::from_disk(VERSION, CharSign::Signed).unwrap();
            MajorHash::from_raw(version.hash(name, HashSeed::DEFAULT).unwrap().major.get() & self.mask)
        }

        fn area(&mut self, block: usize) -> EntriesMut<'_> {
            let room = leaf_room(block_size(), self.has_tail);
            EntriesMut::new(&mut self.blocks[block][..room], block_size(), INODES)
        }

        fn root(&self) -> IndexRoot<'_> {
            IndexRoot::parse(&self.blocks[0], CharSign::Signed, true, self.has_tail).unwrap()
        }

        fn index(&self, block: usize) -> IndexBlock<'_> {
            if block == 0 {
                return self.root().entries;
            }
            IndexBlock::parse_node(&self.blocks[block], self.has_tail).unwrap()
        }

        /// Index blocks and positions from the root, and the leaf.
        fn path_to(&self, hash: MajorHash) -> (Vec<(usize, usize)>, usize) {
            let mut path = Vec::new();
            let mut block = 0;
            for _ in 0..=self.root().indirect_levels {
                let at = self.index(block).find(hash);
                path.push((block, at));
                block = usize::try_from(self.index(block).get(at).unwrap().block.0).unwrap();
            }
            (path, block)
        }

        fn insert(&mut self, name: &[u8], inode: u32) {
            let new = NewEntry { name, inode: InodeNumber(inode), file_type: 1 };
            let hash = self.hash(name);
            let (path, leaf) = self.path_to(hash);
            if self.area(leaf).insert(&new).unwrap() {
                return;
            }
            let old = self.blocks[leaf].clone();
            let room = leaf_room(block_size(), self.has_tail);
            let entries = Entries::new(&old[..room], block_size(), INODES).map(|entry| entry.unwrap().into());
            let split = split_leaf(entries.chain([new]), |name| self.hash(name)).unwrap();
            self.blocks.push(vec![0; 1024]);
            let upper = self.blocks.len() - 1;
            assert!(self.area(leaf).fill(&split.low));
            assert!(self.area(upper).fill(&split.high));
            self.enter(path, split.hash, upper);
        }

        /// Adds a block after the last position of `path`.
        fn enter(&mut self, mut path: Vec<(usize, usize)>, hash: u32, block: usize) {
            let (index, at) = path.pop().unwrap();
            let logical = |block| LogicalBlock(u32::try_from(block).unwrap());
            if has_index_room(&self.blocks[index], index == 0, self.has_tail).unwrap() {
                let bytes = &mut self.blocks[index];
                return insert_index(bytes, index == 0, self.has_tail, at, hash, logical(block)).unwrap();
            }
            let mut fresh = vec![0; 1024];
            let new = self.blocks.len();
            if index == 0 {
                grow_root(&mut self.blocks[0], &mut fresh, block_size(), self.has_tail, logical(new))
                    .unwrap();
                self.blocks.push(fresh);
                return self.enter(vec![(0, 0), (new, at)], hash, block);
            }
            let (first, stay) =
                split_index(&mut self.blocks[index], &mut fresh, block_size(), self.has_tail).unwrap();
            self.blocks.push(fresh);
            let (index, at) = if at < stay { (index, at) } else { (new, at - stay) };
            insert_index(&mut self.blocks[index], false, self.has_tail, at, hash, logical(block)).unwrap();
            self.enter(path, first, new);
        }

        /// Checks all blocks. Returns the names in index order.
        fn verified(&mut self) -> BTreeMap<Vec<u8>, u32> {
            let mut names = BTreeMap::new();
            let levels = self.root().indirect_levels;
            let last = self.verify_below(0, levels, &mut names, 0);
            assert!(last < u32::MAX);
            names
        }

        /// Checks a subtree whose hashes start at `least`. Returns its highest hash.
        fn verify_below(
            &mut self,
            block: usize,
            levels: u8,
            names: &mut BTreeMap<Vec<u8>, u32>,
            mut least: u32,
        ) -> u32 {
            if self.has_tail {
                set_index_checksum(&mut self.blocks[block], block == 0, SEED).unwrap();
            }
            self.index(block).verify(self.has_tail.then_some(SEED)).unwrap();
            let entries: Vec<_> = self.index(block).iter().collect();
            for (n, entry) in entries.into_iter().enumerate() {
                if n > 0 {
                    assert!(
                        entry.hash().get() >= least
                            && (entry.is_continuation() || entry.hash().get() > least)
                    );
                    least = entry.hash().get();
                }
                let child = usize::try_from(entry.block.0).unwrap();
                least = if levels > 0 {
                    self.verify_below(child, levels - 1, names, least)
                } else {
                    self.verify_leaf(child, names, least)
                };
            }
            least
        }

        fn verify_leaf(&mut self, block: usize, names: &mut BTreeMap<Vec<u8>, u32>, least: u32) -> u32 {
            let room = leaf_room(block_size(), self.has_tail);
            if self.has_tail {
                set_leaf_checksum(&mut self.blocks[block], SEED);
                verify_leaf(&self.blocks[block], SEED).unwrap();
            }
            let mut greatest = least;
            for entry in Entries::new(&self.blocks[block][..room], block_size(), INODES) {
                let entry = entry.unwrap();
                let hash = self.hash(entry.name).get();
                assert!(hash >= least);
                greatest = greatest.max(hash);
                assert!(names.insert(entry.name.to_vec(), entry.inode.0).is_none());
            }
            greatest
        }
    }

    #[test]
    fn an_index_grows_to_three_levels_and_keeps_every_name() {
        for has_tail in [false, true] {
            let mut directory = Directory::new(has_tail, u32::MAX);
            let mut map = BTreeMap::new();
            for n in 0..80_000_u32 {
                let name = format!("{n:>120}").into_bytes();
                directory.insert(&name, n + 1);
                map.insert(name, n + 1);
            }
            assert_eq!(directory.root().indirect_levels, 2);
            assert_eq!(directory.verified(), map);
        }
    }

    #[test]
    fn one_entry_is_not_split_and_entries_of_one_hash_are() {
        let [dot, dotdot] = dots();
        assert_eq!(split_leaf([dot], |_| MajorHash::from_raw(8)), None);
        let split = split_leaf([dot, dotdot], |_| MajorHash::from_raw(8)).unwrap();
        assert_eq!((split.low, split.high, split.hash), (vec![dot], vec![dotdot], 9));
    }

    #[test]
    fn a_full_block_takes_no_entry_and_a_root_of_one_leaf_is_a_root() {
        let mut directory = Directory::new(true, u32::MAX);
        assert_eq!(directory.root().indirect_levels, 0);
        for n in 1..=122 {
            assert!(has_index_room(&directory.blocks[0], true, true).unwrap());
            insert_index(&mut directory.blocks[0], true, true, 0, 2, LogicalBlock(n)).unwrap();
        }
        assert!(!has_index_room(&directory.blocks[0], true, true).unwrap());
        let before = directory.blocks[0].clone();
        assert!(insert_index(&mut directory.blocks[0], true, true, 0, 2, LogicalBlock(5)).is_err());
        assert_eq!(directory.blocks[0], before);
    }

    proptest! {
        #[test]
        fn an_indexed_directory_has_the_names_of_a_map(
            names in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..256), 1..300),
            has_tail in any::<bool>(),
            mask in prop_oneof![Just(u32::MAX), Just(0xFF00_0000), Just(0x3000_0000), Just(0)],
        ) {
            let mut directory = Directory::new(has_tail, mask);
            let mut map = BTreeMap::new();
            for (name, inode) in names.into_iter().zip(1..) {
                directory.insert(&name, inode);
                map.insert(name, inode);
            }
            prop_assert_eq!(directory.verified(), map);
        }

        #[test]
        fn any_bytes_are_changed_or_refused(
            mut bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0)], 0..1030),
            plausible in any::<bool>(),
            is_root in any::<bool>(),
            has_tail in any::<bool>(),
            after in 0_usize..130,
        ) {
            if plausible {
                bytes.resize(1024, 0);
                let head = Directory::new(has_tail, 0).blocks.swap_remove(0);
                bytes[..0x22].copy_from_slice(&head[..0x22]);
            }
            let mut other = vec![0; bytes.len()];
            let _ = has_index_room(&bytes, is_root, has_tail);
            let _ = insert_index(&mut bytes.clone(), is_root, has_tail, after, 5, LogicalBlock(1));
            let _ = split_index(&mut bytes.clone(), &mut other, block_size(), has_tail);
            let _ = grow_root(&mut bytes.clone(), &mut other, block_size(), has_tail, LogicalBlock(1));
            let _ = set_index_checksum(&mut bytes, is_root, SEED);
        }
    }
}
