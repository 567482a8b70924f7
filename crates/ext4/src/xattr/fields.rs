//! Extending the fields of inodes (`s_want_extra_isize`).

use super::lists::Lists;
use crate::inode::Snapshot;
use crate::{Ext4, Result};
use dentree_ext4_format::xattr::{Namespace, XattrEntry, XattrValue, fits_in_block, fits_in_inode};

/// Fields that every inode has; `i_extra_isize` follows.
const CLASSIC_LEN: usize = 128;

pub(super) struct ExtendedFields<'a> {
    pub(super) fields_len: usize,
    /// Entries that move to the block.
    pub(super) moved: Vec<XattrEntry<'a>>,
}

impl Ext4 {
    /// Bytes for attributes; 0 without `i_extra_isize`.
    pub(super) fn space_after_fields(&self, fields_len: usize) -> usize {
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        if fields_len > CLASSIC_LEN { size.saturating_sub(fields_len) } else { 0 }
    }

    fn wanted_fields_len(&self) -> usize {
        CLASSIC_LEN + usize::from(self.sb.extra_isize())
    }

    pub(super) fn lacks_fields(&self, snapshot: &Snapshot) -> bool {
        snapshot.inode.fields_len < self.wanted_fields_len()
    }

    /// Needs all attributes to fit; some may move to the block.
    pub(super) fn extend_fields<'a>(
        &self,
        snapshot: &Snapshot,
        lists: &mut Lists<'a>,
        may_grow: bool,
    ) -> Result<ExtendedFields<'a>> {
        let unchanged = ExtendedFields { fields_len: snapshot.inode.fields_len, moved: Vec::new() };
        if !may_grow || !self.lacks_fields(snapshot) {
            return Ok(unchanged);
        }
        let wanted = self.wanted_fields_len();
        let room = self.space_after_fields(wanted);
        let (mut grown, mut moved) = (lists.clone(), Vec::new());
        while !fits_in_inode(room, &grown.in_inode) {
            let Some(entry) = self.remove_for_space(&mut grown.in_inode, room)? else { return Ok(unchanged) };
            moved.push(entry);
        }
        grown.in_block.extend(&moved);
        if !moved.is_empty() && !fits_in_block(self.sb.block_size.in_memory(), &grown.in_block) {
            return Ok(unchanged);
        }
        grown.in_block.sort_by(XattrEntry::order_in_block);
        *lists = grown;
        Ok(ExtendedFields { fields_len: wanted, moved })
    }

    /// Removes the smallest that makes the others fit into `room` bytes, else the largest. Returns
    /// it in the form for a block.
    fn remove_for_space<'a>(
        &self,
        list: &mut Vec<XattrEntry<'a>>,
        room: usize,
    ) -> Result<Option<XattrEntry<'a>>> {
        let suffices = |number: usize| {
            let mut rest = list.clone();
            rest.remove(number);
            fits_in_inode(room, &rest)
        };
        let mut movable = Vec::new();
        for (number, entry) in list.iter().enumerate() {
            if self.is_movable(entry)? {
                movable.push(number);
            }
        }
        let len = |number: &usize| list[*number].len_in_list();
        let smallest = movable.iter().copied().filter(|&number| suffices(number)).min_by_key(len);
        let Some(number) = smallest.or_else(|| movable.iter().copied().max_by_key(len)) else {
            return Ok(None);
        };
        let entry = list.remove(number);
        Ok(Some(match entry.value {
            // In the inode an entry may lack a hash.
            XattrValue::Inline(value) => XattrEntry::new(entry.name_index, entry.name, value),
            XattrValue::Inode { .. } => entry,
        }))
    }

    /// Excluded are inline content, and a value whose inode names its one owner (before there were
    /// hashes), as others would share it.
    fn is_movable(&self, entry: &XattrEntry<'_>) -> Result<bool> {
        match entry.value {
            XattrValue::Inline(_) => Ok(entry.name_index != Namespace::System.index()),
            XattrValue::Inode { inode, .. } => {
                let (holder, _) = self.value_inode(inode)?;
                Ok(entry.verify_hash(holder.inode.raw_times[0]).is_ok())
            }
        }
    }
}
