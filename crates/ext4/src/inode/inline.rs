//! Content and directory entries kept in the inode: 60 bytes in `i_block`, the rest in attribute `system.data`.

use crate::inode::Snapshot;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrList, XattrValue};
use dentree_ext4_format::{InodeNumber, Problem};

/// An inline directory begins with its parent's inode number; `.` and `..` have no entries.
const PARENT_LEN: usize = 4;

impl Ext4 {
    /// The two parts of inline content.
    fn inline_parts<'a>(&self, node: &'a Snapshot) -> Result<(&'a [u8; 60], &'a [u8])> {
        let corrupt = |problem| node.place(Structure::InlineData).corrupt(problem);
        let Some(list) = XattrList::in_inode(&node.tail) else { return Ok((&node.inode.block, &[])) };
        let rest = match list.find(Namespace::System, b"data").map_err(corrupt)?.map(|entry| entry.value) {
            None => &[],
            Some(XattrValue::Inline(value)) => value,
            Some(XattrValue::Inode { inode, .. }) => {
                let (field, because) = ("e_value_inum", "is no place for inline data");
                return Err(corrupt(Problem::Value { field, value: u64::from(inode.0), because }));
            }
        };
        Ok((&node.inode.block, rest))
    }

    /// Fills `buf`, which ends within the file, from byte `offset`.
    pub(crate) fn read_inline(&self, node: &Snapshot, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (first, rest) = self.inline_parts(node)?;
        let have = first.len() + rest.len();
        let need = usize::try_from(node.inode.size).unwrap_or(usize::MAX);
        if need > have {
            let short = Problem::Short { what: "the file", need, have };
            return Err(node.place(Structure::InlineData).corrupt(short));
        }
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = first.iter().chain(rest).skip(skip);
        buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    /// The pieces of an inline directory that hold entries, each with its position.
    pub(crate) fn inline_entries<'a>(&self, dir: &'a Snapshot) -> Result<[(u64, &'a [u8]); 2]> {
        let (first, rest) = self.inline_parts(dir)?;
        let entries = first.get(PARENT_LEN..).unwrap_or_default();
        Ok([(4, entries), (60, rest)])
    }

    /// The parent of an inline directory.
    pub(crate) fn inline_parent(&self, dir: &Snapshot) -> Result<InodeNumber> {
        let (first, _) = self.inline_parts(dir)?;
        let parent = InodeNumber(first.first_chunk().copied().map_or(0, u32::from_le_bytes));
        self.sb
            .check_inode("the parent directory", parent)
            .map_err(|problem| dir.place(Structure::InlineData).corrupt(problem))?;
        Ok(parent)
    }
}
