//! One entry of a directory, wherever it stands.

use crate::dir::format::Found;
use crate::inode::Snapshot;
use crate::map::Mapping;
use crate::verified::Checked;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, EntriesMut, InodeFlags, InodeNumber, LogicalBlock, Problem, htree, leaf_room, reseal_leaf,
    seal_leaf,
};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;
use std::ops::ControlFlow;

impl Ext4 {
    /// The entry of a name that must be there.
    pub(super) fn entry_at(&self, dir: &Snapshot, name: &[u8]) -> Result<Found> {
        let wanted = self.wanted(dir, name).ok_or(Error::InvalidName)?;
        self.find_entry(dir, &wanted)?.ok_or_else(|| Ext4::no_entry(dir))
    }

    /// Removes an entry that was found.
    pub(super) fn remove_entry(
        &self,
        handle: &mut Handle<'_>,
        dir: &mut Snapshot,
        found: Found,
    ) -> Result<()> {
        self.change_entry(handle, dir, found, |area, start| area.remove(start))
    }

    /// Lets an entry that was found name another inode.
    pub(super) fn point_entry(
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
            return Err(place.corrupt(Problem::Missing { what: "its block" }));
        };
        let leaf = match leaf {
            Some(leaf) => leaf,
            None => self.place_of(dir, block, Structure::DirectoryLeaf(block))?.1,
        };
        self.change_leaf(handle, dir, leaf, |area| change(area, start))
    }

    /// Changes the entries of the leaf at `place`. `change` fails only before it has changed anything.
    pub(super) fn change_leaf<R>(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        place: Place,
        change: impl FnOnce(&mut EntriesMut<'_>) -> Result<R, Problem>,
    ) -> Result<R> {
        let at = place.block.ok_or_else(|| place.corrupt(Problem::Missing { what: "its block" }))?;
        self.writer()?.last_entries.forget(at);
        self.update(handle, at, place, |bytes| self.change_leaf_bytes(dir, bytes, change))?
            .map_err(|problem| place.corrupt(problem))
    }

    /// Makes a block, which was just allocated, a leaf.
    pub(super) fn create_leaf(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        at: BlockNumber,
        fill: impl FnOnce(&mut EntriesMut<'_>) -> Result<(), Problem>,
    ) -> Result<()> {
        let place = dir.place(Structure::DirectoryLeaf(LogicalBlock(0))).at(at);
        self.writer()?.last_entries.forget(at);
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
        // It was sealed just now: who looks at it next need not sum it up.
        self.note_checked(place, Checked::DirectoryLeaf(dir.inode.checksum_seed))
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
        let answer = change(&mut area)?;
        if has_sum {
            match area.sum_change() {
                Some(change) => reseal_leaf(bytes, change),
                None => seal_leaf(bytes, dir.inode.checksum_seed),
            }
        }
        Ok(answer)
    }

    /// Where a block of a directory lies.
    pub(super) fn place_of(
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

    /// Lets `..` of a directory that has moved name its new parent.
    pub(super) fn point_to_parent(
        &self,
        handle: &mut Handle<'_>,
        dir: &Node,
        parent: InodeNumber,
    ) -> Result<()> {
        let dir = &*match dir.snapshot() {
            inline if inline.has(InodeFlags::INLINE_DATA) => {
                return self.change_inode(handle, dir, |inline| Ext4::set_inline_parent(inline, parent));
            }
            in_blocks => in_blocks,
        };
        let block = LogicalBlock(0);
        let (at, place) = self.place_of(dir, block, Structure::DirectoryLeaf(block))?;
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
            self.seal_index(dir, bytes, true)
        })?
        .map_err(|problem| place.corrupt(problem))
    }

    /// Writes the checksum of an index block, where the file system has any.
    pub(super) fn seal_index(&self, dir: &Snapshot, bytes: &mut [u8], is_root: bool) -> Result<(), Problem> {
        if self.sb.has_metadata_csum() {
            htree::seal_index(bytes, is_root, dir.inode.checksum_seed)?;
        }
        Ok(())
    }

    /// Refuses a directory that has entries.
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
}
