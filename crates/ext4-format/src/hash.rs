//! Directory hashes, which place a name in an htree.
//!
//! Each of three algorithms exists for signed and unsigned name bytes (`s_flags`), because the
//! first kernels hashed the machine's `char`. SipHash needs the directory's key and is not computed
//! here. Sources: the kernel's `directory.rst` ("Hash Tree Directories"), RFC 1320 (MD4; the hash
//! takes 8 input words of 16, hence "half"), and Wheeler and Needham's TEA paper (16 cycles).

mod half_md4;

use fearless_simd::Level;
use std::fmt;
use std::ops::Range;

/// Major hash: the order of dx entries. Bit 0 is clear in a name's hash; in a dx entry it means
/// that names with this hash are also in the previous block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MajorHash(u32);

impl MajorHash {
    /// End-of-directory hash; no name has it.
    const END: u32 = 0x7fff_ffff << 1;

    /// From an algorithm's raw word: clears bit 0, and avoids the end-of-directory hash.
    pub const fn from_raw(raw: u32) -> Self {
        let even = raw & !1;
        Self(if even == Self::END { Self::END - 2 } else { even })
    }

    /// From a dx entry, without its continuation bit.
    pub(crate) const fn stored(raw: u32) -> Self {
        Self(raw & !1)
    }

    /// The value in a dx entry.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for MajorHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Both hashes of a name. The minor one orders names with equal major hash in readdir cookies; 0 in
/// the legacy algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// Order in the htree.
    pub major: MajorHash,
    /// 32 more bits of the digest.
    pub minor: u32,
}

impl NameHash {
    #[inline(always)]
    fn new(major: u32, minor: u32) -> NameHash {
        NameHash { major: MajorHash::from_raw(major), minor }
    }
}

/// `dx_root_info.hash_version`; `s_def_hash_version` of new directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// Multiply and XOR; weak, without a seed.
    Legacy,
    /// MD4 over 8 input words; mke2fs's default.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
    /// SipHash-2-4 with the directory's key: casefolded and encrypted directories.
    SipHash,
}

/// Sign of bytes from 0x80 up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CharSign {
    /// `s_flags` bit 0: `char` on x86. The default.
    #[default]
    Signed,
    /// `s_flags` bit 1: `char` on ARM, PowerPC and s390.
    Unsigned,
}

impl CharSign {
    /// Converts a name byte to a word.
    pub(crate) fn widen(self, byte: u8) -> u32 {
        match self {
            Self::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
            Self::Unsigned => u32::from(byte),
        }
    }
}

/// A directory's hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashVersion {
    /// Algorithm.
    pub algorithm: HashAlgorithm,
    /// Sign of name bytes.
    pub sign: CharSign,
}

impl HashVersion {
    /// Decodes 0 to 2 (sign from the superblock), 3 to 5 (unsigned) and 6 (SipHash).
    pub fn from_disk(version: u8, superblock_sign: CharSign) -> Option<Self> {
        let (algorithm, sign) = match version {
            0 => (HashAlgorithm::Legacy, superblock_sign),
            1 => (HashAlgorithm::HalfMd4, superblock_sign),
            2 => (HashAlgorithm::Tea, superblock_sign),
            3 => (HashAlgorithm::Legacy, CharSign::Unsigned),
            4 => (HashAlgorithm::HalfMd4, CharSign::Unsigned),
            5 => (HashAlgorithm::Tea, CharSign::Unsigned),
            6 => (HashAlgorithm::SipHash, superblock_sign),
            _ => return None,
        };
        Some(Self { algorithm, sign })
    }

    /// Hashes `name`. `None` for [`HashAlgorithm::SipHash`]: such directories are searched leaf by
    /// leaf.
    pub fn hash(self, name: &[u8], seed: HashSeed) -> Option<NameHash> {
        let (major, minor) = match self.algorithm {
            HashAlgorithm::Legacy => (legacy(name, self.sign), 0),
            HashAlgorithm::HalfMd4 => {
                let state = digest::<{ half_md4::BYTES }, { half_md4::WORDS }>(
                    name,
                    self.sign,
                    seed,
                    half_md4::transform,
                );
                (state[1], state[2])
            }
            HashAlgorithm::Tea => {
                let state = digest::<16, 4>(name, self.sign, seed, tea);
                (state[0], state[1])
            }
            HashAlgorithm::SipHash => return None,
        };
        Some(NameHash::new(major, minor))
    }
}

/// Appends the half-MD4 hashes of names in `bytes`, as [`HashVersion::hash`]. Sixteen in parallel
/// take a quarter to half of the time. A name out of range counts as empty.
pub fn half_md4_batch(
    bytes: &[u8],
    names: impl IntoIterator<Item = Range<usize>>,
    sign: CharSign,
    seed: HashSeed,
    hashes: &mut Vec<NameHash>,
) {
    half_md4::hash_in_parallel(Level::new(), bytes, names.into_iter(), sign, seed, hashes);
}

/// `s_hash_seed`, or MD4's initial state if that is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashSeed([u32; 4]);

impl HashSeed {
    /// RFC 1320's initial state.
    pub const DEFAULT: Self = Self([0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476]);

    /// From the superblock's words.
    pub fn new(words: [u32; 4]) -> Self {
        if words == [0; 4] { Self::DEFAULT } else { Self(words) }
    }
}

impl Default for HashSeed {
    fn default() -> Self {
        Self::DEFAULT
    }
}

fn legacy(name: &[u8], sign: CharSign) -> u32 {
    let (mut newer, mut older) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mixed = older.wrapping_add(newer ^ sign.widen(byte).wrapping_mul(7_152_373));
        let reduced = if mixed & 0x8000_0000 != 0 { mixed.wrapping_sub(0x7fff_ffff) } else { mixed };
        (older, newer) = (newer, reduced);
    }
    newer << 1
}

/// Feeds `name` to `transform`, `BYTES` bytes (`WORDS` words) at a time.
fn digest<const BYTES: usize, const WORDS: usize>(
    name: &[u8],
    sign: CharSign,
    seed: HashSeed,
    transform: fn(&mut [u32; 4], &[u32; WORDS]),
) -> [u32; 4] {
    let mut state = seed.0;
    let mut rest = name;
    while !rest.is_empty() {
        transform(&mut state, &input_words(rest, sign));
        rest = rest.get(BYTES..).unwrap_or_default();
    }
    state
}

/// Packs `rest` into words, first byte highest, padded with its length in each byte. Signed bytes
/// borrow from their neighbours: the addition carries.
fn input_words<const WORDS: usize>(rest: &[u8], sign: CharSign) -> [u32; WORDS] {
    let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let half = len | len.wrapping_shl(8);
    let padding = half | half.wrapping_shl(16);
    let mut words = [padding; WORDS];
    let (whole, part) = rest.as_chunks();
    for (word, &bytes) in words.iter_mut().zip(whole) {
        let word_of = u32::from_be_bytes(bytes);
        // A signed byte borrows from its left neighbour.
        let borrowed = match sign {
            CharSign::Signed => (word_of & 0x8080_8080) << 1,
            CharSign::Unsigned => 0,
        };
        *word = word_of.wrapping_sub(borrowed);
    }
    if let Some(word) = words.get_mut(whole.len())
        && !part.is_empty()
    {
        *word = part.iter().fold(padding, |acc, &b| sign.widen(b).wrapping_add(acc << 8));
    }
    words
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut x, mut y, ..] = *state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        let f = |v: u32, k0: u32, k1: u32| {
            (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
        };
        x = x.wrapping_add(f(y, key[0], key[1]));
        y = y.wrapping_add(f(x, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_has_the_end_of_directory_hash() {
        assert_eq!(MajorHash::from_raw(0xffff_ffff).get(), 0xffff_fffc);
        assert_eq!(MajorHash::from_raw(0xffff_fffe).get(), 0xffff_fffc);
        assert_eq!(MajorHash::from_raw(0xffff_fffd).get(), 0xffff_fffc);
        assert_eq!(MajorHash::from_raw(1).get(), 0);
    }

    #[test]
    fn siphash_is_recognized_but_not_computed() {
        let version = HashVersion::from_disk(6, CharSign::Signed).unwrap();
        assert_eq!(version.algorithm, HashAlgorithm::SipHash);
        assert_eq!(version.hash(b"name", HashSeed::DEFAULT), None);
        assert_eq!(HashVersion::from_disk(7, CharSign::Signed), None);
    }

    #[test]
    fn an_all_zero_seed_means_the_default_one() {
        assert_eq!(HashSeed::new([0; 4]), HashSeed::DEFAULT);
        assert_ne!(HashSeed::new([0, 0, 0, 1]), HashSeed::DEFAULT);
    }
}
