//! Sharing of existing blocks and values.

use super::block::BLOCK_CREDITS;
use super::value::{VALUE_CREDITS, inodes_of};
use crate::{BlockNumber, Ext4, Node, Result};
use dentree_ext4_format::InodeNumber;
use dentree_ext4_format::xattr::{Namespace, XattrValue};

impl Ext4 {
    /// The attribute block of an inode. Like any read, this caches it for sharing.
    ///
    /// # Errors
    /// Those of reading a block that may be damaged.
    pub fn attribute_block(&self, node: &Node) -> Result<Option<BlockNumber>> {
        let _attributes = node.attributes();
        Ok(self.xattr_block(&node.snapshot())?.map(|block| block.block.number))
    }

    /// Replaces an inode's attribute block by a cached one with equal content, free for another
    /// user, and a lower number. Returns the block then in use. With all blocks cached, repeating
    /// this for all inodes until nothing changes leaves the fewest possible blocks.
    ///
    /// # Errors
    /// Those of [`attribute_block`](Ext4::attribute_block), and of any change.
    pub fn share_attribute_block(&self, node: &Node) -> Result<Option<BlockNumber>> {
        let mut unused = Vec::new();
        let _attributes = node.attributes_mut();
        let snapshot = node.snapshot();
        let mut text = Vec::new();
        let (lists, old) = self.lists(&snapshot, &mut text)?;
        let Some(old) = old else { return Ok(None) };
        let values = self.check_values(&lists)?;
        let mut handle = self.start(1 + BLOCK_CREDITS + VALUE_CREDITS * values)?;
        let is_lower = |number: BlockNumber| number < old.number;
        let Some(shared) = self.share_block(&mut handle, is_lower, old.key, &lists.in_block)? else {
            return Ok(Some(old.number));
        };
        let moved = self.release_block(&mut handle, &old).and_then(|is_freed| {
            let released = inodes_of(&lists.in_block).filter(|_| is_freed);
            released.into_iter().try_for_each(|ino| self.remove_value_user(&mut handle, ino, &mut unused))?;
            self.change_inode(&mut handle, node, |snapshot| snapshot.inode.xattr_block = Some(shared))
        });
        self.all_or_abort(moved)?;
        handle.stop();
        self.free_values(unused);
        Ok(Some(shared))
    }

    /// The inodes with values of an inode's attributes, one for each attribute. Caches them for
    /// sharing.
    ///
    /// # Errors
    /// Those of reading values that may be damaged.
    pub fn attribute_values(&self, node: &Node) -> Result<Vec<InodeNumber>> {
        let values = self.values_in_inodes(node)?;
        Ok(values.into_iter().map(|found| found.holder).collect())
    }

    /// Moves values to cached inodes with equal content and lower numbers. Returns what
    /// [`attribute_values`](Ext4::attribute_values) does. Repeat it as for
    /// [blocks](Ext4::share_attribute_block).
    ///
    /// # Errors
    /// Those of [`attribute_values`](Ext4::attribute_values), and of any change.
    pub fn share_attribute_values(&self, node: &Node) -> Result<Vec<InodeNumber>> {
        for found in self.values_in_inodes(node)? {
            self.share_value(node, (found.namespace, &found.name), &found.value, found.holder)?;
        }
        let _attributes = node.attributes();
        let snapshot = node.snapshot();
        let mut text = Vec::new();
        let (lists, _) = self.lists(&snapshot, &mut text)?;
        Ok(lists.values().collect())
    }

    fn values_in_inodes(&self, node: &Node) -> Result<Vec<Found>> {
        let _attributes = node.attributes();
        let snapshot = node.snapshot();
        let mut all = Vec::new();
        self.in_each_list(&snapshot, |list, place| {
            for entry in list.iter() {
                let entry = entry.map_err(|problem| place.corrupt(problem))?;
                let namespace = Namespace::from_index(entry.name_index);
                if let (XattrValue::Inode { inode, .. }, Some(namespace)) = (entry.value, namespace) {
                    let value = self.xattr_value(&snapshot, &entry, place)?;
                    all.push(Found { namespace, name: entry.name.to_vec(), value, holder: inode });
                }
            }
            Ok(())
        })?;
        Ok(all)
    }
}

struct Found {
    namespace: Namespace,
    name: Vec<u8>,
    value: Vec<u8>,
    holder: InodeNumber,
}
