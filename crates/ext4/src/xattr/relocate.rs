//! Moving attribute blocks and values, as a file system becomes smaller.

use super::block::BLOCK_CREDITS;
use super::value::{VALUE_CREDITS, inodes_of};
use crate::inode::Snapshot;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::InodeNumber;
use dentree_ext4_format::xattr::{
    XattrBlock, XattrEntry, XattrValue, overwrite_block, set_block_refcount, write_in_inode,
};
use dentree_jbd2::Handle;

impl Ext4 {
    /// Replaces an inode's attribute block by another one before the end of allocations.
    pub(crate) fn move_attribute_block(&self, node: &Node) -> Result<()> {
        let _attributes = node.attributes_mut();
        let snapshot = node.snapshot();
        let mut text = Vec::new();
        let (lists, old) = self.lists(&snapshot, &mut text)?;
        let Some(old) = old else { return Ok(()) };
        let values = self.check_values(&lists)?;
        let mut handle = self.start(1 + BLOCK_CREDITS + VALUE_CREDITS * values)?;
        let (number, is_copy) = self.replace_block(&mut handle, &snapshot, &old, &lists.in_block)?;
        drop(snapshot);
        let mut unused = Vec::new();
        let named = || inodes_of(&lists.in_block);
        // Each block that names a value is a user of it.
        let added = named().filter(|_| is_copy).try_for_each(|ino| self.add_value_user(&mut handle, ino));
        let done = added.and_then(|()| self.release_block(&mut handle, &old)).and_then(|is_freed| {
            let released = named().filter(|_| is_freed);
            released.into_iter().try_for_each(|ino| self.remove_value_user(&mut handle, ino, &mut unused))?;
            self.change_inode(&mut handle, node, |snapshot| snapshot.inode.xattr_block = Some(number))
        });
        self.all_or_abort(done)?;
        handle.stop();
        self.free_values(unused);
        Ok(())
    }

    /// The inodes that hold values of an inode's attributes.
    pub(crate) fn value_holders(&self, snapshot: &Snapshot) -> Result<Vec<InodeNumber>> {
        let mut text = Vec::new();
        let (lists, _) = self.lists(snapshot, &mut text)?;
        Ok(lists.values().collect())
    }

    /// Renames the holder `old` of values of an inode to `new`, in the inode and in its block.
    pub(crate) fn renumber_values(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        (old, new): (InodeNumber, InodeNumber),
    ) -> Result<()> {
        let _attributes = node.attributes_mut();
        let snapshot = node.snapshot();
        let mut text = Vec::new();
        let (mut lists, block) = self.lists(&snapshot, &mut text)?;
        let rename = |list: &mut [XattrEntry<'_>]| {
            let mut count = 0;
            for entry in list {
                if let XattrValue::Inode { inode, .. } = &mut entry.value
                    && *inode == old
                {
                    (*inode, count) = (new, count + 1);
                }
            }
            count
        };
        if rename(&mut lists.in_inode) > 0 {
            let mut tail = vec![0; snapshot.tail.len()];
            write_in_inode(&mut tail, &lists.in_inode);
            self.change_inode(handle, node, |snapshot| snapshot.tail = tail.into())?;
        }
        if let Some(block) = block
            && rename(&mut lists.in_block) > 0
        {
            self.update(handle, block.number, block.place, |bytes| {
                let users = XattrBlock::parse(bytes).map_or(1, |block| block.refcount);
                overwrite_block(bytes, &lists.in_block);
                set_block_refcount(bytes, users, false);
                self.set_checksum(bytes, block.number);
            })?;
        }
        Ok(())
    }

    /// Renames the owner of values, whose number was `old`, where they name it, as Lustre's do.
    pub(crate) fn renumber_owner(
        &self,
        handle: &mut Handle<'_>,
        snapshot: &Snapshot,
        old: InodeNumber,
    ) -> Result<()> {
        for ino in self.value_holders(snapshot)? {
            let (holder, _) = self.value_inode(ino)?;
            let is_owned =
                holder.inode.raw_times[1] == old.0 && holder.inode.generation == snapshot.inode.generation;
            if is_owned {
                self.change_inode(handle, &Node::new(holder, None), |holder| {
                    holder.inode.raw_times[1] = snapshot.ino.0;
                })?;
            }
        }
        Ok(())
    }
}
