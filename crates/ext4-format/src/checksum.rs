//! The checksums of ext4. Like the kernel, without the final inversion.

/// Continues a CRC32c; `crc` is `!0` at the start.
pub fn crc32c(crc: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!crc, data)
}

/// Undoes [`crc32c()`]: the running value before `data`, from the one behind it. A CRC is a
/// bijection of its start value.
pub fn crc32c_before(crc: u32, data: &[u8]) -> u32 {
    data.iter().rev().fold(crc, |crc, &byte| {
        // The highest byte of the value is that of the table's entry alone.
        let [.., high] = crc.to_le_bytes();
        let index = BY_HIGH_BYTE[usize::from(high)];
        (crc ^ STEPS[usize::from(index)]) << 8 | u32::from(index ^ byte)
    })
}

/// The change of a running value by each low byte.
static STEPS: [u32; 256] = steps();
/// The index of the step with each high byte.
static BY_HIGH_BYTE: [u8; 256] = by_high_byte();

const fn steps() -> [u32; 256] {
    let mut steps = [0; 256];
    let mut at = 0;
    let mut byte = 0_u32;
    while at < steps.len() {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = crc >> 1 ^ CRC32C_POLYNOMIAL & 0_u32.wrapping_sub(crc & 1);
            bit += 1;
        }
        steps[at] = crc;
        at += 1;
        byte += 1;
    }
    steps
}

const fn by_high_byte() -> [u8; 256] {
    let (steps, mut indices) = (steps(), [0; 256]);
    let (mut at, mut index) = (0, 0_u8);
    while at < steps.len() {
        let [.., high] = steps[at].to_le_bytes();
        indices[high as usize] = index;
        at += 1;
        index = index.wrapping_add(1);
    }
    indices
}

/// Continues a CRC16 (polynomial 0x8005, reflected); `crc` is `!0` at the start.
pub fn crc16(crc: u16, data: &[u8]) -> u16 {
    data.iter().fold(crc, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 })
    })
}

/// Start value of metadata checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumSeed(pub u32);

impl ChecksumSeed {
    /// The file system's seed, unless the superblock stores one.
    pub fn of_uuid(uuid: &[u8; 16]) -> ChecksumSeed {
        ChecksumSeed(crc32c(!0, uuid))
    }

    /// The seed of an inode's structures.
    pub fn of_inode(self, ino: u32, generation: u32) -> ChecksumSeed {
        ChecksumSeed(crc32c(crc32c(self.0, &ino.to_le_bytes()), &generation.to_le_bytes()))
    }

    /// The checksum of `data`.
    pub fn sum(self, data: &[u8]) -> u32 {
        crc32c(self.0, data)
    }
}

/// Reflected: bit 31 is x⁰.
const CRC32C_POLYNOMIAL: u32 = 0x82F6_3B78;

/// The effect of changed bits on a CRC32c.
///
/// CRCs are linear: the checksums of two strings of equal length differ by the checksum, started at
/// 0, of their difference. A zero byte after a difference multiplies its checksum by x⁸.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumChange(u32);

impl SumChange {
    /// For 32 bits at `bytes_to_end` before the end of the data, or for that many zeros.
    pub const fn at(bytes_to_end: usize) -> SumChange {
        let (mut power, mut rest) = (POWERS[0][bytes_to_end & 0xFF], bytes_to_end >> 8);
        if rest < POWERS[1].len() {
            return SumChange(multiply(power, POWERS[1][rest]));
        }
        let mut square = POWERS[1][1];
        while rest > 0 {
            if rest & 1 == 1 {
                power = multiply(power, square);
            }
            square = multiply(square, square);
            rest >>= 1;
        }
        SumChange(power)
    }

    /// The checksum's change after XOR of `difference` (little-endian); or `difference`, a running
    /// value, after the zeros.
    pub const fn of(self, difference: u32) -> u32 {
        multiply(difference, self.0)
    }
}

/// Product modulo the polynomial. Branches would be mispredicted half of the time.
const fn multiply(one: u32, other: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, other, 32);
    while bit > 0 {
        bit -= 1;
        product ^= shifted & 0_u32.wrapping_sub(one >> bit & 1);
        shifted = shifted >> 1 ^ CRC32C_POLYNOMIAL & 0_u32.wrapping_sub(shifted & 1);
    }
    product
}

/// Powers of x⁸: 0 to 256, and those times 256. Enough for 64 KiB.
static POWERS: [[u32; 257]; 2] = [powers(1 << 23), powers(powers(1 << 23)[256])];

const fn powers(of: u32) -> [u32; 257] {
    let mut powers = [1 << 31; 257];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = multiply(powers[at - 1], of);
        at += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_word_changes_the_checksum_as_computed(
            mut bytes in prop::collection::vec(any::<u8>(), 4..300),
            seed: u32,
            at: prop::sample::Index,
            difference: u32,
        ) {
            let before = crc32c(seed, &bytes);
            let at = at.index(bytes.len() - 3);
            bytes[at..].iter_mut().zip(difference.to_le_bytes()).for_each(|(byte, bits)| *byte ^= bits);
            let change = SumChange::at(bytes.len() - at).of(difference);
            prop_assert_eq!(crc32c(seed, &bytes), before ^ change);
            let zeros = at.min(99);
            prop_assert_eq!(crc32c(seed, &[0; 99][..zeros]), SumChange::at(zeros).of(seed));
        }
    }

    proptest! {
        #[test]
        fn a_checksum_can_be_undone(bytes in prop::collection::vec(any::<u8>(), 0..300), seed: u32) {
            prop_assert_eq!(crc32c_before(crc32c(seed, &bytes), &bytes), seed);
        }
    }

    #[test]
    fn any_number_of_zeros_after_a_difference_is_covered() {
        for zeros in [0, 1, 255, 256, 257, 65_535, 65_536, 65_791, 65_792, 200_000] {
            let mut bytes = vec![0; zeros + 4];
            bytes[0] = 0x5A;
            assert_eq!(SumChange::at(bytes.len()).of(0x5A), crc32c(0, &bytes), "{zeros}");
        }
    }

    #[test]
    fn both_algorithms_give_their_check_values() {
        // CRC-32/ISCSI without its final inversion, and CRC-16/MODBUS.
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(!0, b"123456789"), 0x4B37);
    }

    #[test]
    fn a_sum_can_be_continued() {
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
        assert_eq!(crc16(crc16(!0, b"1234"), b"56789"), crc16(!0, b"123456789"));
    }
}
