//! The three versions of checksums.

use crc::{CRC_32_MPEG_2, Crc};

use crate::format::{COMMIT_LEN, COMMIT_SUM_AT, SUPERBLOCK_LEN, SUPERBLOCK_SUM_AT, Sums, Tag};
use crate::tid::Tid;

/// CRC32c without the final inversion, as in the kernel.
pub(crate) fn crc32c(running: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!running, data)
}

/// The four bytes at `at` count as zero.
fn crc32c_without(running: u32, data: &[u8], at: usize) -> u32 {
    let (before, rest) = data.split_at(at);
    let after = rest.get(4..).unwrap_or_default();
    crc32c(crc32c(crc32c(running, before), &[0; 4]), after)
}

fn be32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

pub(crate) fn superblock_is_sound(block: &[u8]) -> bool {
    let Some(superblock) = block.get(..SUPERBLOCK_LEN) else { return false };
    be32_at(superblock, SUPERBLOCK_SUM_AT) == Some(superblock_sum(superblock))
}

pub(crate) fn superblock_sum(superblock: &[u8]) -> u32 {
    crc32c_without(!0, superblock, SUPERBLOCK_SUM_AT)
}

fn put(sum: u32, block: &mut [u8], at: usize) {
    if let Some(field) = block.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *field = sum.to_be_bytes();
    }
}

/// CRC32c of the journal's UUID: starts version 2 and 3 checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(uuid: &[u8; 16]) -> Self {
        Seed(crc32c(!0, uuid))
    }

    /// Descriptor and revoke blocks end with their checksum.
    pub(crate) fn tail_is_sound(self, block: &[u8]) -> bool {
        let Some(at) = block.len().checked_sub(4) else { return false };
        be32_at(block, at) == Some(crc32c_without(self.0, block, at))
    }

    pub(crate) fn put_tail(self, block: &mut [u8]) {
        let Some(at) = block.len().checked_sub(4) else { return };
        put(crc32c_without(self.0, block, at), block, at);
    }

    pub(crate) fn put_commit(self, block: &mut [u8]) {
        put(crc32c_without(self.0, block, COMMIT_SUM_AT), block, COMMIT_SUM_AT);
    }

    /// Only a commit block's first sector is certain to be on disk: the checksum may cover its
    /// fields and zeros.
    pub(crate) fn commit_is_sound(self, block: &[u8]) -> bool {
        let Some(stored) = be32_at(block, COMMIT_SUM_AT) else { return false };
        let mut fields = block.to_vec();
        if crc32c_without(self.0, &fields, COMMIT_SUM_AT) == stored {
            return true;
        }
        fields.iter_mut().skip(COMMIT_LEN).for_each(|byte| *byte = 0);
        crc32c_without(self.0, &fields, COMMIT_SUM_AT) == stored
    }

    /// `copy` as stored, escaped.
    pub(crate) fn copy_is_sound(self, sums: Sums, tid: Tid, tag: &Tag, copy: &[u8]) -> bool {
        self.of_copy(sums, tid, copy) == tag.sum || matches!(sums, Sums::None | Sums::V1)
    }

    pub(crate) fn of_copy(self, sums: Sums, tid: Tid, copy: &[u8]) -> u32 {
        let sum = || crc32c(crc32c(self.0, &tid.0.to_be_bytes()), copy);
        match sums {
            Sums::None | Sums::V1 => 0,
            Sums::V2 => sum() & 0xFFFF,
            Sums::V3 => sum(),
        }
    }
}

/// The version 1 checksum: of descriptors and copies, in log order.
pub(crate) struct TransactionSum(crc::Digest<'static, u32>);

impl TransactionSum {
    pub(crate) fn new() -> Self {
        static CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_MPEG_2);
        TransactionSum(CRC32.digest())
    }

    pub(crate) fn add(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    pub(crate) fn finish(self) -> u32 {
        self.0.finalize()
    }
}
