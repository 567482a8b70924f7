//! Inline directories: 56 bytes of entries in `i_block`, the rest in attribute `system.data`. A
//! directory that needs more moves to a block.

use super::DirUpdate;
use super::insert::NEW_BLOCK_CREDITS;
use crate::inode::Snapshot;
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrList, remove_in_inode};
use dentree_ext4_format::{
    EntriesMut, I_BLOCK_LEN, Incompat, InodeFlags, InodeNumber, NewEntry, Problem, room_for,
};
use dentree_vfs::FileType;
use std::ops::Range;

/// The parent's inode number precedes the entries; there is no `.` or `..`.
const PARENT_LEN: usize = 4;
const FIRST: u64 = 4;
const SECOND: u64 = 60;

impl Ext4 {
    /// Each area with its position.
    pub(crate) fn inline_entries<'a>(&self, dir: &'a Snapshot) -> Result<[(u64, &'a [u8]); 2]> {
        let (first, rest) = self.inline_parts(dir)?;
        let entries = first.get(PARENT_LEN..).unwrap_or_default();
        Ok([(4, entries), (60, rest)])
    }

    pub(crate) fn inline_parent(&self, dir: &Snapshot) -> Result<InodeNumber> {
        let (first, _) = self.inline_parts(dir)?;
        let parent = InodeNumber(first.first_chunk().copied().map_or(0, u32::from_le_bytes));
        self.sb
            .check_inode("the parent directory", parent)
            .map_err(|problem| dir.place(Structure::InlineData).corrupt(problem))?;
        Ok(parent)
    }

    pub(super) fn has_inline_room(&self, dir: &Snapshot, name_len: usize) -> Result<bool> {
        for (_, bytes) in self.inline_entries(dir)? {
            let place = dir.place(Structure::InlineData);
            if room_for(self.entries(bytes), name_len).map_err(|problem| place.corrupt(problem))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn insert_inline(&self, updated: &mut Snapshot, entry: &NewEntry<'_>) -> Result<()> {
        let place = updated.place(Structure::InlineData);
        for second in [false, true] {
            let added = self.change_piece(updated, second, |area| area.insert(entry))?;
            if added {
                return Ok(());
            }
        }
        Err(place.corrupt(Problem::Missing { what: "space for the entry" }))
    }

    pub(super) fn change_inline_entry(
        &self,
        updated: &mut Snapshot,
        position: u64,
        change: impl FnOnce(&mut EntriesMut<'_>, usize) -> Result<(), Problem>,
    ) -> Result<()> {
        let second = position >= SECOND;
        let start = position.saturating_sub(if second { SECOND } else { FIRST });
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        self.change_piece(updated, second, |area| change(area, start))
    }

    fn change_piece<R>(
        &self,
        updated: &mut Snapshot,
        second: bool,
        change: impl FnOnce(&mut EntriesMut<'_>) -> Result<R, Problem>,
    ) -> Result<R> {
        let place = updated.place(Structure::InlineData);
        let piece = if second {
            let range = second_piece(&updated.tail).map_err(|problem| place.corrupt(problem))?;
            updated.tail.get_mut(range).unwrap_or_default()
        } else {
            updated.inode.block.get_mut(PARENT_LEN..).unwrap_or_default()
        };
        change(&mut EntriesMut::new(piece, self.sb.block_size, self.sb.inodes_count))
            .map_err(|problem| place.corrupt(problem))
    }

    /// Returns whether it can be inline.
    pub(super) fn init_inline(&self, made: &mut Snapshot, parent: InodeNumber) -> Result<bool> {
        if !self.sb.incompat.has(Incompat::INLINE_DATA) {
            return Ok(false);
        }
        let Some(tail) = self.tail_with_inline(made, &[])? else { return Ok(false) };
        made.tail = tail;
        let inode = &mut made.inode;
        inode.flags = inode.flags.without(InodeFlags::EXTENTS).with(InodeFlags::INLINE_DATA);
        (inode.block, inode.size) = ([0; I_BLOCK_LEN], SECOND);
        Ext4::set_inline_parent(made, parent);
        self.change_piece(made, false, |area| {
            area.clear();
            Ok(())
        })?;
        Ok(true)
    }

    pub(super) fn set_inline_parent(updated: &mut Snapshot, parent: InodeNumber) {
        if let Some(place) = updated.inode.block.first_chunk_mut() {
            *place = parent.0.to_le_bytes();
        }
    }

    /// Uses a transaction of its own.
    pub(super) fn move_to_block(&self, dir: &Node) -> Result<()> {
        let old = dir.snapshot();
        let place = old.place(Structure::InlineData);
        let corrupt = |problem| place.corrupt(problem);
        let file_type = self.entry_type(FileType::Directory);
        let dots = [(&b"."[..], old.ino), (b"..", self.inline_parent(&old)?)];
        let mut all: Vec<_> =
            dots.map(|(name, inode)| NewEntry { name, inode, file_type }).into_iter().collect();
        for (_, bytes) in self.inline_entries(&old)? {
            for entry in self.entries(bytes) {
                all.push(entry.map_err(corrupt)?.into());
            }
        }
        let mut updated = DirUpdate::of(dir);
        updated.inode.flags = updated.inode.flags.without(InodeFlags::INLINE_DATA);
        remove_in_inode(&mut updated.tail, Namespace::System, b"data").map_err(corrupt)?;
        self.init_map(&mut updated);
        let mut handle = self.start(NEW_BLOCK_CREDITS)?;
        let fresh = self.append_blocks(&mut handle, &mut updated, 1)?;
        let moved = fresh.iter().try_for_each(|&(_, at)| {
            let short = Problem::Missing { what: "space in a block for the entries" };
            self.create_leaf(&mut handle, &updated, at, |area| area.fill(&all).then_some(()).ok_or(short))
        });
        let moved = moved.and_then(|()| self.publish_layout(&mut handle, dir, &mut updated));
        self.all_or_abort(moved)?;
        handle.stop();
        Ok(())
    }
}

fn second_piece(tail: &[u8]) -> Result<Range<usize>, Problem> {
    let Some(list) = XattrList::in_inode(tail) else { return Ok(0..0) };
    Ok(list.place_in_inode(Namespace::System, b"data")?.unwrap_or_default())
}
