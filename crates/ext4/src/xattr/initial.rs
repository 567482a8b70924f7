//! Attributes of a new inode, and inline content.

use super::block::BLOCK_CREDITS;
use super::change::{on_disk, settable};
use crate::inode::Snapshot;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrEntry, XattrList, fits_in_inode, write_in_inode};
use dentree_jbd2::Handle;

/// Names with prefixes, and values.
pub(crate) type Initial<'a> = &'a [(&'a [u8], Vec<u8>)];

impl Ext4 {
    pub(crate) fn initial_credits(&self, xattrs: Initial<'_>) -> u32 {
        if xattrs.is_empty() { 0 } else { BLOCK_CREDITS }
    }

    /// Fills the inode, then a block. On [`Error::NoSpace`](crate::Error::NoSpace) nothing has
    /// changed.
    pub(crate) fn init_attributes(
        &self,
        handle: &mut Handle<'_>,
        new_inode: &mut Snapshot,
        xattrs: Initial<'_>,
    ) -> Result<()> {
        if xattrs.is_empty() {
            return Ok(());
        }
        let names = xattrs.iter().map(|(name, _)| settable(name)).collect::<Result<Vec<_>>>()?;
        let values = names.iter().zip(xattrs).map(|((namespace, _), (_, value))| on_disk(*namespace, value));
        let values = values.collect::<Result<Vec<_>>>()?;
        let room = self.space_after_fields(new_inode.inode.fields_len);
        let (mut in_inode, mut in_block) = (Vec::new(), Vec::new());
        for ((namespace, name), value) in names.iter().zip(&values) {
            in_inode.push(XattrEntry::new(namespace.index(), name, value));
            if !fits_in_inode(room, &in_inode) {
                in_block.extend(in_inode.pop());
            }
        }
        in_block.sort_by(XattrEntry::order_in_block);
        let block = self.choose_block(handle, new_inode, None, &in_block)?;
        new_inode.inode.xattr_block = block.number();
        if block.number().is_some() {
            new_inode.inode.sectors += u64::from(self.sb.block_size.bytes()) / 512;
        }
        let mut tail = vec![0; room];
        write_in_inode(&mut tail, &in_inode);
        new_inode.tail = tail.into();
        new_inode.has_acl = names.iter().any(|(namespace, _)| *namespace == Namespace::PosixAclAccess);
        let flagged = self.set_ext_attr_feature(handle);
        self.all_or_abort(flagged)
    }

    pub(crate) fn undo_init_attributes(&self, handle: &mut Handle<'_>, new_inode: &Snapshot) -> Result<()> {
        // No value is in an inode of its own.
        self.release_attributes(handle, new_inode, &mut Vec::new())
    }

    /// The bytes after the fields, with `rest`, the inline content after `i_block`, among the
    /// attributes; `None` if they do not fit.
    pub(crate) fn tail_with_inline(&self, snapshot: &Snapshot, rest: &[u8]) -> Result<Option<Box<[u8]>>> {
        let room = self.space_after_fields(snapshot.inode.fields_len);
        let entry = XattrEntry::new(Namespace::System.index(), b"data", rest);
        let place = snapshot.place(Structure::InodeXattrs);
        let there = XattrList::in_inode(&snapshot.tail).into_iter().flat_map(|list| list.iter());
        let mut list =
            there.collect::<std::result::Result<Vec<_>, _>>().map_err(|problem| place.corrupt(problem))?;
        list.retain(|other| (other.name_index, other.name) != (entry.name_index, entry.name));
        list.push(entry);
        if !fits_in_inode(room, &list) {
            return Ok(None);
        }
        let mut tail = vec![0; room];
        write_in_inode(&mut tail, &list);
        Ok(Some(tail.into()))
    }
}
