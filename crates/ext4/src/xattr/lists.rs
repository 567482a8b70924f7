//! All attributes of an inode.

use super::block::AttrBlock;
use super::value::inodes_of;
use crate::inode::Snapshot;
use crate::{Ext4, Place, Result, Structure};
use dentree_ext4_format::InodeNumber;
use dentree_ext4_format::xattr::{XattrEntry, XattrList, XattrValue};

#[derive(Clone)]
pub(super) struct Lists<'a> {
    pub(super) in_inode: Vec<XattrEntry<'a>>,
    pub(super) in_block: Vec<XattrEntry<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    Inode,
    Block,
}

impl<'a> Lists<'a> {
    pub(super) fn of(&mut self, location: Location) -> &mut Vec<XattrEntry<'a>> {
        match location {
            Location::Inode => &mut self.in_inode,
            Location::Block => &mut self.in_block,
        }
    }

    pub(super) fn find(
        &self,
        matches: impl Fn(&XattrEntry<'_>) -> bool,
    ) -> Option<(Location, XattrEntry<'a>)> {
        let find = |list: &[XattrEntry<'a>]| list.iter().copied().find(&matches);
        let in_inode = find(&self.in_inode).map(|entry| (Location::Inode, entry));
        in_inode.or_else(|| find(&self.in_block).map(|entry| (Location::Block, entry)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = InodeNumber> {
        inodes_of(&self.in_inode).chain(inodes_of(&self.in_block))
    }
}

impl Ext4 {
    /// Names and values are copied to `text`: holding the block or snapshot would make a change
    /// copy it.
    pub(super) fn lists<'a>(
        &self,
        snapshot: &Snapshot,
        text: &'a mut Vec<u8>,
    ) -> Result<(Lists<'a>, Option<AttrBlock>)> {
        let block = self.xattr_block(snapshot)?;
        let place = snapshot.place(Structure::InodeXattrs);
        let in_inode = read_list(XattrList::in_inode(&snapshot.tail), place, text)?;
        let in_block = match &block {
            Some(block) => read_list(Some(block.list()?), block.block.place, text)?,
            None => Vec::new(),
        };
        let mut text = &text[..];
        let in_inode = in_inode.into_iter().map(|entry| entry_from(&mut text, entry)).collect();
        let in_block = in_block.into_iter().map(|entry| entry_from(&mut text, entry)).collect();
        Ok((Lists { in_inode, in_block }, block.map(|block| block.block)))
    }

    /// The block, and values in inodes, even shared ones.
    pub(super) fn sectors_of(&self, lists: &Lists<'_>, has_block: bool) -> u64 {
        let values = lists.in_inode.iter().chain(&lists.in_block).map(|entry| match entry.value {
            XattrValue::Inode { size, .. } => self.sb.block_size.blocks_for(u64::from(size)),
            XattrValue::Inline(_) => 0,
        });
        (values.sum::<u64>() + u64::from(has_block)) << (self.sb.block_size.log2() - 9)
    }

    pub(super) fn check_values(&self, lists: &Lists<'_>) -> Result<u32> {
        let mut count = 0;
        for ino in lists.values() {
            self.value_inode(ino)?;
            count += 1;
        }
        Ok(count)
    }
}

fn read_list<'a>(
    list: Option<XattrList<'a>>,
    place: Place,
    text: &mut Vec<u8>,
) -> Result<Vec<XattrEntry<'a>>> {
    let mut entries = Vec::new();
    let Some(list) = list else { return Ok(entries) };
    for entry in list.iter() {
        let entry = entry.map_err(|problem| place.corrupt(problem))?;
        text.reserve(entry.len_in_list());
        text.extend_from_slice(entry.name);
        if let XattrValue::Inline(value) = entry.value {
            text.extend_from_slice(value);
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry_from<'a>(text: &mut &'a [u8], entry: XattrEntry<'_>) -> XattrEntry<'a> {
    let mut next = |len| {
        let (first, rest) = text.split_at(len);
        *text = rest;
        first
    };
    let name = next(entry.name.len());
    let value = match entry.value {
        XattrValue::Inline(value) => XattrValue::Inline(next(value.len())),
        XattrValue::Inode { inode, size } => XattrValue::Inode { inode, size },
    };
    XattrEntry { name_index: entry.name_index, name, value, hash: entry.hash }
}
