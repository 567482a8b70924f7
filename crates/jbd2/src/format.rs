//! On-disk structures, all big-endian. Source: kernel document `journal.rst`.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::error::{Damage, Error};
use crate::tid::Tid;

pub(crate) const MAGIC: u32 = 0xC03B_3998;
const SUPERBLOCK_V2: u32 = 4;

/// `struct journal_header_s`: starts every log block but copies.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) h_magic: U32,
    pub(crate) h_blocktype: U32,
    pub(crate) h_sequence: U32,
}
const _: () = assert!(size_of::<RawHeader>() == 12);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockType {
    Descriptor,
    Commit,
    Superblock,
    Revoke,
    Other,
}

impl RawHeader {
    pub(crate) fn new(kind: BlockType, tid: Tid) -> Self {
        let code = match kind {
            BlockType::Descriptor => 1,
            BlockType::Commit => 2,
            BlockType::Superblock => 4,
            BlockType::Revoke => 5,
            BlockType::Other => 0,
        };
        RawHeader { h_magic: MAGIC.into(), h_blocktype: U32::new(code), h_sequence: tid.0.into() }
    }
}

/// `None`: no magic number.
pub(crate) fn header(block: &[u8]) -> Option<(BlockType, Tid)> {
    let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
    let kind = match raw.h_blocktype.get() {
        1 => BlockType::Descriptor,
        2 => BlockType::Commit,
        3 | SUPERBLOCK_V2 => BlockType::Superblock,
        5 => BlockType::Revoke,
        _ => BlockType::Other,
    };
    (raw.h_magic.get() == MAGIC).then_some((kind, Tid(raw.h_sequence.get())))
}

/// `struct journal_superblock_s`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) s_header: RawHeader,
    pub(crate) s_blocksize: U32,
    pub(crate) s_maxlen: U32,
    pub(crate) s_first: U32,
    pub(crate) s_sequence: U32,
    pub(crate) s_start: U32,
    pub(crate) s_errno: U32,
    pub(crate) s_feature_compat: U32,
    pub(crate) s_feature_incompat: U32,
    s_feature_ro_compat: U32,
    pub(crate) s_uuid: [u8; 16],
    pub(crate) s_nr_users: U32,
    s_dynsuper: U32,
    s_max_transaction: U32,
    s_max_trans_data: U32,
    pub(crate) s_checksum_type: u8,
    s_padding2: [u8; 3],
    pub(crate) s_num_fc_blks: U32,
    pub(crate) s_head: U32,
    s_padding: [u8; 160],
    pub(crate) s_checksum: U32,
    s_users: [u8; 768],
}
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(RawSuperblock, s_start) == 0x1C);
    assert!(offset_of!(RawSuperblock, s_uuid) == 0x30);
    assert!(offset_of!(RawSuperblock, s_checksum_type) == 0x50);
    assert!(offset_of!(RawSuperblock, s_num_fc_blks) == 0x54);
    assert!(offset_of!(RawSuperblock, s_checksum) == SUPERBLOCK_SUM_AT);
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_LEN);
};
pub(crate) const SUPERBLOCK_LEN: usize = 1024;
pub(crate) const SUPERBLOCK_SUM_AT: usize = 0xFC;

/// The first block of a new, empty version 2 journal. Opening it for writing sets the features.
///
/// `block_size` is in bytes; `blocks` includes this block.
pub fn empty_journal(block_size: u32, blocks: u32, uuid: [u8; 16]) -> [u8; SUPERBLOCK_LEN] {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_header.h_magic.set(MAGIC);
    raw.s_header.h_blocktype.set(SUPERBLOCK_V2);
    raw.s_blocksize.set(block_size);
    raw.s_maxlen.set(blocks);
    raw.s_first.set(1);
    raw.s_sequence.set(1);
    raw.s_uuid = uuid;
    raw.s_nr_users.set(1);
    zerocopy::transmute!(raw)
}

pub(crate) const CRC32C: u8 = 4;
pub(crate) const CRC32: u8 = 1;

/// `s_feature_compat`.
pub(crate) const COMPAT_CHECKSUM: u32 = 0x1;
/// `s_feature_incompat`.
pub(crate) const INCOMPAT_REVOKE: u32 = 0x1;
pub(crate) const INCOMPAT_64BIT: u32 = 0x2;
pub(crate) const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
const INCOMPAT_CSUM_V2: u32 = 0x8;
pub(crate) const INCOMPAT_CSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sums {
    None,
    /// One CRC32 of descriptors and copies, in the commit block.
    V1,
    /// CRC32c, 16 bits of it in tags.
    V2,
    /// CRC32c.
    V3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Features {
    pub(crate) sums: Sums,
    pub(crate) is_64bit: bool,
    pub(crate) async_commit: bool,
    pub(crate) fast_commit: bool,
}

impl RawSuperblock {
    /// # Errors
    /// Unknown features, and combinations that exclude each other.
    pub(crate) fn features(&self) -> Result<Features, Error> {
        let is_v1 = self.s_header.h_blocktype.get() == 3;
        let field = |bits: &U32| if is_v1 { 0 } else { bits.get() };
        let (compat, incompat) = (field(&self.s_feature_compat), field(&self.s_feature_incompat));
        let unknown = incompat & !0x3F;
        if unknown != 0 {
            return Err(Error::Unsupported {
                feature: format!("incompatible journal features {unknown:#x}"),
            });
        }
        let unknown = field(&self.s_feature_ro_compat);
        if unknown != 0 {
            let feature = format!("read-only compatible journal features {unknown:#x}");
            return Err(Error::Unsupported { feature });
        }
        let has = |bit| incompat & bit != 0;
        let sums = match (has(INCOMPAT_CSUM_V2), has(INCOMPAT_CSUM_V3), compat & COMPAT_CHECKSUM != 0) {
            (false, false, false) => Sums::None,
            (false, false, true) => Sums::V1,
            (true, false, false) => Sums::V2,
            (false, true, false) => Sums::V3,
            _ => return Err(Damage::Superblock { check: "more than one checksum feature is set" }.into()),
        };
        // `INCOMPAT_REVOKE` is implied: revoke blocks have their own type.
        Ok(Features {
            sums,
            is_64bit: has(INCOMPAT_64BIT),
            async_commit: has(INCOMPAT_ASYNC_COMMIT),
            fast_commit: has(INCOMPAT_FAST_COMMIT),
        })
    }
}

impl Features {
    pub(crate) fn has_block_sums(self) -> bool {
        matches!(self.sums, Sums::V2 | Sums::V3)
    }

    /// Without the checksum of a descriptor or revoke block.
    pub(crate) fn body(self, block: &[u8]) -> &[u8] {
        let tail = if self.has_block_sums() { 4 } else { 0 };
        &block[..block.len().saturating_sub(tail)]
    }

    /// Without the UUID.
    pub(crate) fn tag_len(self) -> usize {
        let short = if self.is_64bit { 12 } else { 8 };
        match self.sums {
            Sums::None | Sums::V1 => short,
            // Two unused bytes.
            Sums::V2 => short + 2,
            Sums::V3 => size_of::<RawTag3>(),
        }
    }
}

/// `struct journal_block_tag_s`; with 64-bit blocks `t_blocknr_high` follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawTag {
    pub(crate) t_blocknr: U32,
    pub(crate) t_checksum: U16,
    pub(crate) t_flags: U16,
}
const _: () = assert!(size_of::<RawTag>() == 8);

/// `struct journal_block_tag3_s`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawTag3 {
    pub(crate) t_blocknr: U32,
    pub(crate) t_flags: U32,
    pub(crate) t_blocknr_high: U32,
    pub(crate) t_checksum: U32,
}
const _: () = assert!(size_of::<RawTag3>() == 16);

pub(crate) const ESCAPE: u32 = 1;
pub(crate) const SAME_UUID: u32 = 2;
pub(crate) const LAST_TAG: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    /// Block of the file system.
    pub(crate) target: u64,
    /// The copy's first four bytes are the magic number, stored as zeros.
    pub(crate) escaped: bool,
    /// 16 bits in version 2; 0 without checksums.
    pub(crate) sum: u32,
}

pub(crate) struct Tags<'a> {
    features: Features,
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    pub(crate) fn new(features: Features, block: &'a [u8]) -> Self {
        Tags { features, rest: features.body(block).get(size_of::<RawHeader>()..).unwrap_or_default() }
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let (tag, rest) = self.rest.split_at_checked(self.features.tag_len())?;
        let (low, flags, high, sum);
        if self.features.sums == Sums::V3 {
            let raw = RawTag3::ref_from_bytes(tag).ok()?;
            (low, flags, high, sum) =
                (raw.t_blocknr, raw.t_flags.get(), raw.t_blocknr_high.get(), raw.t_checksum.get());
        } else {
            let (raw, rest) = RawTag::ref_from_prefix(tag).ok()?;
            high = U32::ref_from_prefix(rest).map_or(0, |(high, _)| high.get());
            (low, flags, sum) =
                (raw.t_blocknr, u32::from(raw.t_flags.get()), u32::from(raw.t_checksum.get()));
        }
        let uuid = if flags & SAME_UUID == 0 { 16 } else { 0 };
        let is_last = flags & LAST_TAG != 0;
        self.rest = if is_last { &[] } else { rest.get(uuid..).unwrap_or_default() };
        let high = if self.features.is_64bit { u64::from(high) << 32 } else { 0 };
        Some(Tag { target: high | u64::from(low.get()), escaped: flags & ESCAPE != 0, sum })
    }
}

/// `struct jbd2_journal_revoke_header_s`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawRevokeHeader {
    pub(crate) r_header: RawHeader,
    pub(crate) r_count: U32,
}
const _: () = assert!(size_of::<RawRevokeHeader>() == 16);

/// `None`: the count exceeds the block.
pub(crate) fn revoked_blocks(features: Features, block: &[u8]) -> Option<impl Iterator<Item = u64> + '_> {
    let (raw, _) = RawRevokeHeader::ref_from_prefix(block).ok()?;
    let used = usize::try_from(raw.r_count.get()).ok()?;
    let records =
        features.body(block).get(size_of::<RawRevokeHeader>()..used.max(size_of::<RawRevokeHeader>()))?;
    let len = if features.is_64bit { 8 } else { 4 };
    let number = |record: &[u8]| record.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    Some(records.chunks_exact(len).map(number))
}

/// `struct commit_header`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawCommit {
    pub(crate) h_header: RawHeader,
    pub(crate) h_chksum_type: u8,
    pub(crate) h_chksum_size: u8,
    pub(crate) h_padding: [u8; 2],
    pub(crate) h_chksum: [U32; 8],
    pub(crate) h_commit_sec: U64,
    pub(crate) h_commit_nsec: U32,
}
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(RawCommit, h_chksum) == COMMIT_SUM_AT);
    assert!(offset_of!(RawCommit, h_commit_sec) == 0x30);
    assert!(size_of::<RawCommit>() == COMMIT_LEN);
};
pub(crate) const COMMIT_SUM_AT: usize = 0x10;
pub(crate) const COMMIT_LEN: usize = 0x3C;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    pub(crate) sum: u32,
    /// Seconds since 1970.
    pub(crate) seconds: u64,
    is_crc32: bool,
    is_bare: bool,
}

impl Commit {
    pub(crate) fn new(block: &[u8]) -> Option<Commit> {
        let (raw, _) = RawCommit::ref_from_prefix(block).ok()?;
        let sum = raw.h_chksum[0].get();
        Some(Commit {
            sum,
            seconds: raw.h_commit_sec.get(),
            is_crc32: raw.h_chksum_type == CRC32 && raw.h_chksum_size == 4,
            is_bare: raw.h_chksum_type == 0 && raw.h_chksum_size == 0 && sum == 0,
        })
    }

    /// A commit block may store no checksum.
    pub(crate) fn matches_v1(&self, sum: u32) -> bool {
        self.is_bare || self.is_crc32 && self.sum == sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn features(sums: Sums, is_64bit: bool) -> Features {
        Features { sums, is_64bit, async_commit: false, fast_commit: false }
    }

    #[test]
    fn tags_have_the_lengths_that_the_kernel_gives_them() {
        use Sums::*;
        let lens = [None, V1, V2, V3].map(|sums| [false, true].map(|wide| features(sums, wide).tag_len()));
        assert_eq!(lens, [[8, 12], [8, 12], [10, 14], [16, 16]]);
    }

    #[test]
    fn a_uuid_follows_a_tag_that_does_not_share_one_and_the_last_tag_ends_the_list() {
        let mut block = vec![0; 12];
        block.extend([0, 0, 0, 7, 0, 0, 0, 0]);
        block.extend([0xFF; 16]);
        block.extend([0, 0, 0, 8, 0, 0, 0, 3]);
        block.extend([0, 0, 0, 9, 0, 0, 0, 10]);
        block.extend([0xFF; 100]);
        let tags: Vec<_> = Tags::new(features(Sums::None, false), &block).collect();
        let tag = |target, escaped| Tag { target, escaped, sum: 0 };
        assert_eq!(tags, [tag(7, false), tag(8, true), tag(9, false)]);
    }

    fn any_features() -> impl Strategy<Value = Features> {
        let sums = prop_oneof![Just(Sums::None), Just(Sums::V1), Just(Sums::V2), Just(Sums::V3)];
        (sums, any::<bool>()).prop_map(|(sums, wide)| features(sums, wide))
    }

    proptest! {
        #[test]
        fn a_tag_reads_as_it_was_written(
            features in any_features(), targets in prop::collection::vec((any::<u64>(), any::<bool>(), any::<u32>()), 1..20),
        ) {
            let mut block = vec![0; 12];
            let mut expected = Vec::new();
            for (at, &(target, escaped, sum)) in targets.iter().enumerate() {
                let target = if features.is_64bit { target } else { target & 0xFFFF_FFFF };
                let flags = u32::from(escaped) | u32::from(at % 2 == 1) << 1 | u32::from(at + 1 == targets.len()) << 3;
                let (low, high) = ((target & 0xFFFF_FFFF) as u32, (target >> 32) as u32);
                let mut sum = sum;
                if features.sums == Sums::V3 {
                    for word in [low, flags, high, sum] {
                        block.extend(word.to_be_bytes());
                    }
                } else {
                    sum &= 0xFFFF;
                    block.extend(low.to_be_bytes());
                    block.extend((sum << 16 | flags).to_be_bytes());
                    if features.is_64bit {
                        block.extend(high.to_be_bytes());
                    }
                    block.resize(block.len() + if features.sums == Sums::V2 { 2 } else { 0 }, 0xEE);
                }
                block.resize(block.len() + if at % 2 == 1 { 0 } else { 16 }, 0xDD);
                expected.push(Tag { target, escaped, sum });
            }
            block.resize(block.len() + 8, 0xCC);
            prop_assert_eq!(Tags::new(features, &block).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn revoke_records_read_as_they_were_written(features in any_features(), blocks: Vec<u64>) {
            let len = if features.is_64bit { 8 } else { 4 };
            let mut block = vec![0; 12];
            block.extend((16 + len * blocks.len() as u32).to_be_bytes());
            let mut expected = Vec::new();
            for number in blocks {
                let bytes = &number.to_be_bytes()[8 - len as usize..];
                block.extend(bytes);
                expected.push(if len == 8 { number } else { number & 0xFFFF_FFFF });
            }
            let needed = block.len();
            block.resize(needed + 4, 0);
            prop_assert_eq!(revoked_blocks(features, &block).unwrap().collect::<Vec<_>>(), expected);
            prop_assert!(revoked_blocks(features, &block[..needed - 1]).is_none());
        }

        #[test]
        fn no_bytes_make_the_readers_panic(features in any_features(), bytes: Vec<u8>) {
            let _ = header(&bytes);
            let _ = Commit::new(&bytes);
            prop_assert!(Tags::new(features, &bytes).count() <= bytes.len());
            if let Some(blocks) = revoked_blocks(features, &bytes) {
                prop_assert!(blocks.count() <= bytes.len());
            }
        }
    }
}
