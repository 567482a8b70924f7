//! Extended attributes: in the inode, in a block, or with the value in an inode of its own.
//!
//! | file | what |
//! |---|---|
//! | this one | reads |
//! | `change` | setting, removing |
//! | `fields` | more inode fields at the expense of attributes |
//! | `block` | attribute blocks |
//! | `initial` | new inodes |
//! | `dedup` | sharing of what exists |
//! | `relocate` | other places for blocks and values |
//! | `value` | values in inodes |
//!
//! # Placement
//! An attribute goes into the inode if it fits, else into the block, else (`ea_inode`) its value
//! into an inode. Others stay in place, unless the inode has fewer fields than the file system
//! wants: then it gets those, and attributes that no longer fit move to the block.
//!
//! # Who protects what
//! - An inode's attributes: its [`Node`]'s attribute lock, taken before content locks and handles.
//!   Inline content shares the space under other locks; a new list takes it from the newest
//!   snapshot ([`adopt_inline_data`]).
//! - Users and content of a block, or a value: they change only within the closure of
//!   [`update`](Ext4::update). With several users only their number changes.
//!
//! # Sharing
//! Two caches ([`dentree_mbcache`]) map hashes to blocks and to values. Reads and changes add what
//! they use, under the attribute lock. A found entry is held while its content is compared and
//! until the new user is counted. The last user removes the entry and waits for its holders before
//! it frees or rewrites the content ([`leave`](MbCache::leave), tested in all interleavings):
//! nothing freed gets a new user.
//!
//! No deadlock: holders of a block's entry wait for nothing, holders of a value's entry at most for
//! those. Entries are looked up with the handle open, so no holder waits for a commit.

mod block;
mod change;
mod dedup;
mod fields;
mod initial;
mod lists;
mod relocate;
mod value;

use crate::inode::Snapshot;
use crate::{Ext4, Node, Place, Result, Structure};
pub(crate) use change::{adopt_inline_data, remove_inline_data};
use dentree_ext4_format::xattr::{Namespace, XattrEntry, XattrList, XattrValue};
use dentree_ext4_format::{InodeFlags, InodeNumber, Problem, acl_to_xattr};
use dentree_mbcache::MbCache;

/// About a hundred thousand entries each.
const CACHE_BYTES: usize = 4 << 20;

pub(crate) struct XattrCaches {
    /// Hash of a block → its number.
    blocks: MbCache,
    /// Hash of a value → its inode.
    values: MbCache,
}

impl Default for XattrCaches {
    fn default() -> XattrCaches {
        XattrCaches { blocks: MbCache::new(CACHE_BYTES), values: MbCache::new(CACHE_BYTES) }
    }
}

impl Ext4 {
    /// `name` has its prefix.
    pub(crate) fn getxattr(&self, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>> {
        // Most inodes have none; each creation asks the directory for a default ACL.
        if node.with_snapshot(|node| node.inode.xattr_block.is_none() && node.tail.is_empty()) {
            return Ok(None);
        }
        let _attributes = node.attributes();
        self.xattr(&node.snapshot(), name)
    }

    /// Returns names with prefixes.
    pub(crate) fn listxattr(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
        let _attributes = node.attributes();
        self.xattr_names(&node.snapshot())
    }

    fn xattr(&self, node: &Snapshot, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((namespace, rest)) = Namespace::split(name) else { return Ok(None) };
        if !namespace.is_listed() {
            return Ok(None);
        }
        let mut found = None;
        self.in_each_list(node, |list, place| {
            if found.is_none()
                && let Some(entry) = list.find(namespace, rest).map_err(|problem| place.corrupt(problem))?
            {
                found = Some(self.xattr_value(node, &entry, place)?);
            }
            Ok(())
        })?;
        match namespace {
            Namespace::PosixAclAccess | Namespace::PosixAclDefault => {
                let place = node.place(Structure::XattrValue);
                found.map(|disk| acl_to_xattr(&disk).map_err(|problem| place.corrupt(problem))).transpose()
            }
            _ => Ok(found),
        }
    }

    fn xattr_names(&self, node: &Snapshot) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.in_each_list(node, |list, place| {
            for entry in list.iter() {
                let entry = entry.map_err(|problem| place.corrupt(problem))?;
                let namespace = Namespace::from_index(entry.name_index);
                if let Some(namespace) = namespace.filter(|namespace| namespace.is_listed()) {
                    names.push([namespace.prefix().as_bytes(), entry.name].concat());
                }
            }
            Ok(())
        })?;
        Ok(names)
    }

    pub(crate) fn has_access_acl(&self, node: &Snapshot) -> Result<bool> {
        let mut found = false;
        self.in_each_list(node, |list, place| {
            let entry =
                list.find(Namespace::PosixAclAccess, b"").map_err(|problem| place.corrupt(problem))?;
            found |= entry.is_some();
            Ok(())
        })?;
        Ok(found)
    }

    fn in_each_list(
        &self,
        node: &Snapshot,
        mut visit: impl FnMut(XattrList<'_>, Place) -> Result<()>,
    ) -> Result<()> {
        if let Some(list) = XattrList::in_inode(&node.tail) {
            visit(list, node.place(Structure::InodeXattrs))?;
        }
        match self.xattr_block(node)? {
            Some(block) => visit(block.list()?, block.block.place),
            None => Ok(()),
        }
    }

    fn xattr_value(&self, node: &Snapshot, entry: &XattrEntry<'_>, place: Place) -> Result<Vec<u8>> {
        match entry.value {
            XattrValue::Inline(value) => Ok(value.to_vec()),
            XattrValue::Inode { inode, size } => self.value_in_inode(node, entry, place, (inode, size)),
        }
    }

    /// Verifies the value's hashes.
    fn value_in_inode(
        &self,
        node: &Snapshot,
        entry: &XattrEntry<'_>,
        place: Place,
        (ino, size): (InodeNumber, u32),
    ) -> Result<Vec<u8>> {
        let holder = self.read_inode(ino)?;
        let corrupt = |problem| Structure::XattrValue.of(ino).corrupt(problem);
        if !holder.has(InodeFlags::EA_INODE) || holder.has(InodeFlags::INLINE_DATA) {
            let because = "lacks the flag of attribute values (EA_INODE)";
            let value = u64::from(holder.inode.flags.0);
            return Err(corrupt(Problem::Value { field: "i_flags", value, because }));
        }
        Problem::check_range("i_size", holder.inode.size, u64::from(size), u64::from(size))
            .map_err(corrupt)?;
        let mut value = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.read_content(&holder, 0, &mut value)?;
        let [stored, parent] = holder.inode.raw_times;
        let computed = self.sb.checksum_seed.sum(&value);
        // Lustre's format, before there were hashes: the value's inode names its one owner.
        let owned = parent == node.ino.0 && holder.inode.generation == node.inode.generation;
        if stored != computed && owned {
            return Ok(value);
        }
        Problem::check_sum(stored, computed).map_err(corrupt)?;
        entry.verify_hash(stored).map_err(|problem| place.corrupt(problem))?;
        if let Some(writer) = self.writer.as_ref().filter(|_| !owned) {
            writer.xattr_caches.cache_value(stored, ino);
        }
        Ok(value)
    }
}
