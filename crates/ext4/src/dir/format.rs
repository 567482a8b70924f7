//! Directories, block by block.

use crate::dir::name::Wanted;
use crate::inode::Snapshot;
use crate::map::{Mapping, Placed};
use crate::read_ahead::Sequence;
use crate::verified::Checked;
use crate::{Error, Ext4, Place, Result, Structure};
use dentree_bufcache::{Buffer, First};
use dentree_ext4_format::hash::HashVersion;
use dentree_ext4_format::{
    BlockNumber, BlockRole, Compat, Entries, Entry, Incompat, InodeFlags, InodeNumber, LogicalBlock, Problem,
    block_role, verify_leaf,
};
use dentree_vfs::{DirEntry, FileType, Ino, Lookup, ReaddirStart};
use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

/// What is done with an entry and its position or cookie.
pub(crate) type Each<'a> = dyn FnMut(Entry<'_>, u64) -> Result<ControlFlow<()>> + 'a;

/// An entry that was looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) lookup: Lookup,
    /// The byte within the directory that it begins at.
    pub(crate) position: u64,
    /// The leaf that it is in, where a search of one leaf has found it.
    pub(crate) leaf: Option<Place>,
}

impl Ext4 {
    /// How many blocks a directory has. No two of them are the same block, so there are no more than the device
    /// has: this is what ends the listing of a directory whose map names one block a million times.
    pub(crate) fn dir_blocks(&self, dir: &Snapshot) -> Result<u32> {
        let blocks = dir.inode.size >> self.sb.block_size.log2();
        let on_device = self.device.size() >> self.sb.block_size.log2();
        let max = self.sb.blocks_count.min(on_device).min(u64::from(u32::MAX));
        Problem::check_range("the directory's blocks", blocks, 1, max)
            .map_err(|problem| dir.place(Structure::Inode).corrupt(problem))?;
        Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    /// Reads a block of a directory, which may have no holes. Its checksum is not verified yet.
    pub(crate) fn dir_block(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
    ) -> Result<(Buffer, Place)> {
        self.dir_block_by(dir, block, place, || self.mapping(dir, block), Ext4::metadata)
    }

    /// The same of a block that leads to others, and so is read often.
    pub(crate) fn dir_block_often(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
    ) -> Result<(Buffer, Place)> {
        self.dir_block_by(dir, block, place, || self.mapping(dir, block), Ext4::metadata_often)
    }

    /// The same, of a block that `mapping` knows where to find. Where it is missing or used first, `ahead` says what else to read of
    /// the directory; it must not use the buffer cache.
    fn dir_block_ahead(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
        mapping: impl FnOnce() -> Result<Mapping>,
        ahead: impl FnOnce(First) -> Option<Vec<Range<u32>>>,
    ) -> Result<(Buffer, Place)> {
        let plan = |first| ahead(first).map(|wanted| move || self.on_device(dir, &wanted));
        self.dir_block_by(dir, block, place, mapping, |fs, at, place| fs.metadata_ahead(at, place, plan))
    }

    /// The same, of a block that `mapping` knows where to find and `read` reads.
    fn dir_block_by(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
        mapping: impl FnOnce() -> Result<Mapping>,
        read: impl FnOnce(&Ext4, BlockNumber, Place) -> Result<Buffer>,
    ) -> Result<(Buffer, Place)> {
        let max = u64::from(self.dir_blocks(dir)? - 1);
        Problem::check_range("the block within the directory", u64::from(block.0), 0, max)
            .map_err(|problem| place.corrupt(problem))?;
        match mapping()? {
            Mapping::Data(at) => Ok((read(self, at, place)?, place.at(at))),
            Mapping::Unwritten(_) | Mapping::Hole => {
                Err(place.corrupt(Problem::Missing { what: "the block" }))
            }
        }
    }

    /// Reads a leaf block and verifies its checksum; `None` where the block belongs to the index.
    pub(crate) fn dir_leaf(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        ahead: impl FnOnce(First) -> Option<Vec<Range<u32>>>,
    ) -> Result<Option<(Buffer, Place)>> {
        self.dir_leaf_at(dir, block, || self.mapping(dir, block), ahead)
    }

    fn mapping(&self, dir: &Snapshot, block: LogicalBlock) -> Result<Mapping> {
        Ok(self.map(dir, block)?.mapping)
    }

    /// The same, of a block that `mapping` knows where to find.
    pub(crate) fn dir_leaf_at(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        mapping: impl FnOnce() -> Result<Mapping>,
        ahead: impl FnOnce(First) -> Option<Vec<Range<u32>>>,
    ) -> Result<Option<(Buffer, Place)>> {
        let place = dir.place(Structure::DirectoryLeaf(block));
        let (buffer, place) = self.dir_block_ahead(dir, block, place, mapping, ahead)?;
        if block_role(&buffer, block, self.is_indexed(dir), self.sb.block_size) == BlockRole::Index {
            return Ok(None);
        }
        if self.sb.has_metadata_csum() {
            let seed = dir.inode.checksum_seed;
            self.check_once(place, &buffer, Checked::DirectoryLeaf(seed), || verify_leaf(&buffer, seed))?;
        }
        Ok(Some((buffer, place)))
    }

    /// Reads a leaf block that the index leads to. Without a checksum behind it an empty one looks as an index block does.
    pub(crate) fn promised_leaf(&self, dir: &Snapshot, block: LogicalBlock) -> Result<(Buffer, Place)> {
        if let Some(leaf) = self.dir_leaf(dir, block, |first| self.beside(dir, block, first))? {
            return Ok(leaf);
        }
        if block.0 == 0 || self.sb.has_metadata_csum() {
            let place = dir.place(Structure::DirectoryIndex(block));
            return Err(place.corrupt(Problem::Missing { what: "a leaf, which the index promises," }));
        }
        self.dir_block(dir, block, dir.place(Structure::DirectoryLeaf(block)))
    }

    /// Whether a directory is looked up through an htree.
    pub(crate) fn is_indexed(&self, dir: &Snapshot) -> bool {
        dir.has(InodeFlags::INDEX) && self.sb.compat.has(Compat::DIR_INDEX)
    }

    /// The entries in use in a piece of directory.
    pub(crate) fn entries<'a>(&self, bytes: &'a [u8]) -> Entries<'a> {
        Entries::new(bytes, self.sb.block_size, self.sb.inodes_count)
    }

    /// Calls `each` with every entry, `.` and `..` too, behind position `from`, and its own end as a position.
    ///
    /// Positions are byte offsets within the directory; one that is no entry's end means the next entry.
    pub(crate) fn each_entry(&self, dir: &Snapshot, from: u64, each: &mut Each<'_>) -> Result<()> {
        self.each_entry_past(dir, from, each, &mut Err)
    }

    /// The same, where `damage` decides of each piece that cannot be read, or not to its end, whether to go on behind it.
    pub(crate) fn each_entry_past(
        &self,
        dir: &Snapshot,
        from: u64,
        each: &mut Each<'_>,
        damage: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<()> {
        if dir.has(InodeFlags::INLINE_DATA) {
            for (start, bytes) in self.inline_entries(dir)? {
                let place = dir.place(Structure::InlineData);
                match self.each_entry_in(bytes, place, start, from, each) {
                    Ok(ControlFlow::Break(())) => break,
                    read => read.map(drop).or_else(&mut *damage)?,
                }
            }
            return Ok(());
        }
        let blocks = self.dir_blocks(dir)?;
        let first = u32::try_from(from >> self.sb.block_size.log2()).unwrap_or(u32::MAX);
        let (mut sequence, mut placed) = (Sequence::default(), Placed::default());
        for block in (first..blocks).map(LogicalBlock) {
            let ahead = |_| sequence.plan(block, blocks);
            let mapping = || placed.next(self, dir, block, blocks);
            let start = u64::from(block.0) << self.sb.block_size.log2();
            let read = match self.dir_leaf_at(dir, block, mapping, ahead) {
                Ok(Some((buffer, place))) => self.each_entry_in(&buffer, place, start, from, each),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match read {
                Ok(ControlFlow::Break(())) => break,
                read => read.map(drop).or_else(&mut *damage)?,
            }
        }
        Ok(())
    }

    /// The same for one piece of a directory, which begins at position `start`.
    fn each_entry_in(
        &self,
        bytes: &[u8],
        place: Place,
        start: u64,
        from: u64,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        for entry in self.entries(bytes) {
            let entry = entry.map_err(|problem| place.corrupt(problem))?;
            let position = |within| start + u64::try_from(within).unwrap_or(u64::MAX);
            if position(entry.start) >= from && each(entry, position(entry.end))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Searches one leaf, which no index block can be.
    pub(crate) fn search_leaf(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>> {
        let (buffer, place) = self.promised_leaf(dir, block)?;
        for entry in self.entries(&buffer) {
            let entry = entry.map_err(|problem| place.corrupt(problem))?;
            if wanted.is(entry.name) {
                let start = u64::from(block.0) << self.sb.block_size.log2();
                let position = start + u64::try_from(entry.start).unwrap_or(u64::MAX);
                let (lookup, leaf) = (self.lookup_of(&entry), Some(place));
                return Ok(Some(Found { lookup, position, leaf }));
            }
        }
        Ok(None)
    }

    /// The inode under a name: through the htree where the directory has one.
    pub(crate) fn find_entry(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        if self.is_indexed(dir) {
            return self.find_indexed(dir, wanted);
        }
        self.find_linearly(dir, wanted)
    }

    /// Searches every entry: of directories without an index, or with one that needs a key to be used.
    pub(crate) fn find_linearly(&self, dir: &Snapshot, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let mut found = None;
        self.each_entry(dir, 0, &mut |entry, end| {
            if !wanted.is(entry.name) {
                return Ok(ControlFlow::Continue(()));
            }
            let position = end - u64::try_from(entry.end - entry.start).unwrap_or(0);
            found = Some(Found { lookup: self.lookup_of(&entry), position, leaf: None });
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// What an entry says of its inode.
    fn lookup_of(&self, entry: &Entry<'_>) -> Lookup {
        Lookup { ino: Ino(u64::from(entry.inode.0)), kind: self.kind_of(entry) }
    }

    fn kind_of(&self, entry: &Entry<'_>) -> Option<FileType> {
        if !self.sb.incompat.has(Incompat::FILETYPE) {
            return None;
        }
        Some(match entry.file_type {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => return None,
        })
    }

    /// Reports the entries behind `start`, without `.` and `..`.
    pub(crate) fn list(
        &self,
        dir: &Snapshot,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let after = match start {
            ReaddirStart::First => None,
            ReaddirStart::After(cookie) => Some(cookie),
        };
        let hash = self.hash_to_show(dir)?;
        self.each_listed(dir, after, &mut |entry, cookie| self.show(dir, hash, &entry, cookie, each))
    }

    /// The same for all entries, in the order of their places; what is damaged is told to `damaged`, and passed over.
    pub(crate) fn list_past_damage(
        &self,
        dir: &Snapshot,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let hash = self.hash_to_show(dir)?;
        let mut misnamed = Vec::new();
        let mut show = |entry: Entry<'_>, end| {
            let shown = self.show(dir, hash, &entry, end, each);
            // One that cannot be shown keeps nobody from those behind it.
            Ok(shown.unwrap_or_else(|error| {
                misnamed.push(error);
                ControlFlow::Continue(())
            }))
        };
        self.each_entry_past(dir, 0, &mut show, &mut |error| match error {
            Error::Corrupt { .. } | Error::Io { .. } => {
                damaged(error);
                Ok(())
            }
            other => Err(other),
        })?;
        misnamed.into_iter().for_each(damaged);
        Ok(())
    }

    /// What encrypted names are shown by.
    fn hash_to_show(&self, dir: &Snapshot) -> Result<Option<HashVersion>> {
        if dir.has(InodeFlags::ENCRYPT) { self.shown_hash(dir) } else { Ok(None) }
    }

    /// Reports an entry, unless it is one of the dots.
    fn show(
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
            Cow::Owned(self.shown_name(entry.name, hash))
        } else {
            Cow::Borrowed(entry.name)
        };
        check_name(&name).map_err(|problem| dir.place(Structure::DirectoryEntry).corrupt(problem))?;
        let ino = Ino(u64::from(entry.inode.0));
        Ok(each(DirEntry { name: &name, ino, kind: self.kind_of(entry), cookie }))
    }

    /// The inode of the parent directory: the second entry of the first block, which an htree root has too.
    pub(crate) fn parent_of(&self, dir: &Snapshot) -> Result<InodeNumber> {
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.inline_parent(dir);
        }
        let block = LogicalBlock(0);
        let (buffer, place) = self.dir_block(dir, block, dir.place(Structure::DirectoryLeaf(block)))?;
        match self.entries(&buffer).nth(1) {
            Some(Ok(entry)) if entry.name == b".." => Ok(entry.inode),
            Some(Err(problem)) => Err(place.corrupt(problem)),
            _ => Err(place.corrupt(Problem::Missing { what: "the entry `..`" })),
        }
    }
}

/// Refuses what no path could name, and what could lead a copy astray.
#[inline]
fn check_name(name: &[u8]) -> Result<(), Problem> {
    if has_separator(name) { Err(separator_in(name)) } else { Ok(()) }
}

#[cold]
fn separator_in(name: &[u8]) -> Problem {
    let value = name.iter().copied().find(|&byte| is_separator(byte)).unwrap_or_default();
    let because = "stands in a name, where neither `/` (47) nor NUL may be";
    Problem::Value { field: "a byte", value: u64::from(value), because }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, 0 | b'/')
}

/// Whether any byte of a name ends a component of a path. Eight bytes are looked at together, the last eight maybe for a second time:
/// byte by byte it was a quarter of what listing a name costs.
#[inline]
fn has_separator(name: &[u8]) -> bool {
    let (words, rest) = name.as_chunks();
    let in_words = words.iter().fold(0, |found, word| found | separators(*word));
    match name.last_chunk() {
        Some(last) => in_words | separators(*last) != 0,
        None => rest.iter().any(|&byte| is_separator(byte)),
    }
}

/// Not zero where a byte of a word is one: of those that are zero, and above them maybe others, the upper bit is set.
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
