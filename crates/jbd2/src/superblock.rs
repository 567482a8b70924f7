//! The journal's superblock, as it is written.

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

/// The journal's superblock. All that changes in it stands in its first sector: a write cut short
/// leaves the old one or the new one.
pub(crate) struct Superblock {
    bytes: Vec<u8>,
    /// Where it is on the device, in bytes.
    offset: u64,
    has_sum: bool,
}

impl Superblock {
    pub(crate) fn new(reader: &LogReader) -> Superblock {
        // An offset that does not fit is past any device's end; it was read from there.
        let offset = reader.physical(0).unwrap_or(u64::MAX).saturating_mul(reader.block_size as u64);
        Superblock { bytes: reader.superblock.clone(), offset, has_sum: reader.features.has_block_sums() }
    }

    fn raw(&mut self) -> Option<&mut RawSuperblock> {
        RawSuperblock::mut_from_bytes(&mut self.bytes).ok()
    }

    /// Sets the features that the file system needs, as the kernel does. Returns the journal's
    /// features.
    ///
    /// # Errors
    /// Version 1 superblocks have no room for features.
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

    /// Sets the position and number of the first transaction to replay. `None`: the journal is
    /// clean, and `tid` is the next number.
    pub(crate) fn set_tail(&mut self, start: Option<u32>, tid: Tid) {
        if let Some(raw) = self.raw() {
            raw.s_start = start.unwrap_or(0).into();
            raw.s_sequence = tid.0.into();
        }
    }

    /// The error that is recorded, as a negative number, or 0.
    pub(crate) fn error(&mut self) -> i32 {
        self.raw().map_or(0, |raw| raw.s_errno.get().cast_signed())
    }

    /// Records an error, as the negative number that the kernel records.
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
