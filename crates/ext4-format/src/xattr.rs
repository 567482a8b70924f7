//! Extended attributes, in an inode and in a block that inodes may share.
//!
//! Both have the same list: entries with their names, four zero bytes, and values at the end.
//! Offsets of values start at the first entry (inode) or at the block's start. With `ea_inode` an
//! entry may refer to an inode whose content is the value.
//!
//! Source: kernel document `attributes.rst`.

mod write;

use crate::hash::CharSign;
use crate::raw::raw_layout;
use crate::{BlockNumber, ChecksumSeed, InodeNumber, Problem, SumChange, crc32c};
use std::ops::Range;
pub use write::{
    MAX_BLOCK_USERS, fits_in_block, fits_in_inode, overwrite_block, write_block, write_in_inode,
};
use zerocopy::{FromBytes, little_endian as le};

raw_layout! {
    /// `struct ext4_xattr_ibody_header`.
    RawInodeHeader, size 4 {
        0x0 h_magic: le::U32,
    }
}

raw_layout! {
    /// `struct ext4_xattr_header`.
    RawBlockHeader, size 32 {
        0x00 h_magic: le::U32,
        0x04 h_refcount: le::U32,
        0x08 h_blocks: le::U32,
        0x0C h_hash: le::U32,
        0x10 h_checksum: le::U32,
        0x14 h_reserved: [le::U32; 3],
    }
}

raw_layout! {
    /// `struct ext4_xattr_entry` without its name.
    RawEntry, size 16 {
        0x0 e_name_len: u8,
        0x1 e_name_index: u8,
        0x2 e_value_offs: le::U16,
        0x4 e_value_inum: le::U32,
        0x8 e_value_size: le::U32,
        0xC e_hash: le::U32,
    }
}

const MAGIC: u32 = 0xea02_0000;
/// Of entries, values and the end mark.
const ALIGN: usize = 4;
/// The kernel's limit.
const MAX_VALUE: u32 = 1 << 24;

/// Stored in place of a name's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// `user.`: for writers of the file.
    User,
    /// `system.posix_acl_access`.
    PosixAclAccess,
    /// `system.posix_acl_default`.
    PosixAclDefault,
    /// `trusted.`: for root.
    Trusted,
    /// `lustre.`.
    Lustre,
    /// `security.`: labels and capabilities.
    Security,
    /// `system.`: internal, as `system.data` of an inline file.
    System,
    /// `system.richacl`.
    RichAcl,
    /// Encryption context; not visible.
    Encryption,
    /// `gnu.`: Hurd translators.
    Hurd,
}

/// `e_name_index` and prefix; the longer of overlapping prefixes first.
const NAMESPACES: [(Namespace, u8, &str); 10] = [
    (Namespace::User, 1, "user."),
    (Namespace::PosixAclAccess, 2, "system.posix_acl_access"),
    (Namespace::PosixAclDefault, 3, "system.posix_acl_default"),
    (Namespace::Trusted, 4, "trusted."),
    (Namespace::Lustre, 5, "lustre."),
    (Namespace::Security, 6, "security."),
    (Namespace::RichAcl, 8, "system.richacl"),
    (Namespace::System, 7, "system."),
    (Namespace::Encryption, 9, "encryption."),
    (Namespace::Hurd, 10, "gnu."),
];

impl Namespace {
    /// From `e_name_index`.
    pub fn from_index(index: u8) -> Option<Self> {
        NAMESPACES.iter().find(|(_, i, _)| *i == index).map(|(namespace, ..)| *namespace)
    }

    /// `e_name_index`.
    pub fn index(self) -> u8 {
        NAMESPACES.iter().find(|(namespace, ..)| *namespace == self).map_or(0, |(_, index, _)| *index)
    }

    /// Prefix, or the whole name if the stored name is always empty.
    pub fn prefix(self) -> &'static str {
        NAMESPACES.iter().find(|(namespace, ..)| *namespace == self).map_or("", |(.., prefix)| *prefix)
    }

    /// Splits a full name. `None`: it cannot be stored.
    pub fn split(name: &[u8]) -> Option<(Self, &[u8])> {
        NAMESPACES.iter().find_map(|&(namespace, _, prefix)| {
            let rest = name.strip_prefix(prefix.as_bytes())?;
            (prefix.ends_with('.') != rest.is_empty()).then_some((namespace, rest))
        })
    }

    /// Whether `listxattr(2)` shows these names.
    pub fn is_listed(self) -> bool {
        matches!(
            self,
            Self::User | Self::PosixAclAccess | Self::PosixAclDefault | Self::Trusted | Self::Security
        )
    }
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// In the list.
    Inline(&'a [u8]),
    /// The content of an inode (`ea_inode`).
    Inode {
        /// Not validated.
        inode: InodeNumber,
        /// At most 16 MiB.
        size: u32,
    },
}

/// An attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// See [`Namespace::from_index`].
    pub name_index: u8,
    /// Without its prefix.
    pub name: &'a [u8],
    /// Value.
    pub value: XattrValue<'a>,
    /// `e_hash` of name and value; 0: not computed, as in inodes.
    pub hash: u32,
}

impl XattrEntry<'_> {
    /// Verifies `e_hash`. `inode_hash`: stored in the value's inode. Names hashed as signed and as
    /// unsigned `char` are both valid.
    pub fn verify_hash(&self, inode_hash: u32) -> Result<(), Problem> {
        let computed = |sign| match self.value {
            XattrValue::Inline(value) => entry_hash(self.name, value, sign),
            XattrValue::Inode { .. } => entry_hash(self.name, &inode_hash.to_le_bytes(), sign),
        };
        if self.hash == computed(CharSign::Signed) {
            return Ok(());
        }
        Problem::check_sum(self.hash, computed(CharSign::Unsigned))
    }
}

/// A list of attributes. Each entry is validated when visited.
#[derive(Debug, Clone, Copy)]
pub struct XattrList<'a> {
    /// From the first entry.
    entries: &'a [u8],
    /// From the base of value offsets.
    values: &'a [u8],
}

impl<'a> XattrList<'a> {
    /// The list after an inode's fields. `None`: there is none.
    pub fn in_inode(space: &'a [u8]) -> Option<Self> {
        let (header, entries) = RawInodeHeader::ref_from_prefix(space).ok()?;
        let there = header.h_magic.get() == MAGIC && entries.len() >= ALIGN;
        there.then_some(Self { entries, values: entries })
    }

    /// Attributes in disk order. Stops after an error.
    pub fn iter(&self) -> XattrIter<'a> {
        XattrIter { list: *self, at: Some(0) }
    }

    /// Finds an attribute.
    pub fn find(&self, namespace: Namespace, name: &[u8]) -> Result<Option<XattrEntry<'a>>, Problem> {
        let index = namespace.index();
        self.iter()
            .find(|entry| entry.as_ref().map_or(true, |e| e.name_index == index && e.name == name))
            .transpose()
    }

    /// Range of a value after an inode's fields.
    pub fn place_in_inode(&self, namespace: Namespace, name: &[u8]) -> Result<Option<Range<usize>>, Problem> {
        let index = namespace.index();
        let mut at = 0;
        while let Some((entry, next)) = self.entry(at)? {
            if entry.name_index == index && entry.name == name {
                let XattrValue::Inline(value) = entry.value else { return Ok(None) };
                let begin = ALIGN + self.value_offset(at);
                return Ok(Some(begin..begin + value.len()));
            }
            at = next;
        }
        Ok(None)
    }

    /// Whether two values, or a value and the entries, have bytes in common, or a value, rounded
    /// up, ends behind the space.
    pub fn overlaps(&self) -> Result<bool, Problem> {
        // Value offsets start at `values`, entry offsets at `entries`.
        let before = self.values.len() - self.entries.len();
        let (mut used, mut at) = (Vec::new(), 0);
        while let Some((entry, next)) = self.entry(at)? {
            if let XattrValue::Inline(value) = entry.value
                && !value.is_empty()
            {
                let begin = self.value_offset(at);
                used.push(begin..begin + value.len().next_multiple_of(ALIGN));
            }
            at = next;
        }
        used.push(0..before + at + ALIGN);
        used.sort_unstable_by_key(|range| range.start);
        let is_outside = used.iter().any(|range| range.end > self.values.len());
        Ok(is_outside || used.windows(2).any(|pair| matches!(pair, [one, next] if next.start < one.end)))
    }

    /// For the entry at byte `at`.
    fn value_offset(&self, at: usize) -> usize {
        let raw = RawEntry::ref_from_prefix(self.entries.get(at..).unwrap_or_default());
        raw.map_or(0, |(raw, _)| usize::from(raw.e_value_offs.get()))
    }

    /// Length of the entries, and offset of the first value.
    fn bounds(&self) -> Result<(usize, usize), Problem> {
        let (mut at, mut first) = (0, self.values.len());
        while let Some((entry, next)) = self.entry(at)? {
            if matches!(entry.value, XattrValue::Inline(value) if !value.is_empty()) {
                first = first.min(self.value_offset(at));
            }
            at = next;
        }
        Ok((at, first))
    }

    /// The entry at byte `at`, and the next one's offset; `None` at the end mark.
    fn entry(&self, at: usize) -> Result<Option<(XattrEntry<'a>, usize)>, Problem> {
        let rest = self.entries.get(at..).unwrap_or_default();
        let first =
            rest.first_chunk::<ALIGN>().ok_or(Problem::Missing { what: "the attribute list's end mark" })?;
        if *first == [0; ALIGN] {
            return Ok(None);
        }
        let short = |need| Problem::Short { what: "an attribute entry", need, have: rest.len() };
        let (raw, behind) = RawEntry::ref_from_prefix(rest).map_err(|_| short(size_of::<RawEntry>()))?;
        let name_len = usize::from(raw.e_name_len);
        let name = behind.get(..name_len).ok_or(short(size_of::<RawEntry>() + name_len))?;
        if name.contains(&0) {
            return Err(Problem::Value {
                field: "e_name",
                value: 0,
                because: "is 0, which no attribute name contains",
            });
        }
        let size = (size_of::<RawEntry>() + name_len).next_multiple_of(ALIGN);
        let value = self.value(raw)?;
        let entry = XattrEntry { name_index: raw.e_name_index, name, value, hash: raw.e_hash.get() };
        Ok(Some((entry, at + size)))
    }

    fn value(&self, raw: &RawEntry) -> Result<XattrValue<'a>, Problem> {
        let size = raw.e_value_size.get();
        Problem::check_range("e_value_size", u64::from(size), 0, u64::from(MAX_VALUE))?;
        match raw.e_value_inum.get() {
            0 if size == 0 => Ok(XattrValue::Inline(&[])),
            0 => {
                let offset = usize::from(raw.e_value_offs.get());
                let len = usize::try_from(size).unwrap_or(usize::MAX);
                let there = self.values.get(offset..).unwrap_or_default();
                there.get(..len).map(XattrValue::Inline).ok_or(Problem::Short {
                    what: "an attribute value",
                    need: len,
                    have: there.len(),
                })
            }
            inode => Ok(XattrValue::Inode { inode: InodeNumber(inode), size }),
        }
    }
}

/// Removes an attribute after an inode's fields. The value's space is reused when the list is
/// rewritten.
pub fn remove_in_inode(space: &mut [u8], namespace: Namespace, name: &[u8]) -> Result<(), Problem> {
    let Some(list) = XattrList::in_inode(space) else { return Ok(()) };
    let value = list.place_in_inode(namespace, name)?;
    let (mut removed, mut count, mut at) = (None, 0, 0);
    while let Some((entry, next)) = list.entry(at)? {
        if entry.name_index == namespace.index() && entry.name == name {
            removed = Some((at, next));
        }
        count += 1;
        at = next;
    }
    let Some((from, to)) = removed else { return Ok(()) };
    if count == 1 {
        space.fill(0);
        return Ok(());
    }
    space.get_mut(value.unwrap_or_default()).unwrap_or_default().fill(0);
    // With the end mark.
    let entries = space.get_mut(ALIGN..ALIGN + at + ALIGN).unwrap_or_default();
    let kept = entries.len() - (to - from);
    entries.copy_within(to.., from);
    entries.get_mut(kept..).unwrap_or_default().fill(0);
    Ok(())
}

/// Iterator over an [`XattrList`].
#[derive(Debug, Clone)]
pub struct XattrIter<'a> {
    list: XattrList<'a>,
    /// `None` after the last.
    at: Option<usize>,
}

impl<'a> Iterator for XattrIter<'a> {
    type Item = Result<XattrEntry<'a>, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        // Ends: entries have at least 16 bytes.
        match self.list.entry(self.at.take()?).transpose()? {
            Ok((entry, next)) => {
                self.at = Some(next);
                Some(Ok(entry))
            }
            Err(problem) => Some(Err(problem)),
        }
    }
}

/// An attribute block. Inodes with equal attributes may share it.
#[derive(Debug, Clone, Copy)]
pub struct XattrBlock<'a> {
    bytes: &'a [u8],
    /// Number of inodes.
    pub refcount: u32,
    /// `h_hash`: key in the cache of shared blocks. 0: not to be shared.
    pub hash: u32,
    checksum: u32,
    /// Attributes.
    pub list: XattrList<'a>,
}

impl<'a> XattrBlock<'a> {
    /// Parses a block.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        let (header, entries) = RawBlockHeader::ref_from_prefix(bytes).map_err(|_| Problem::Short {
            what: "an attribute block",
            need: size_of::<RawBlockHeader>(),
            have: bytes.len(),
        })?;
        let magic = header.h_magic.get();
        if magic != MAGIC {
            return Err(Problem::Magic { found: u64::from(magic), expected: u64::from(MAGIC) });
        }
        Problem::check_range("h_blocks", u64::from(header.h_blocks.get()), 1, 1)?;
        Ok(Self {
            bytes,
            refcount: header.h_refcount.get(),
            hash: header.h_hash.get(),
            checksum: header.h_checksum.get(),
            list: XattrList { entries, values: bytes },
        })
    }

    /// Verifies the checksum, over the block's number and its bytes (`metadata_csum`).
    pub fn verify(&self, seed: ChecksumSeed, number: BlockNumber) -> Result<(), Problem> {
        let computed = block_checksum(self.bytes, number, seed);
        Problem::check_sum(self.checksum, computed)
    }
}

/// Bytes of the header and a few entries: their checksum is computed directly.
const HEAD: usize = 128;

/// Sets the reference count. With `has_checksum`, updates the checksum incrementally, without
/// reading the block.
pub fn set_block_refcount(bytes: &mut [u8], refcount: u32, has_checksum: bool) {
    const AT: usize = std::mem::offset_of!(RawBlockHeader, h_refcount);
    let len = bytes.len();
    let Ok((header, _)) = RawBlockHeader::mut_from_prefix(bytes) else { return };
    let difference = header.h_refcount.get() ^ refcount;
    header.h_refcount.set(refcount);
    if has_checksum {
        let change = SumChange::at(len - AT).of(difference);
        header.h_checksum.set(header.h_checksum.get() ^ change);
    }
}

/// Writes the checksum.
pub fn set_block_checksum(bytes: &mut [u8], number: BlockNumber, seed: ChecksumSeed) {
    let sum = block_checksum(bytes, number, seed);
    if let Ok((header, _)) = RawBlockHeader::mut_from_prefix(bytes) {
        header.h_checksum.set(sum);
    }
}

/// Most of a block is zeros between entries and values. They do not change a checksum started at 0,
/// so the values' checksum is computed apart.
fn block_checksum(bytes: &[u8], number: BlockNumber, seed: ChecksumSeed) -> u32 {
    const AT: usize = std::mem::offset_of!(RawBlockHeader, h_checksum);
    const STEP: usize = 64;
    let (head, rest) = bytes.split_at(HEAD.min(bytes.len()));
    let (before, after) = (head.get(..AT), head.get(AT + 4..));
    let parts = [&number.0.to_le_bytes()[..], before.unwrap_or_default(), &[0; 4], after.unwrap_or_default()];
    let of_head = parts.into_iter().fold(seed.0, |sum, part| ChecksumSeed(sum).sum(part));
    let is_empty = |step: &&[u8]| step.iter().fold(0, |all, byte| all | byte) == 0;
    let empty = rest.chunks_exact(STEP).take_while(is_empty).count();
    let values = rest.get(empty * STEP..).unwrap_or_default();
    SumChange::at(rest.len()).of(of_head) ^ crc32c(0, values)
}

/// `e_hash`. For a value in an inode, `value` is its hash as four little-endian bytes.
pub fn entry_hash(name: &[u8], value: &[u8], sign: CharSign) -> u32 {
    let of_name = name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ sign.widen(byte));
    value.chunks(ALIGN).fold(of_name, |hash, chunk| {
        let mut word = [0; ALIGN];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// `h_hash` from the entries' `e_hash`, in order. 0, not to be shared, if one is 0.
pub fn block_hash(entries: impl IntoIterator<Item = u32>) -> u32 {
    entries
        .into_iter()
        .try_fold(0_u32, |hash, entry| (entry != 0).then_some(hash.rotate_left(16) ^ entry))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Index, name, value.
    type Attribute = (u8, Vec<u8>, Vec<u8>);

    /// Like the kernel: entries from the front, values from the back.
    fn build_list(size: usize, base: usize, attributes: &[Attribute]) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let (mut front, mut back) = (0, size);
        for (index, name, value) in attributes {
            back -= value.len().next_multiple_of(ALIGN);
            bytes[back..back + value.len()].copy_from_slice(value);
            let entry = &mut bytes[front..front + 16 + name.len()];
            entry[0] = u8::try_from(name.len()).unwrap();
            entry[1] = *index;
            entry[2..4].copy_from_slice(&u16::try_from(base + back).unwrap().to_le_bytes());
            entry[8..12].copy_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
            entry[12..16].copy_from_slice(&entry_hash(name, value, CharSign::Unsigned).to_le_bytes());
            entry[16..].copy_from_slice(name);
            front += (16 + name.len()).next_multiple_of(ALIGN);
        }
        assert!(front + ALIGN <= back, "the attributes fit");
        bytes
    }

    fn build_inode(size: usize, attributes: &[Attribute]) -> Vec<u8> {
        [&MAGIC.to_le_bytes()[..], &build_list(size, 0, attributes)].concat()
    }

    fn build_block(size: usize, attributes: &[Attribute]) -> Vec<u8> {
        let mut header = [0; 32];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4] = 3;
        header[8] = 1;
        [&header[..], &build_list(size - 32, 32, attributes)].concat()
    }

    fn attribute(index: u8, name: &[u8], value: &[u8]) -> Attribute {
        (index, name.to_vec(), value.to_vec())
    }

    fn read(list: XattrList<'_>) -> Result<Vec<Attribute>, Problem> {
        list.iter()
            .map(|entry| {
                let entry = entry?;
                let XattrValue::Inline(value) = entry.value else { unreachable!("no value is in an inode") };
                Ok(attribute(entry.name_index, entry.name, value))
            })
            .collect()
    }

    #[test]
    fn full_names_split_into_namespace_and_stored_name() {
        for (name, namespace, rest) in [
            ("user.comment", Namespace::User, "comment"),
            ("system.posix_acl_access", Namespace::PosixAclAccess, ""),
            ("system.posix_acl_default", Namespace::PosixAclDefault, ""),
            ("system.richacl", Namespace::RichAcl, ""),
            ("system.data", Namespace::System, "data"),
            ("system.posix_acl_accessory", Namespace::System, "posix_acl_accessory"),
            ("security.selinux", Namespace::Security, "selinux"),
            ("trusted.overlay.opaque", Namespace::Trusted, "overlay.opaque"),
        ] {
            assert_eq!(Namespace::split(name.as_bytes()), Some((namespace, rest.as_bytes())), "{name}");
            assert_eq!(format!("{}{rest}", namespace.prefix()), name);
            assert_eq!(Namespace::from_index(namespace.index()), Some(namespace));
        }
        for name in ["user.", "user", "", "fancy.name"] {
            assert_eq!(Namespace::split(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Namespace::from_index(0), None);
    }

    #[test]
    fn an_inode_without_the_magic_number_has_no_list() {
        assert!(XattrList::in_inode(&[0; 64]).is_none());
        assert!(XattrList::in_inode(&[]).is_none());
        assert!(XattrList::in_inode(&MAGIC.to_le_bytes()).is_none());
        assert_eq!(read(XattrList::in_inode(&build_inode(4, &[])).unwrap()), Ok(vec![]));
    }

    #[test]
    fn a_removed_attribute_leaves_the_others_as_they_are() {
        let all =
            [attribute(1, b"a", b"one"), attribute(7, b"data", b"inline"), attribute(6, b"b", b"three")];
        let mut inode = build_inode(160, &all);
        let place = XattrList::in_inode(&inode).unwrap().place_in_inode(Namespace::System, b"data").unwrap();
        assert_eq!(inode[place.unwrap()], *b"inline");
        remove_in_inode(&mut inode, Namespace::System, b"data").unwrap();
        assert_eq!(read(XattrList::in_inode(&inode).unwrap()), Ok(vec![all[0].clone(), all[2].clone()]));
        assert!(!inode.windows(6).any(|bytes| bytes == b"inline"));
        remove_in_inode(&mut inode, Namespace::User, b"a").unwrap();
        remove_in_inode(&mut inode, Namespace::System, b"data").unwrap();
        assert_eq!(read(XattrList::in_inode(&inode).unwrap()), Ok(vec![all[2].clone()]));
        remove_in_inode(&mut inode, Namespace::Security, b"b").unwrap();
        assert_eq!(inode, [0; 164]);
    }

    #[test]
    fn attributes_are_found_by_both_parts_of_their_name() {
        let block = build_block(1024, &[attribute(1, b"a", b"one"), attribute(6, b"a", b"two")]);
        let list = XattrBlock::parse(&block).unwrap().list;
        let value = |namespace, name| list.find(namespace, name).unwrap().map(|entry| entry.value);
        assert_eq!(value(Namespace::User, b"a"), Some(XattrValue::Inline(b"one")));
        assert_eq!(value(Namespace::Security, b"a"), Some(XattrValue::Inline(b"two")));
        assert_eq!(value(Namespace::Trusted, b"a"), None);
        assert_eq!(value(Namespace::User, b"ab"), None);
    }

    #[test]
    fn a_value_in_an_inode_is_not_read() {
        let mut block = build_block(1024, &[attribute(1, b"big", b"")]);
        block[32 + 4] = 99;
        block[32 + 8..32 + 12].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        let entry = XattrBlock::parse(&block).unwrap().list.iter().next().unwrap().unwrap();
        assert_eq!(entry.value, XattrValue::Inode { inode: InodeNumber(99), size: 1 << 20 });
        let hash = entry_hash(b"big", &7_u32.to_le_bytes(), CharSign::Signed);
        assert_eq!(XattrEntry { hash, ..entry }.verify_hash(7), Ok(()));
        assert!(XattrEntry { hash, ..entry }.verify_hash(8).is_err());
    }

    #[test]
    fn hashes_of_either_signedness_are_right() {
        let (name, value) = (&b"na\xefve"[..], &b"value"[..]);
        for sign in [CharSign::Signed, CharSign::Unsigned] {
            let hash = entry_hash(name, value, sign);
            let entry = XattrEntry { name_index: 1, name, value: XattrValue::Inline(value), hash };
            assert_eq!(entry.verify_hash(0), Ok(()));
            assert!(XattrEntry { hash: hash ^ 1, ..entry }.verify_hash(0).is_err());
        }
    }

    #[test]
    fn a_block_with_an_entry_that_has_no_hash_is_not_shared() {
        assert_eq!(block_hash([5, 7]), 5 << 16 ^ 7);
        assert_eq!(block_hash([5, 0, 7]), 0);
    }

    #[test]
    fn damage_is_reported_and_ends_the_list() {
        let good = build_block(1024, &[attribute(1, b"name", b"value"), attribute(1, b"other", b"")]);
        for (at, bytes, message) in [
            (32, &[255_u8][..], "e_name"),
            (32 + 2, &[0xff, 0xff], "an attribute value needs 5 bytes, but there are 0"),
            (32 + 2, &[0xfc, 0x03], "an attribute value needs 5 bytes, but there are 4"),
            (32 + 8, &[1, 0, 0, 1], "e_value_size"),
            (32 + 17, &[0], "e_name"),
        ] {
            let mut block = good.clone();
            block[at..at + bytes.len()].copy_from_slice(bytes);
            let entries: Vec<_> = XattrBlock::parse(&block).unwrap().list.iter().collect();
            let [Err(problem)] = &entries[..] else { panic!("{entries:?}") };
            assert!(problem.to_string().starts_with(message), "{problem}");
        }
        let endless = XattrList { entries: &[1; 64], values: &[] };
        assert!(endless.iter().last().unwrap().is_err());
    }

    #[test]
    fn a_set_user_count_updates_the_checksum() {
        let (number, seed) = (BlockNumber(5), ChecksumSeed(3));
        for size in [1024, 1152, 2048, 4096, 65536] {
            let mut block = build_block(size, &[attribute(1, b"a", b"one")]);
            set_block_checksum(&mut block, number, seed);
            for users in [7, 1024, 1, 1023, u32::MAX, 1] {
                set_block_refcount(&mut block, users, true);
                let parsed = XattrBlock::parse(&block).unwrap();
                assert_eq!(parsed.refcount, users);
                assert_eq!(parsed.verify(seed, number), Ok(()), "{size} bytes, {users} users");
                assert!(parsed.verify(seed, BlockNumber(6)).is_err());
            }
            // An earlier error persists.
            block[size - 1] ^= 1;
            set_block_refcount(&mut block, 9, true);
            assert!(XattrBlock::parse(&block).unwrap().verify(seed, number).is_err());
            // Without a checksum the field does not change.
            set_block_refcount(&mut block, 10, false);
            set_block_checksum(&mut block, number, seed);
            assert_eq!(XattrBlock::parse(&block).unwrap().verify(seed, number), Ok(()));
        }
    }

    #[test]
    fn a_block_of_another_kind_is_refused() {
        assert!(matches!(XattrBlock::parse(&[0; 1024]), Err(Problem::Magic { .. })));
        assert!(matches!(XattrBlock::parse(&[0; 31]), Err(Problem::Short { .. })));
        let mut two = build_block(1024, &[]);
        two[8] = 2;
        assert!(matches!(XattrBlock::parse(&two), Err(Problem::Range { field: "h_blocks", .. })));
    }

    fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
        let name = proptest::collection::vec(1_u8.., 1..40);
        let value = proptest::collection::vec(any::<u8>(), 0..40);
        proptest::collection::vec((1_u8..11, name, value), 0..10)
    }

    proptest! {
        #[test]
        fn attributes_are_read_as_written(attributes in attributes()) {
            let inode = build_inode(1100, &attributes);
            prop_assert_eq!(read(XattrList::in_inode(&inode).unwrap()).unwrap(), attributes.clone());
            let block = build_block(1152, &attributes);
            let parsed = XattrBlock::parse(&block).unwrap();
            prop_assert_eq!(parsed.refcount, 3);
            prop_assert_eq!(read(parsed.list).unwrap(), attributes);
            prop_assert!(parsed.list.iter().all(|entry| entry.unwrap().verify_hash(0).is_ok()));
        }

        #[test]
        fn a_blocks_checksum_equals_that_of_all_its_bytes(
            size in prop::sample::select(vec![127, 128, 1000, 1024, 4096, 65536]),
            set in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            number: u64,
            seed: u32,
        ) {
            let mut block = vec![0; size];
            set.iter().for_each(|(at, byte)| block[at.index(size)] = *byte);
            let sum = block_checksum(&block, BlockNumber(number), ChecksumSeed(seed));
            block[16..20].fill(0);
            prop_assert_eq!(sum, crc32c(crc32c(seed, &number.to_le_bytes()), &block));
        }

        #[test]
        fn any_bytes_end_in_a_list_or_an_error(
            mut bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0_u8..24], 0..300),
        ) {
            if let Some(head) = bytes.first_chunk_mut::<12>() {
                *head = [0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0];
            }
            for list in XattrList::in_inode(&bytes).into_iter().chain(XattrBlock::parse(&bytes).map(|b| b.list)) {
                prop_assert!(list.iter().count() <= bytes.len() / 16 + 1);
                let _ = list.find(Namespace::User, b"a");
            }
            if let Ok(block) = XattrBlock::parse(&bytes) {
                let _ = block.verify(ChecksumSeed(!0), BlockNumber(1));
            }
        }

        #[test]
        fn damaged_lists_end_in_a_list_or_an_error(
            attributes in attributes(),
            at in 0_usize..1152,
            value in any::<u8>(),
        ) {
            let mut block = build_block(1152, &attributes);
            block[at] = value;
            if let Ok(block) = XattrBlock::parse(&block) {
                prop_assert!(block.list.iter().count() <= 1152 / 16);
            }
        }
    }
}
