//! Directory blocks and entries.

use crate::inode::Snapshot;
use crate::map::{MapCache, Mapping};
use crate::read_ahead::Sequence;
use crate::verified::VerifiedAs;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_bufcache::{Buffer, First};
use dentree_ext4_format::{
    BlockNumber, BlockRole, Compat, Entries, EntriesMut, Entry, Incompat, InodeFlags, InodeNumber,
    LogicalBlock, Problem, block_role, htree, leaf_room, set_leaf_checksum, update_leaf_checksum,
    verify_leaf,
};
use dentree_jbd2::Handle;
use dentree_vfs::{FileType, Ino, Lookup};
use std::ops::{ControlFlow, Range};

/// Receives an entry and the position after it.
pub(crate) type Each<'a> = dyn FnMut(Entry<'_>, u64) -> Result<ControlFlow<()>> + 'a;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) lookup: Lookup,
    pub(crate) position: u64,
    /// If a search of one leaf found the entry.
    pub(crate) leaf: Option<Place>,
}

impl Ext4 {
    /// Blocks are distinct, so the device's size bounds their number: a map that repeats a block
    /// does not keep a listing busy.
    pub(crate) fn dir_blocks(&self, dir: &Snapshot) -> Result<u32> {
        let blocks = dir.inode.size >> self.sb.block_size.log2();
        let on_device = self.device.size() >> self.sb.block_size.log2();
        let max = self.sb.blocks_count.min(on_device).min(u64::from(u32::MAX));
        Problem::check_range("the directory's blocks", blocks, 1, max)
            .map_err(|problem| dir.place(Structure::Inode).corrupt(problem))?;
        Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
    }

    /// Reads a block unverified. A hole is an error.
    pub(crate) fn dir_block(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
    ) -> Result<(Buffer, Place)> {
        self.dir_block_with(dir, block, place, || self.mapping(dir, block), Ext4::metadata)
    }

    /// Reads through the per-thread buffer LRU.
    pub(crate) fn dir_block_often(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
    ) -> Result<(Buffer, Place)> {
        self.dir_block_with(dir, block, place, || self.mapping(dir, block), Ext4::metadata_often)
    }

    /// `ahead` plans read-ahead on a miss or the first use of a block read ahead; it must not use
    /// the buffer cache.
    fn dir_block_ahead(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        place: Place,
        mapping: impl FnOnce() -> Result<Mapping>,
        ahead: impl FnOnce(First) -> Option<Vec<Range<u32>>>,
    ) -> Result<(Buffer, Place)> {
        let plan = |first| ahead(first).map(|wanted| move || self.on_device(dir, &wanted));
        self.dir_block_with(dir, block, place, mapping, |fs, at, place| fs.metadata_ahead(at, place, plan))
    }

    fn dir_block_with(
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

    /// Reads a verified leaf. `None` for an index block.
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
            self.verify_once(place, &buffer, VerifiedAs::DirectoryLeaf(seed), || verify_leaf(&buffer, seed))?;
        }
        Ok(Some((buffer, place)))
    }

    /// Without checksums an empty leaf looks like an index block.
    pub(crate) fn indexed_leaf(&self, dir: &Snapshot, block: LogicalBlock) -> Result<(Buffer, Place)> {
        if let Some(leaf) = self.dir_leaf(dir, block, |first| self.leaf_neighbours(dir, block, first))? {
            return Ok(leaf);
        }
        if block.0 == 0 || self.sb.has_metadata_csum() {
            let place = dir.place(Structure::DirectoryIndex(block));
            return Err(place.corrupt(Problem::Missing { what: "a leaf named by the index" }));
        }
        self.dir_block(dir, block, dir.place(Structure::DirectoryLeaf(block)))
    }

    pub(crate) fn is_indexed(&self, dir: &Snapshot) -> bool {
        dir.has(InodeFlags::INDEX) && self.sb.compat.has(Compat::DIR_INDEX)
    }

    pub(crate) fn entries<'a>(&self, bytes: &'a [u8]) -> Entries<'a> {
        Entries::new(bytes, self.sb.block_size, self.sb.inodes_count)
    }

    /// Starts at byte position `from`; includes `.` and `..`. A position within an entry means the
    /// next one.
    pub(crate) fn each_entry(&self, dir: &Snapshot, from: u64, each: &mut Each<'_>) -> Result<()> {
        self.each_entry_past_damage(dir, from, each, &mut Err)
    }

    /// `damage` decides for each unreadable block whether to continue.
    pub(crate) fn each_entry_past_damage(
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
        let (mut sequence, mut maps) = (Sequence::default(), MapCache::default());
        for block in (first..blocks).map(LogicalBlock) {
            let ahead = |_| sequence.plan(block, blocks);
            let mapping = || maps.next(self, dir, block, blocks);
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

    pub(super) fn lookup_of(&self, entry: &Entry<'_>) -> Lookup {
        Lookup { ino: Ino(u64::from(entry.inode.0)), kind: self.kind_of(entry) }
    }

    pub(crate) fn kind_of(&self, entry: &Entry<'_>) -> Option<FileType> {
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

    /// The second entry of the first block, also in an htree root.
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

    pub(super) fn entry_type(&self, kind: FileType) -> u8 {
        if !self.sb.incompat.has(dentree_ext4_format::Incompat::FILETYPE) {
            return 0;
        }
        match kind {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }

    pub(super) fn check_empty(&self, dir: &Snapshot) -> Result<()> {
        let mut empty = true;
        self.each_entry(dir, 0, &mut |entry, _| {
            if entry.name == b"." || entry.name == b".." {
                return Ok(ControlFlow::Continue(()));
            }
            empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        if empty { Ok(()) } else { Err(Error::NotEmpty(dir.ino)) }
    }

    pub(super) fn remove_entry(
        &self,
        handle: &mut Handle<'_>,
        dir: &mut Snapshot,
        found: Found,
    ) -> Result<()> {
        self.change_entry(handle, dir, found, |area, start| area.remove(start))
    }

    pub(super) fn set_entry_inode(
        &self,
        handle: &mut Handle<'_>,
        dir: &mut Snapshot,
        found: Found,
        (ino, kind): (InodeNumber, FileType),
    ) -> Result<()> {
        let file_type = self.entry_type(kind);
        self.change_entry(handle, dir, found, |area, start| area.point(start, ino, file_type))
    }

    fn change_entry(
        &self,
        handle: &mut Handle<'_>,
        dir: &mut Snapshot,
        Found { position, leaf, .. }: Found,
        change: impl FnOnce(&mut EntriesMut<'_>, usize) -> Result<(), Problem>,
    ) -> Result<()> {
        if dir.has(InodeFlags::INLINE_DATA) {
            return self.change_inline_entry(dir, position, change);
        }
        let place = dir.place(Structure::DirectoryEntry);
        let Some((block, start)) = self.sb.block_size.split(position) else {
            return Err(place.corrupt(Problem::Missing { what: "a block number" }));
        };
        let leaf = match leaf {
            Some(leaf) => leaf,
            None => self.block_place(dir, block, Structure::DirectoryLeaf(block))?.1,
        };
        self.change_leaf(handle, dir, leaf, |area| change(area, start))
    }

    /// `change` fails before it changes anything.
    pub(super) fn change_leaf<R>(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        place: Place,
        change: impl FnOnce(&mut EntriesMut<'_>) -> Result<R, Problem>,
    ) -> Result<R> {
        let at = place.block.ok_or_else(|| place.corrupt(Problem::Missing { what: "a block number" }))?;
        self.writer()?.last_inserts.clear(at);
        self.update(handle, at, place, |bytes| self.change_leaf_bytes(dir, bytes, change))?
            .map_err(|problem| place.corrupt(problem))
    }

    pub(super) fn create_leaf(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        at: BlockNumber,
        fill: impl FnOnce(&mut EntriesMut<'_>) -> Result<(), Problem>,
    ) -> Result<()> {
        let place = dir.place(Structure::DirectoryLeaf(LogicalBlock(0))).at(at);
        self.writer()?.last_inserts.clear(at);
        let create = |bytes: &mut [u8]| {
            self.change_leaf_bytes(dir, bytes, |area| {
                area.clear();
                fill(area)
            })
        };
        handle
            .create(at.0, create)
            .map_err(|source| place.io(source))?
            .map_err(|problem| place.corrupt(problem))?;
        // The checksum was just computed.
        self.set_verified(place, VerifiedAs::DirectoryLeaf(dir.inode.checksum_seed))
    }

    fn change_leaf_bytes<R>(
        &self,
        dir: &Snapshot,
        bytes: &mut [u8],
        change: impl FnOnce(&mut EntriesMut<'_>) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let has_sum = self.sb.has_metadata_csum();
        let room = leaf_room(self.sb.block_size, has_sum);
        let area = bytes.get_mut(..room).unwrap_or_default();
        let mut area = EntriesMut::new(area, self.sb.block_size, self.sb.inodes_count);
        let result = change(&mut area)?;
        if has_sum {
            match area.sum_change() {
                Some(change) => update_leaf_checksum(bytes, change),
                None => set_leaf_checksum(bytes, dir.inode.checksum_seed),
            }
        }
        Ok(result)
    }

    pub(crate) fn block_place(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        structure: Structure,
    ) -> Result<(BlockNumber, Place)> {
        let place = dir.place(structure);
        match self.map(dir, block)?.mapping {
            Mapping::Data(at) => Ok((at, place.at(at))),
            Mapping::Unwritten(_) | Mapping::Hole => {
                Err(place.corrupt(Problem::Missing { what: "the block" }))
            }
        }
    }

    pub(crate) fn set_parent(&self, handle: &mut Handle<'_>, dir: &Node, parent: InodeNumber) -> Result<()> {
        let dir = &*match dir.snapshot() {
            inline if inline.has(InodeFlags::INLINE_DATA) => {
                return self.change_inode(handle, dir, |inline| Ext4::set_inline_parent(inline, parent));
            }
            in_blocks => in_blocks,
        };
        let block = LogicalBlock(0);
        let (at, place) = self.block_place(dir, block, Structure::DirectoryLeaf(block))?;
        let buffer = self.metadata(at, place)?;
        let Some(Ok(dotdot)) = self
            .entries(&buffer)
            .nth(1)
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.name == b".."))
        else {
            return Err(place.corrupt(Problem::Missing { what: "the entry `..`" }));
        };
        let is_root = self.is_indexed(dir);
        let file_type = self.entry_type(FileType::Directory);
        self.update(handle, at, place, |bytes| {
            if !is_root {
                return self
                    .change_leaf_bytes(dir, bytes, |area| area.point(dotdot.start, parent, file_type));
            }
            EntriesMut::new(bytes, self.sb.block_size, self.sb.inodes_count).point(
                dotdot.start,
                parent,
                file_type,
            )?;
            self.update_index_sum(dir, bytes, true)
        })?
        .map_err(|problem| place.corrupt(problem))
    }

    pub(super) fn update_index_sum(
        &self,
        dir: &Snapshot,
        bytes: &mut [u8],
        is_root: bool,
    ) -> Result<(), Problem> {
        if self.sb.has_metadata_csum() {
            htree::set_index_checksum(bytes, is_root, dir.inode.checksum_seed)?;
        }
        Ok(())
    }
}
