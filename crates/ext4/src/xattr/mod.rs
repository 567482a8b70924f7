//! Extended attributes: in the inode, in a block that inodes may share, and as content of inodes of their own.
//!
//! | file | what |
//! |---|---|
//! | this one | reading |
//! | `change` | one attribute is set or removed: where it goes, and in which order things happen |
//! | `fields` | attributes make room where an inode lacks fields |
//! | `block` | blocks of attributes and who shares them |
//! | `initial` | what a new inode begins with |
//! | `dedup` | sharing after the fact |
//! | `value` | values in inodes of their own and who shares those |
//!
//! # Where an attribute goes
//! Into the inode if it fits there beside the others; else into the block; else, where the file system has ea_inode, its value into an
//! inode of its own, which the entry names. The others stay where they are, but for an inode with fewer fields than the file system wants:
//! it gets those, and what has no room behind them then goes into the block.
//!
//! # Who protects what
//! Attributes of an inode: the attribute lock of its [`Node`], shared to read, exclusive to change; taken before content locks
//! and handles. What is in the inode itself also changes with inline content, under other locks: whoever puts a new list there takes
//! that content over from the newest snapshot ([`adopt_inline_data`]).
//!
//! A block's users and content: the closure that [`update`](Ext4::update) runs on it is the one step in which either changes. A block
//! with several users never changes but in their number. The same holds for values in inodes.
//!
//! # Sharing
//! Two caches ([`dentree_mbcache`]) say which blocks, and which values, have a hash. They are filled by who writes one and by who reads
//! one, always while it is a user of it, under its attribute lock. Who has found an entry holds it while it compares and until
//! it is counted as a user; who is the last user takes the entry out of the cache, waiting for those who hold it, before it frees or
//! rewrites what the entry stands for ([`leave`](MbCache::leave), which is tried in all interleavings). So nobody becomes a user of something that is gone. Holders of a block's entry wait for nobody;
//! holders of a value's entry wait at most for those; and entries are looked for with the handle open, so that nobody who
//! holds one waits for a commit.

mod block;
mod change;
mod dedup;
mod fields;
mod initial;
mod lists;
mod value;

use crate::inode::Snapshot;
use crate::{Ext4, Node, Place, Result, Structure};
pub(crate) use change::{adopt_inline_data, remove_inline_data};
use dentree_ext4_format::xattr::{Namespace, XattrEntry, XattrList, XattrValue};
use dentree_ext4_format::{InodeFlags, InodeNumber, Problem, acl_to_xattr};
use dentree_mbcache::MbCache;

/// Most memory of each of the two caches, in bytes: a hundred thousand blocks.
const CACHE_BYTES: usize = 4 << 20;

/// What can be shared with more users.
pub(crate) struct Shared {
    /// Hash of a block of attributes → block number.
    blocks: MbCache,
    /// Hash of a value → number of the inode that holds it.
    values: MbCache,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { blocks: MbCache::new(CACHE_BYTES), values: MbCache::new(CACHE_BYTES) }
    }
}

impl Ext4 {
    /// The value of the attribute that users call `name`.
    pub(crate) fn get_xattr(&self, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>> {
        // So it is with most inodes, at this instant: each file that is made asks its directory for a default ACL.
        if node.look(|node| node.inode.xattr_block.is_none() && node.tail.is_empty()) {
            return Ok(None);
        }
        let _attributes = node.attributes();
        self.xattr(&node.snapshot(), name)
    }

    /// The names that users see.
    pub(crate) fn list_xattrs(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
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

    /// Whether the inode has an access ACL.
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

    /// Calls `visit` for the list in the inode and for that in its attribute block.
    fn in_each_list(
        &self,
        node: &Snapshot,
        mut visit: impl FnMut(XattrList<'_>, Place) -> Result<()>,
    ) -> Result<()> {
        if let Some(list) = XattrList::in_inode(&node.tail) {
            visit(list, node.place(Structure::InodeXattrs))?;
        }
        match self.xattr_block(node)? {
            Some(held) => visit(held.list()?, held.block.place),
            None => Ok(()),
        }
    }

    fn xattr_value(&self, node: &Snapshot, entry: &XattrEntry<'_>, place: Place) -> Result<Vec<u8>> {
        match entry.value {
            XattrValue::Inline(value) => Ok(value.to_vec()),
            XattrValue::Inode { inode, size } => self.value_in_inode(node, entry, place, (inode, size)),
        }
    }

    /// Reads a value that is the content of an inode, and verifies the hashes that inode and entry have of it.
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
            let because = "does not mark an inode that holds an attribute's value";
            let value = u64::from(holder.inode.flags.0);
            return Err(corrupt(Problem::Value { field: "i_flags", value, because }));
        }
        Problem::check_range("i_size", holder.inode.size, u64::from(size), u64::from(size))
            .map_err(corrupt)?;
        let mut value = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.read_content(&holder, 0, &mut value)?;
        let [stored, parent] = holder.inode.raw_times;
        let computed = self.sb.checksum_seed.sum(&value);
        // Lustre's way, from before there were hashes: the inode names its one owner.
        let owned = parent == node.ino.0 && holder.inode.generation == node.inode.generation;
        if stored != computed && owned {
            return Ok(value);
        }
        Problem::check_sum(stored, computed).map_err(corrupt)?;
        entry.verify_hash(stored).map_err(|problem| place.corrupt(problem))?;
        if let Some(writer) = self.writer.as_ref().filter(|_| !owned) {
            writer.shared.remember_value(stored, ino);
        }
        Ok(value)
    }
}
