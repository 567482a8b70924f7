//! The two checksums of ext4 and the seeds that they start from.
//!
//! Both are used as the kernel uses them: the running value is passed on as it is, without the inversion at
//! the end that the algorithms' names promise.

/// Continues a CRC32c over `data` from the running value `crc` (`!0` at the start).
pub fn crc32c(crc: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!crc, data)
}

/// Continues a CRC16 (polynomial 0x8005, reflected) over `data` from the running value `crc` (`!0` at the start).
pub fn crc16(crc: u16, data: &[u8]) -> u16 {
    data.iter().fold(crc, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 })
    })
}

/// The running value that metadata checksums start from: the file system's, or one inode's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumSeed(pub u32);

impl ChecksumSeed {
    /// The file system's seed where the superblock stores none: of its UUID.
    pub fn of_uuid(uuid: &[u8; 16]) -> ChecksumSeed {
        ChecksumSeed(crc32c(!0, uuid))
    }

    /// The seed of all structures that belong to one inode.
    pub fn of_inode(self, ino: u32, generation: u32) -> ChecksumSeed {
        ChecksumSeed(crc32c(crc32c(self.0, &ino.to_le_bytes()), &generation.to_le_bytes()))
    }

    /// The checksum of `data`.
    pub fn sum(self, data: &[u8]) -> u32 {
        crc32c(self.0, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_both_algorithms_hold() {
        // Check values of CRC-32/ISCSI (inverted at the end) and CRC-16/MODBUS (not inverted).
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(!0, b"123456789"), 0x4B37);
    }

    #[test]
    fn a_sum_can_be_continued() {
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
        assert_eq!(crc16(crc16(!0, b"1234"), b"56789"), crc16(!0, b"123456789"));
    }
}
