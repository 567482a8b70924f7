//! Extended attributes: in the inode, in a block that inodes may share, and as content of inodes of their own.

use crate::{Ext4, Place, Result, Snapshot, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrBlock, XattrEntry, XattrList, XattrValue};
use dentree_ext4_format::{InodeFlags, InodeNumber, Problem, acl_to_xattr};

impl Ext4 {
    /// The value of the attribute that users call `name`.
    pub(crate) fn xattr(&self, node: &Snapshot, name: &[u8]) -> Result<Option<Vec<u8>>> {
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

    /// The names that users see.
    pub(crate) fn xattr_names(&self, node: &Snapshot) -> Result<Vec<Vec<u8>>> {
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
        let Some(block) = node.inode.xattr_block else { return Ok(()) };
        let place = node.place(Structure::XattrBlock).at(block);
        let buffer = self.metadata(block, place)?;
        let parsed = XattrBlock::parse(&buffer).map_err(|problem| place.corrupt(problem))?;
        if self.sb.has_metadata_csum() {
            parsed.verify(self.sb.checksum_seed, block).map_err(|problem| place.corrupt(problem))?;
        }
        visit(parsed.list, place)
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
        Ok(value)
    }
}
