use std::io;

use dentree_blockdev::BlockDevice;
use zerocopy::FromBytes;

use crate::checksum::superblock_sum;
use crate::error::Error;
use crate::format::{
    COMPAT_CHECKSUM, CRC32C, Features, INCOMPAT_64BIT, INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V3,
    INCOMPAT_REVOKE, RawSuperblock, Sums,
};
use crate::reader::LogReader;
use crate::tid::Tid;

/// The superblock to write. Changes are in its first sector, which is written atomically.
pub(crate) struct Superblock {
    bytes: Vec<u8>,
    /// In bytes, on the device.
    offset: u64,
    has_sum: bool,
}

impl Superblock {
    pub(crate) fn new(reader: &LogReader) -> Superblock {
        let offset = reader.physical(0).unwrap_or(u64::MAX).saturating_mul(reader.block_size as u64);
        Superblock { bytes: reader.superblock.clone(), offset, has_sum: reader.features.has_block_sums() }
    }

    fn raw(&mut self) -> Option<&mut RawSuperblock> {
        RawSuperblock::mut_from_bytes(&mut self.bytes).ok()
    }

    /// # Errors
    /// Version 1 superblocks have no features.
    pub(crate) fn enable(&mut self, has_checksums: bool, is_64bit: bool) -> Result<Features, Error> {
        let unsupported = || Error::Unsupported { feature: "writing a journal of version 1".into() };
        let raw = self.raw().filter(|raw| raw.s_header.h_blocktype.get() == 4).ok_or_else(unsupported)?;
        let sums = raw.features()?.sums;
        let (mut compat, mut incompat) = (raw.s_feature_compat.get(), raw.s_feature_incompat.get());
        incompat = incompat & !INCOMPAT_ASYNC_COMMIT | INCOMPAT_REVOKE;
        if is_64bit {
            incompat |= INCOMPAT_64BIT;
        }
        if has_checksums && matches!(sums, Sums::None | Sums::V1) {
            compat &= !COMPAT_CHECKSUM;
            incompat |= INCOMPAT_CSUM_V3;
            raw.s_checksum_type = CRC32C;
        }
        raw.s_feature_compat = compat.into();
        raw.s_feature_incompat = incompat.into();
        let features = raw.features()?;
        self.has_sum = features.has_block_sums();
        Ok(features)
    }

    pub(crate) fn uuid(&mut self) -> [u8; 16] {
        self.raw().map_or([0; 16], |raw| raw.s_uuid)
    }

    /// Where the next log begins.
    pub(crate) fn set_head(&mut self, head: u32) {
        if let Some(raw) = self.raw() {
            raw.s_head = head.into();
        }
    }

    /// Position and number of the first transaction to replay. `None`: clean, with the next number.
    pub(crate) fn set_tail(&mut self, start: Option<u32>, tid: Tid) {
        if let Some(raw) = self.raw() {
            raw.s_start = start.unwrap_or(0).into();
            raw.s_sequence = tid.0.into();
        }
    }

    /// Negative, or 0.
    pub(crate) fn error(&mut self) -> i32 {
        self.raw().map_or(0, |raw| raw.s_errno.get().cast_signed())
    }

    /// Negative, as in the kernel.
    pub(crate) fn set_error(&mut self, errno: i32) {
        if let Some(raw) = self.raw() {
            raw.s_errno = errno.cast_unsigned().into();
        }
    }

    pub(crate) fn write(&mut self, device: &dyn BlockDevice) -> io::Result<()> {
        if self.has_sum {
            let sum = superblock_sum(&self.bytes);
            if let Some(raw) = self.raw() {
                raw.s_checksum = sum.into();
            }
        }
        device.write_at(self.offset, &self.bytes)
    }
}
