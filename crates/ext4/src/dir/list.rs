//! Listings, in order of byte position or of hash.
//!
//! A listing may come in parts; its cookie names the last reported entry. In a read-only file
//! system that is a byte position. In a writable one splits and packing move names, so indexed
//! directories are listed in hash order, the order of their leaves. A directory of one block, which
//! may become indexed, is sorted.
//!
//! # Hash cookies
//! Bit 62 marks one. Below it are 31 bits of the index hash and 31 bits of a second hash. Names
//! that agree in both are ordered by name and numbered on from there: none is lost or repeated
//! unless one of *those* is removed between two parts. A name in a leaf of other hashes (damage) is
//! listed with that leaf.

use crate::dir::format::Each;
use crate::dir::lookup::HtreePath;
use crate::inode::Snapshot;
use crate::map::MapCache;
use crate::read_ahead::merge_runs;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_bufcache::{Buffer, First};
use dentree_ext4_format::hash::{HashAlgorithm, HashVersion, MajorHash, NameHash, half_md4_batch};
use dentree_ext4_format::{Compat, Entry, InodeFlags, LogicalBlock, Problem};
use dentree_vfs::{DirEntry, Ino, ReaddirStart};
use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

mod order;

use order::{HashOrder, major_and_number};

const BY_HASH: u64 = 1 << 62;
const LOW_MAX: u32 = (1 << 31) - 1;

/// Leaves in flight for a listing larger than its share of the cache: twice the requests that a
/// device takes at once, as each leaf may need its own.
const LEAVES_AHEAD: usize = 128;

/// Leaves that share a hash are sorted together.
struct Batch {
    leaves: Vec<(Buffer, Place)>,
    /// Ends at the first hash of the next leaf.
    hashes: Range<u32>,
}

const MANY: usize = 128;

impl Ext4 {
    /// Omits `.` and `..`.
    pub(crate) fn readdir(
        &self,
        dir: &Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let dir = &*dir.snapshot();
        let after = match start {
            ReaddirStart::First => None,
            ReaddirStart::After(cookie) => Some(cookie),
        };
        let hash = self.nokey_hash_to_show(dir)?;
        self.list_from(dir, after, &mut |entry, cookie| self.report(dir, hash, &entry, cookie, each))
    }

    /// Lists in order of position. Passes what cannot be read to `damaged`.
    pub(crate) fn readdir_past_damage(
        &self,
        dir: &Node,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let dir = &*dir.snapshot();
        let hash = self.nokey_hash_to_show(dir)?;
        let mut misnamed = Vec::new();
        let mut show = |entry: Entry<'_>, end| {
            let shown = self.report(dir, hash, &entry, end, each);
            // A bad entry does not hide those after it.
            Ok(shown.unwrap_or_else(|error| {
                misnamed.push(error);
                ControlFlow::Continue(())
            }))
        };
        self.each_entry_past_damage(dir, 0, &mut show, &mut |error| match error {
            Error::Corrupt { .. } | Error::Io { .. } => {
                damaged(error);
                Ok(())
            }
            other => Err(other),
        })?;
        misnamed.into_iter().for_each(damaged);
        Ok(())
    }

    pub(crate) fn list_from(&self, dir: &Snapshot, after: Option<u64>, each: &mut Each<'_>) -> Result<()> {
        // A number from no listing may lack the mark: it precedes all hashes.
        let by_hash = self.writer.is_some() || after.is_some_and(|cookie| cookie & BY_HASH != 0);
        match self.listing_hash(dir).filter(|_| by_hash) {
            Some(version) => {
                let after = after.filter(|cookie| cookie & BY_HASH != 0).unwrap_or(0);
                self.each_by_hash(dir, version, after, each)
            }
            None => self.each_entry(dir, after.unwrap_or(0) & !BY_HASH, each),
        }
    }

    /// `None`: names stay in place.
    fn listing_hash(&self, dir: &Snapshot) -> Option<HashVersion> {
        if dir.has(InodeFlags::ENCRYPT) || !self.sb.compat.has(Compat::DIR_INDEX) {
            return None;
        }
        let is_short =
            dir.has(InodeFlags::INLINE_DATA) || dir.inode.size == u64::from(self.sb.block_size.bytes());
        let version = if self.is_indexed(dir) && !dir.has(InodeFlags::INLINE_DATA) {
            // Without a readable root, list as if there were no index.
            self.path_by_hash(dir, |_| Some(MajorHash::default())).ok()??.version
        } else if is_short {
            HashVersion::from_disk(self.sb.default_hash_version, self.hash_sign())?
        } else {
            return None;
        };
        Some(version).filter(|version| version.algorithm != HashAlgorithm::SipHash)
    }

    fn each_by_hash(
        &self,
        dir: &Snapshot,
        version: HashVersion,
        after: u64,
        each: &mut Each<'_>,
    ) -> Result<()> {
        let everything = 0..u32::MAX;
        let order = &mut HashOrder::default();
        if dir.has(InodeFlags::INLINE_DATA) {
            let place = dir.place(Structure::InlineData);
            let leaves = self.inline_entries(dir)?;
            let leaves = leaves.iter().map(|&(_, bytes)| (bytes, place));
            return self.each_sorted(dir, version, leaves, order.restart(everything), after, each).map(drop);
        }
        if !self.is_indexed(dir) {
            let Some((buffer, place)) = self.dir_leaf(dir, LogicalBlock(0), |_| None)? else { return Ok(()) };
            let leaves = std::iter::once((&*buffer, place));
            return self.each_sorted(dir, version, leaves, order.restart(everything), after, each).map(drop);
        }
        let from = MajorHash::from_raw(hash_of(after));
        let Some(path) = self.path_by_hash(dir, |_| Some(from))? else { return Ok(()) };
        let (mut path, mut maps) = (Some(path), MapCache::default());
        for _ in 0..self.dir_blocks(dir)? {
            let Some(batch) = self.next_batch(dir, &mut path, &mut maps)? else { return Ok(()) };
            let leaves = batch.leaves.iter().map(|(buffer, place)| (&**buffer, *place));
            if self.each_sorted(dir, version, leaves, order.restart(batch.hashes), after, each)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The path's leaf and those that continue its last hash.
    fn next_batch(
        &self,
        dir: &Snapshot,
        next: &mut Option<HtreePath>,
        maps: &mut MapCache,
    ) -> Result<Option<Batch>> {
        let Some(mut path) = next.take() else { return Ok(None) };
        let mut leaves = Vec::new();
        let first = path.leaf.hash().get();
        let blocks = self.dir_blocks(dir)?;
        let end = loop {
            leaves.push(self.read_listed_leaf(dir, &path, blocks, maps)?);
            let is_more = self.advance(dir, &mut path, &mut Vec::new())?;
            if !is_more || u32::try_from(leaves.len()).unwrap_or(u32::MAX) >= blocks {
                break u32::MAX;
            }
            if !path.leaf.is_continuation() {
                let end = path.leaf.hash().get();
                *next = Some(path);
                break end;
            }
        };
        Ok(Some(Batch { leaves, hashes: first..end }))
    }

    /// Reads ahead the directory if it fits into its share of the cache, else the leaves that
    /// follow in the index.
    fn read_listed_leaf(
        &self,
        dir: &Snapshot,
        path: &HtreePath,
        blocks: u32,
        maps: &mut MapCache,
    ) -> Result<(Buffer, Place)> {
        let block = path.leaf.block;
        let LogicalBlock(at) = block;
        let most = u32::try_from(self.cache_blocks() / 4).unwrap_or(u32::MAX).max(1);
        let ahead = |first| {
            let runs = match first {
                First::Miss if blocks <= most => vec![0..at, at + 1..blocks],
                First::Use if blocks <= most => Vec::new(),
                _ => self.leaves_ahead(path, first, most),
            };
            let runs: Vec<_> = runs.into_iter().filter(|run| !run.is_empty()).collect();
            (!runs.is_empty()).then_some(runs)
        };
        let mapping = || maps.find(self, dir, block, || self.leaves_below(path));
        match self.dir_leaf_at(dir, block, mapping, ahead)? {
            Some(leaf) => Ok(leaf),
            None => self.indexed_leaf(dir, block),
        }
    }

    fn leaves_below(&self, path: &HtreePath) -> Vec<Range<u64>> {
        let Some(Ok(index)) = path.frames.last().map(|frame| self.parse_index(frame)) else {
            return Vec::new();
        };
        let mut leaves: Vec<_> = (0..).map_while(|at| index.get(at)).map(|entry| entry.block.0).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves.into_iter().map(|block| u64::from(block)..u64::from(block) + 1).collect()
    }

    /// Leaves not yet requested, and the next index block if they are its last.
    fn leaves_ahead(&self, path: &HtreePath, first: First, most: u32) -> Vec<Range<u32>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let stride = LEAVES_AHEAD.min(most);
        let Some((frame, above)) = path.frames.split_last() else { return Vec::new() };
        let behind = match first {
            First::Miss => 1,
            First::Use if frame.at.is_multiple_of((stride / 2).max(1)) => stride / 2,
            First::Use => return Vec::new(),
        };
        let Ok(index) = self.parse_index(frame) else { return Vec::new() };
        let from = frame.at + behind;
        let mut blocks: Vec<u32> =
            (from..from + stride).map_while(|at| index.get(at)).map(|entry| entry.block.0).collect();
        if blocks.len() < stride
            && let Some(above) = above.last()
            && let Some(next) = self.parse_index(above).ok().and_then(|index| index.get(above.at + 1))
        {
            blocks.push(next.block.0);
        }
        blocks.sort_unstable();
        merge_runs(blocks.into_iter().map(|block| block..block.saturating_add(1)), 0)
    }

    fn nokey_hash_to_show(&self, dir: &Snapshot) -> Result<Option<HashVersion>> {
        if dir.has(InodeFlags::ENCRYPT) { self.nokey_hash_version(dir) } else { Ok(None) }
    }

    fn report(
        &self,
        dir: &Snapshot,
        hash: Option<HashVersion>,
        entry: &Entry<'_>,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if entry.name == b"." || entry.name == b".." {
            return Ok(ControlFlow::Continue(()));
        }
        let name = if dir.has(InodeFlags::ENCRYPT) {
            Cow::Owned(self.nokey_name(entry.name, hash))
        } else {
            Cow::Borrowed(entry.name)
        };
        check_name(&name).map_err(|problem| dir.place(Structure::DirectoryEntry).corrupt(problem))?;
        let ino = Ino(u64::from(entry.inode.0));
        Ok(each(DirEntry { name: &name, ino, kind: self.kind_of(entry), cookie }))
    }

    fn each_sorted<'a>(
        &self,
        dir: &Snapshot,
        version: HashVersion,
        leaves: impl Iterator<Item = (&'a [u8], Place)>,
        order: &mut HashOrder,
        after: u64,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut entries = Vec::with_capacity(MANY);
        for (bytes, place) in leaves {
            let first = entries.len();
            for entry in self.entries(bytes) {
                entries.push(entry.map_err(|problem| place.corrupt(problem))?);
            }
            self.hash_all(dir, version, bytes, entries.get(first..).unwrap_or_default(), order);
        }
        order.sort(&entries);
        let HashOrder { keys, lows, .. } = order;
        let mut previous = None;
        for &mut key in keys {
            let (major, at) = major_and_number(key);
            let (Some(&entry), Some(&low)) = (entries.get(at), lows.get(at)) else { continue };
            let low = match previous {
                Some((before, least)) if before == major => low.max(least),
                _ => low,
            };
            previous = Some((major, low.saturating_add(1).min(LOW_MAX)));
            let cookie = cookie_of(major, low);
            if cookie > after && each(entry, cookie)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn hash_all(
        &self,
        dir: &Snapshot,
        version: HashVersion,
        bytes: &[u8],
        entries: &[Entry<'_>],
        order: &mut HashOrder,
    ) {
        let mut digests = std::mem::take(&mut order.digests);
        digests.clear();
        let names = entries.iter().map(Entry::name_range);
        half_md4_batch(bytes, names, version.sign, self.hash_seed(), &mut digests);
        // Mostly one digest yields both hashes.
        let is_one = version.algorithm == HashAlgorithm::HalfMd4 && !self.is_casefolded(dir);
        for (entry, &other) in entries.iter().zip(&digests) {
            let (major, low) = match entry.name {
                b"." | b".." => (0, 0),
                _ if is_one => (other.major.get(), low_of(other)),
                name => (self.entry_hash(dir, name, version).get(), low_of(other)),
            };
            order.add(major, low);
        }
        order.digests = digests;
    }
}

/// 0: `.` and `..`.
fn low_of(other: NameHash) -> u32 {
    (other.minor >> 1).max(1)
}

fn cookie_of(major: u32, low: u32) -> u64 {
    BY_HASH | u64::from(major >> 1) << 31 | u64::from(low)
}

fn hash_of(cookie: u64) -> u32 {
    u32::try_from((cookie & !BY_HASH) >> 31).unwrap_or(0) << 1
}

/// Such a name fits no path and could mislead a copying program.
#[inline]
fn check_name(name: &[u8]) -> Result<(), Problem> {
    if has_separator(name) { Err(separator_problem(name)) } else { Ok(()) }
}

#[cold]
fn separator_problem(name: &[u8]) -> Problem {
    let value = name.iter().copied().find(|&byte| is_separator(byte)).unwrap_or_default();
    let because = "no name may contain (47 is `/`)";
    Problem::Value { field: "a byte of a name", value: u64::from(value), because }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, 0 | b'/')
}

/// NUL or `/`, eight bytes at a time: byte by byte it took a quarter of a listing's time.
#[inline]
fn has_separator(name: &[u8]) -> bool {
    let (words, rest) = name.as_chunks();
    let in_words = words.iter().fold(0, |found, word| found | separators(*word));
    match name.last_chunk() {
        Some(last) => in_words | separators(*last) != 0,
        None => rest.iter().any(|&byte| is_separator(byte)),
    }
}

/// Sets the top bit of each NUL or `/`, and sometimes of bytes above.
fn separators(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let word = u64::from_ne_bytes(word);
    zeros(word) | zeros(word ^ u64::from_ne_bytes([b'/'; 8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_ascend_with_both_hashes_and_stay_below_what_a_file_offset_may_be() {
        let most = cookie_of(MajorHash::from_raw(u32::MAX).get(), LOW_MAX);
        assert!(most < (1 << 63) - 4);
        let ordered =
            [(0, 0), (0, 5), (2, 0), (2, LOW_MAX), (4, 0)].map(|(major, low)| cookie_of(major, low));
        assert!(ordered.is_sorted() && ordered.iter().all(|&cookie| cookie & BY_HASH != 0));
        assert_eq!(hash_of(cookie_of(0xFFFF_FFFC, 77)), 0xFFFF_FFFC);
    }

    #[test]
    fn a_byte_that_ends_a_component_is_found_wherever_it_stands() {
        for len in 1..=255 {
            let mut name = vec![b'.'; len];
            assert_eq!(check_name(&name), Ok(()));
            for at in 0..len {
                for byte in [0, b'/'] {
                    name[at] = byte;
                    let found = check_name(&name);
                    assert!(
                        matches!(found, Err(Problem::Value { value, .. }) if value == u64::from(byte)),
                        "{byte} at {at} of {len}"
                    );
                }
                name[at] = 0xAF;
                assert_eq!(check_name(&name), Ok(()));
            }
        }
    }
}
