//! Writes attributes like the kernel: entries from the front, values from the back.

use super::{
    ALIGN, MAGIC, RawBlockHeader, RawEntry, RawInodeHeader, XattrBlock, XattrEntry, XattrValue, block_hash,
    entry_hash,
};
use crate::InodeNumber;
use crate::hash::CharSign;
use std::cmp::Ordering;
use zerocopy::{FromBytes, IntoBytes};

/// The kernel does not let more inodes share a block. More are valid.
pub const MAX_BLOCK_USERS: u32 = 1024;

impl<'a> XattrEntry<'a> {
    /// With a value in the list.
    pub fn new(name_index: u8, name: &'a [u8], value: &'a [u8]) -> Self {
        let hash = entry_hash(name, value, CharSign::Unsigned);
        XattrEntry { name_index, name, value: XattrValue::Inline(value), hash }
    }

    /// With a value of `size` bytes in `inode`, which stores `inode_hash`.
    pub fn new_in_inode(
        name_index: u8,
        name: &'a [u8],
        inode: InodeNumber,
        size: u32,
        inode_hash: u32,
    ) -> Self {
        let hash = entry_hash(name, &inode_hash.to_le_bytes(), CharSign::Unsigned);
        XattrEntry { name_index, name, value: XattrValue::Inode { inode, size }, hash }
    }

    /// Order in a block.
    pub fn order_in_block(&self, other: &XattrEntry<'_>) -> Ordering {
        let key = |entry: &XattrEntry<'a>| (entry.name_index, entry.name.len(), entry.name);
        key(self).cmp(&(other.name_index, other.name.len(), other.name))
    }

    /// Bytes of entry and value.
    pub fn len_in_list(&self) -> usize {
        self.entry_len() + self.inline_value().len().next_multiple_of(ALIGN)
    }

    fn entry_len(&self) -> usize {
        (size_of::<RawEntry>() + self.name.len()).next_multiple_of(ALIGN)
    }

    fn inline_value(&self) -> &'a [u8] {
        match self.value {
            XattrValue::Inline(value) => value,
            XattrValue::Inode { .. } => &[],
        }
    }
}

/// Whether the attributes fit into `space` bytes after an inode's fields.
pub fn fits_in_inode(space: usize, attributes: &[XattrEntry<'_>]) -> bool {
    attributes.is_empty() || size_of::<RawInodeHeader>() + list_len(attributes) <= space
}

/// Whether the attributes fit into a block.
pub fn fits_in_block(block_size: usize, attributes: &[XattrEntry<'_>]) -> bool {
    size_of::<RawBlockHeader>() + list_len(attributes) <= block_size
}

fn list_len(attributes: &[XattrEntry<'_>]) -> usize {
    attributes.iter().map(XattrEntry::len_in_list).sum::<usize>() + ALIGN
}

/// Writes a list over `space`, the bytes after an inode's fields; it must [fit](fits_in_inode).
/// Stores no hashes of values in the list, as kernels that change values without an update do not.
pub fn write_in_inode(space: &mut [u8], attributes: &[XattrEntry<'_>]) {
    space.fill(0);
    if attributes.is_empty() {
        return;
    }
    let Ok((header, list)) = RawInodeHeader::mut_from_prefix(space) else { return };
    header.h_magic.set(MAGIC);
    write_list(list, 0, attributes, false);
}

/// Writes a block with reference count 1 over zeros, without checksum. Attributes are [in
/// order](XattrEntry::order_in_block), and [fit](fits_in_block). Returns the block's hash.
pub fn write_block(bytes: &mut [u8], attributes: &[XattrEntry<'_>]) -> u32 {
    let hash = block_hash(attributes.iter().map(|attribute| attribute.hash));
    let Ok((header, _)) = RawBlockHeader::mut_from_prefix(bytes) else { return hash };
    header.h_magic.set(MAGIC);
    header.h_refcount.set(1);
    header.h_blocks.set(1);
    header.h_hash.set(hash);
    write_list(bytes, size_of::<RawBlockHeader>(), attributes, true);
    hash
}

/// As [`write_block`], over an existing list.
pub fn overwrite_block(bytes: &mut [u8], attributes: &[XattrEntry<'_>]) -> u32 {
    let (entries, values) =
        XattrBlock::parse(bytes).and_then(|block| block.list.bounds()).unwrap_or_default();
    let new_entries = attributes.iter().map(XattrEntry::entry_len).sum();
    let new_values = bytes.len().saturating_sub(list_len(attributes) - new_entries);
    let front = size_of::<RawBlockHeader>() + entries.max(new_entries) + ALIGN;
    let back = values.min(new_values).max(front.min(bytes.len()));
    bytes.get_mut(back..).unwrap_or_default().fill(0);
    bytes.get_mut(..front).unwrap_or_default().fill(0);
    write_block(bytes, attributes)
}

/// Entries from byte `front`, values to the end; value offsets start at byte 0.
fn write_list(bytes: &mut [u8], front: usize, attributes: &[XattrEntry<'_>], has_hashes: bool) {
    let (mut front, mut back) = (front, bytes.len());
    for attribute in attributes {
        let value = attribute.inline_value();
        back = back.saturating_sub(value.len().next_multiple_of(ALIGN));
        put(bytes, back, value);
        let (inode, size) = match attribute.value {
            XattrValue::Inline(value) => (0, u32::try_from(value.len()).unwrap_or(u32::MAX)),
            XattrValue::Inode { inode, size } => (inode.0, size),
        };
        let offset = if value.is_empty() { 0 } else { u16::try_from(back).unwrap_or(u16::MAX) };
        let hash = if has_hashes || inode != 0 { attribute.hash } else { 0 };
        let raw = RawEntry {
            e_name_len: u8::try_from(attribute.name.len()).unwrap_or(u8::MAX),
            e_name_index: attribute.name_index,
            e_value_offs: offset.into(),
            e_value_inum: inode.into(),
            e_value_size: size.into(),
            e_hash: hash.into(),
        };
        put(bytes, front, raw.as_bytes());
        put(bytes, front + size_of::<RawEntry>(), attribute.name);
        front += attribute.entry_len();
    }
}

fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    bytes.get_mut(at..).unwrap_or_default().iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::super::{XattrBlock, XattrList};
    use super::*;
    use crate::{BlockNumber, ChecksumSeed, Problem};
    use proptest::prelude::*;

    fn read<'a>(list: XattrList<'a>) -> Vec<XattrEntry<'a>> {
        list.iter().collect::<Result<_, Problem>>().unwrap()
    }

    fn attributes() -> impl Strategy<Value = Vec<(u8, Vec<u8>, Vec<u8>, u32)>> {
        let name = proptest::collection::vec(1_u8.., 1..40);
        let value = proptest::collection::vec(any::<u8>(), 0..40);
        proptest::collection::vec((1_u8..11, name, value, 0_u32..4), 0..10)
    }

    /// Every fourth value is in an inode.
    fn entries(of: &[(u8, Vec<u8>, Vec<u8>, u32)]) -> Vec<XattrEntry<'_>> {
        of.iter()
            .map(|(index, name, value, inode)| match inode {
                3 => XattrEntry::new_in_inode(*index, name, InodeNumber(*inode), 70_000, 0x5EED),
                _ => XattrEntry::new(*index, name, value),
            })
            .collect()
    }

    #[test]
    fn names_are_ordered_by_space_then_length_then_bytes() {
        let mut all = [(6, "a"), (1, "bb"), (1, "c"), (1, "b")]
            .map(|(index, name)| XattrEntry::new(index, name.as_bytes(), b""));
        all.sort_by(XattrEntry::order_in_block);
        assert_eq!(all.map(|entry| entry.name), [&b"b"[..], b"c", b"bb", b"a"]);
    }

    #[test]
    fn a_list_that_fills_its_space_fits() {
        let value = [7; 100];
        let one = [XattrEntry::new(1, b"name", &value)];
        // Magic number, entry and name, value, end mark.
        assert!(fits_in_inode(4 + 20 + 100 + 4, &one) && !fits_in_inode(4 + 20 + 100 + 3, &one));
        assert!(fits_in_block(32 + 20 + 100 + 4, &one) && !fits_in_block(32 + 20 + 100 + 3, &one));
        assert!(fits_in_inode(0, &[]));
        let mut space = [0xFF; 128];
        write_in_inode(&mut space, &one);
        assert_eq!(read(XattrList::in_inode(&space).unwrap()), [XattrEntry { hash: 0, ..one[0] }]);
        write_in_inode(&mut space, &[]);
        assert_eq!(space, [0; 128]);
    }

    proptest! {
        #[test]
        fn written_lists_are_read_back(attributes in attributes()) {
            let mut entries = entries(&attributes);
            let mut space = vec![0xFF; 1100];
            write_in_inode(&mut space, &entries);
            let in_inode = XattrList::in_inode(&space).map_or(Vec::new(), read);
            prop_assert_eq!(in_inode.len(), entries.len());
            for (read, written) in in_inode.iter().zip(&entries) {
                let has_hash = matches!(written.value, XattrValue::Inode { .. });
                prop_assert_eq!(*read, XattrEntry { hash: if has_hash { written.hash } else { 0 }, ..*written });
            }
            entries.sort_by(XattrEntry::order_in_block);
            let mut block = vec![0; 2048];
            let hash = write_block(&mut block, &entries);
            super::super::set_block_checksum(&mut block, BlockNumber(9), ChecksumSeed(1));
            super::super::set_block_refcount(&mut block, 2, true);
            let parsed = XattrBlock::parse(&block).unwrap();
            prop_assert_eq!((parsed.refcount, parsed.hash), (2, hash));
            prop_assert_eq!(parsed.verify(ChecksumSeed(1), BlockNumber(9)), Ok(()));
            prop_assert_eq!(read(parsed.list), entries.clone());
            // Over a list and arbitrary bytes, to fewer and to more attributes.
            let some = &entries[entries.len() / 2..];
            let mut written = block.clone();
            for list in [some, &entries] {
                let mut fresh = vec![0; 2048];
                write_block(&mut fresh, list);
                for mut over in [written.clone(), vec![0xFF; 2048]] {
                    overwrite_block(&mut over, list);
                    prop_assert_eq!(&over, &fresh);
                }
                written = fresh;
            }
            for entry in &entries {
                prop_assert_eq!(entry.verify_hash(0x5EED), Ok(()));
            }
        }
    }
}
