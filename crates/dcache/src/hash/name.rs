//! Names as the cache compares them: split off a path, hashed with their directory, as whole words.
//!
//! A name of up to 32 bytes is its own key: four words, padded with zeroes. A longer name's key is
//! its length and a keyed 128-bit hash; its bytes are compared before a hit is valid.
//!
//! **Hash.** The words are folded (multiply, then xor the halves) with secrets of the cache, then
//! with the directory's number, so an attacker cannot choose names for a bucket. Only the last
//! multiplication needs the directory: a walk hashes the next name during this lookup. A rename
//! keeps a directory's number, so it moves one entry and none below it.
//!
//! **Digests.** The path cache (`path_cache.rs`) identifies a path by 128 bits: the sum over pairs
//! of words of the product of both, each plus a secret word ("NH" of UMAC; Black, Halevi, Krawczyk,
//! Krovetz, Rogaway 1999). The words are the path's first and last bytes, which overlap, so that
//! all paths of 65 to 128 bytes take the same steps. Two different paths of one length, chosen
//! without knowledge of the secrets, have equal digests with a probability of at most 2^-64.
//!
//! Names of less than 32 bytes take the same steps, as no processor could predict branches on their
//! length: nearly half of the names of the lab's trees have sixteen bytes or more.

use crate::hash::bytes::{positions, positions_in, words};
use crate::table::id::Id;
use std::hint::select_unpredictable;

pub(crate) const INLINE: usize = 32;
pub(crate) const NAME_MAX: usize = 255;

/// Longest path with a digest, in bytes.
pub(crate) const PATH_MAX: usize = 255;

const WORDS: usize = INLINE / size_of::<u64>();

#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) words: [u64; WORDS],
    hash: u32,
}

impl<'a> Name<'a> {
    /// The name of the root and of entries that were never linked.
    pub(crate) const NONE: Name<'static> = Name { bytes: b"", words: [0; WORDS], hash: 0 };

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.bytes.len() > INLINE
    }

    /// Whether this may be `.` or `..`.
    #[inline(always)]
    pub(crate) fn begins_with_dot(&self) -> bool {
        self.words[0] as u8 == b'.'
    }

    #[inline]
    pub(crate) fn is_dot(&self) -> bool {
        self.words[0] == u64::from(b'.')
    }

    #[inline]
    pub(crate) fn is_dot_dot(&self) -> bool {
        self.words[0] == u64::from(u16::from_le_bytes(*b".."))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digest(pub(crate) [u64; 2]);

impl Digest {
    #[inline(always)]
    pub(crate) fn mixed(self) -> u64 {
        (self.0[0] ^ self.0[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Words of a digest: the start, the length, and at most 256 bytes.
const DIGEST_WORDS: usize = 2 + 2 * 128 / size_of::<u64>();

pub(crate) struct Hasher {
    secret: [u64; 5],
    digest: [u64; DIGEST_WORDS],
}

impl Hasher {
    /// Secrets derived from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014): consecutive outputs of any seed are well mixed.
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        // Odd, so that a multiplication loses no bits.
        Hasher { secret: std::array::from_fn(|_| next() | 1), digest: std::array::from_fn(|_| next()) }
    }

    #[inline(always)]
    fn hash(&self, dir: Id, words: [u64; WORDS]) -> u32 {
        // Spread, as neighbouring numbers would give neighbouring buckets for one name.
        let dir = u64::from(dir.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        fold(self.mix(self.secret[0], words) ^ dir, self.secret[4]) as u32
    }

    /// Splits off the name at `at`, which is not empty, and hashes it in `dir`. Returns the name's
    /// end.
    #[inline(always)]
    pub(crate) fn split<'p>(&self, dir: Id, text: Text<'p, '_>, at: usize) -> (Name<'p>, usize) {
        let window = text.window(at);
        // A bit past the end, in case there is no slash.
        let len = (u64::from(positions_in(window, b'/')) | 1 << INLINE).trailing_zeros() as usize;
        if len == INLINE {
            return self.split_long(dir, text, at);
        }
        let words = first_bytes(window, len);
        (Name { bytes: &text.bytes[at..at + len], words, hash: self.hash(dir, words) }, at + len)
    }

    #[cold]
    #[inline(never)]
    fn split_long<'p>(&self, dir: Id, text: Text<'p, '_>, at: usize) -> (Name<'p>, usize) {
        let rest = &text.bytes[at..];
        let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (mut first, mut second) = (self.secret[0], self.secret[2]);
        for block in 0..=len / INLINE {
            let begin = block * INLINE;
            let words = first_bytes(text.window(at + begin), (len - begin).min(INLINE));
            first = self.mix(first, words);
            second = fold(second ^ words[0], self.secret[3] ^ words[1]);
            second = fold(second ^ words[2], self.secret[1] ^ words[3]);
        }
        let words = if len > INLINE { [first, second, 0, 0] } else { words(text.window(at)) };
        (Name { bytes: &rest[..len], words, hash: self.hash(dir, words) }, at + len)
    }

    /// The second product does not depend on `state`.
    #[inline(always)]
    fn mix(&self, state: u64, words: [u64; WORDS]) -> u64 {
        fold(state ^ words[0], self.secret[1] ^ words[1])
            ^ fold(self.secret[2] ^ words[2], self.secret[3] ^ words[3])
    }

    #[inline(always)]
    pub(crate) fn digest(&self, start: Id, path: &[u8]) -> Digest {
        let (head, keys) = self.digest.split_at(2);
        let sum = product([u64::from(start.0), path.len() as u64], [head[0], head[1]]);
        let sum = sum.wrapping_add(match path.len() {
            129.. => both_ends::<128>(path, keys),
            65.. => both_ends::<64>(path, keys),
            33.. => both_ends::<32>(path, keys),
            16.. => both_ends::<16>(path, keys),
            _ => {
                let mut words = [0; 16];
                words[..path.len()].copy_from_slice(path);
                both_ends::<16>(&words, keys)
            }
        });
        Digest([sum as u64, (sum >> 64) as u64])
    }

    /// A name that an entry may have: not empty, `.`, `..`, too long, or with a slash or NUL.
    pub(crate) fn name<'n>(&self, dir: Id, bytes: &'n [u8]) -> Option<Name<'n>> {
        // Words are padded with zeroes.
        let zeroes = |[a, b, c, d]: [u64; WORDS]| positions(a, b, 0) | positions(c, d, 0) << 16;
        self.lookup_name(dir, bytes).filter(|name| match bytes.len() {
            len @ ..INLINE => zeroes(name.words) & ((1 << len) - 1) == 0,
            _ => !bytes.contains(&0),
        })
    }

    /// The same for a lookup, which needs no check for NUL.
    #[inline(always)]
    pub(crate) fn lookup_name<'n>(&self, dir: Id, bytes: &'n [u8]) -> Option<Name<'n>> {
        if !(1..INLINE).contains(&bytes.len()) {
            return self.lookup_name_of_any_length(dir, bytes);
        }
        let words = short_words(bytes);
        let slashes = positions(words[0], words[1], b'/') | positions(words[2], words[3], b'/');
        let name = Name { bytes, words, hash: self.hash(dir, words) };
        (slashes == 0 && !name.is_dot() && !name.is_dot_dot()).then_some(name)
    }

    #[cold]
    fn lookup_name_of_any_length<'n>(&self, dir: Id, bytes: &'n [u8]) -> Option<Name<'n>> {
        if !(1..=NAME_MAX).contains(&bytes.len()) {
            return None;
        }
        let (name, end) = self.split_long(dir, Text::new(bytes, &mut { Text::TAIL }), 0);
        (end == bytes.len()).then_some(name)
    }
}

/// A path with 32 readable bytes at any offset.
#[derive(Clone, Copy)]
pub(crate) struct Text<'p, 't> {
    pub(crate) bytes: &'p [u8],
    /// The last 32 bytes, or as many as there are, then slashes. By reference, as a `Text` is
    /// copied.
    tail: &'t [u8; 2 * INLINE],
}

impl<'p, 't> Text<'p, 't> {
    pub(crate) const TAIL: [u8; 2 * INLINE] = [b'/'; 2 * INLINE];

    #[inline(always)]
    pub(crate) fn new(bytes: &'p [u8], tail: &'t mut [u8; 2 * INLINE]) -> Self {
        match bytes.last_chunk::<INLINE>() {
            // By value: a copy of slices is a call.
            Some(last) => tail.first_chunk_mut().into_iter().for_each(|half| *half = *last),
            None => copy_short(bytes, tail),
        }
        Text { bytes, tail }
    }

    /// With slashes beyond the end.
    #[inline(always)]
    pub(crate) fn window(&self, at: usize) -> &[u8; INLINE] {
        let len = self.bytes.len();
        debug_assert!(at <= len);
        let behind = self.tail.as_ptr().wrapping_add(INLINE).wrapping_sub(len);
        let base = select_unpredictable(at + INLINE <= len, self.bytes.as_ptr(), behind);
        // SAFETY: up to `len - 32` the window is inside `bytes`. Beyond, `at + 32 - len` is 1 to
        // 32, as `at` is at most `len`, and the window is inside `tail`.
        unsafe { &*base.wrapping_add(at).cast() }
    }

    #[inline(always)]
    pub(crate) fn is_one_name(&self) -> bool {
        let len = self.bytes.len();
        len < INLINE && positions_in(self.window(0), b'/') & ((1 << len) - 1) == 0
    }

    #[inline(always)]
    pub(crate) fn skip_slashes(&self, at: usize) -> usize {
        let slashes = self.bytes[at..].iter().take_while(|&&byte| byte == b'/');
        at + slashes.count()
    }
}

/// A step of a digest: a secret hides each word before the multiplication.
#[inline(always)]
fn product(words: [u64; 2], keys: [u64; 2]) -> u128 {
    u128::from(words[0].wrapping_add(keys[0])) * u128::from(words[1].wrapping_add(keys[1]))
}

/// The steps for the first and last `N` bytes, which together are the path.
#[inline(always)]
fn both_ends<const N: usize>(path: &[u8], keys: &[u64]) -> u128 {
    let (Some(first), Some(last)) = (path.first_chunk::<N>(), path.last_chunk::<N>()) else { return 0 };
    let steps = |bytes: &[u8; N], keys: &[u64]| {
        let (words, _) = bytes.as_chunks();
        let (words, _) = words.as_chunks();
        let (keys, _) = keys.as_chunks();
        let word = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        let steps = words.iter().zip(keys).map(|(&[a, b], &keys)| product([word(a), word(b)], keys));
        steps.fold(0_u128, u128::wrapping_add)
    };
    let (front, back) = keys.split_at(N / size_of::<u64>());
    steps(first, front).wrapping_add(steps(last, back))
}

/// Copies fewer than 32 bytes to the end of the first half of `tail`, by overlapping words, as a
/// copy of variable length is a call.
#[inline]
fn copy_short(bytes: &[u8], tail: &mut [u8; 2 * INLINE]) {
    let begin = INLINE - bytes.len();
    let mut put = |at: usize, part: &[u8]| tail[at..at + part.len()].copy_from_slice(part);
    match bytes.len() {
        16.. => {
            bytes.first_chunk::<16>().into_iter().for_each(|first| put(begin, first));
            bytes.last_chunk::<16>().into_iter().for_each(|last| put(INLINE - 16, last));
        }
        8.. => {
            bytes.first_chunk::<8>().into_iter().for_each(|first| put(begin, first));
            bytes.last_chunk::<8>().into_iter().for_each(|last| put(INLINE - 8, last));
        }
        _ => bytes.iter().enumerate().for_each(|(i, &byte)| put(begin + i, &[byte])),
    }
}

/// A name of 1 to 31 bytes, by overlapping words.
#[inline(always)]
fn short_words(bytes: &[u8]) -> [u64; WORDS] {
    let len = bytes.len();
    // In two steps, as a shift by all bits is no shift.
    let behind = |last: u64, room: usize| last >> (8 * (room - 1 - len)) >> 8;
    if let (Some(first), Some(last)) = (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) {
        let (first, last) = (u128::from_le_bytes(*first), u128::from_le_bytes(*last));
        let last = last >> (8 * (31 - len)) >> 8;
        [first as u64, (first >> 64) as u64, last as u64, (last >> 64) as u64]
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        [u64::from_le_bytes(*first), behind(u64::from_le_bytes(*last), 16), 0, 0]
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        [u64::from(first) | behind(u64::from(last), 8) << 32, 0, 0, 0]
    } else {
        let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
        [byte(0) | byte(len / 2) | byte(len - 1), 0, 0, 0]
    }
}

/// The first `len` bytes, at most 32, then zeroes.
#[inline(always)]
fn first_bytes(bytes: &[u8; INLINE], len: usize) -> [u64; WORDS] {
    const MASK: [u8; 2 * INLINE] = {
        let mut mask = [0; 2 * INLINE];
        let mut i = 0;
        while i < INLINE {
            mask[i] = u8::MAX;
            i += 1;
        }
        mask
    };
    let mask = MASK[INLINE - len..].first_chunk().map_or([0; WORDS], words);
    let words = words(bytes);
    std::array::from_fn(|i| words[i] & mask[i])
}

/// Every bit of the result depends on all of both factors.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_the_same_name_wherever_it_stands() {
        let hasher = Hasher::new(7);
        for len in 1..=NAME_MAX {
            let bytes: Vec<u8> = (0..len).map(|i| b'a' + (i % 23) as u8).collect();
            let alone = hasher.name(Id(99), &bytes).expect("a valid name");
            for prefix in ["", "x/", "longer-prefix/"] {
                for suffix in ["", "/", "/y", "/some/more/components"] {
                    let path = [prefix.as_bytes(), &bytes, suffix.as_bytes()].concat();
                    let (inside, end) =
                        hasher.split(Id(99), Text::new(&path, &mut { Text::TAIL }), prefix.len());
                    assert_eq!((inside.bytes, &path[end..]), (&bytes[..], suffix.as_bytes()));
                    assert_eq!(
                        (inside.words, inside.hash),
                        (alone.words, alone.hash),
                        "{len} {prefix}{suffix}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_byte_of_a_path_and_its_start_have_a_part_in_the_digest() {
        let hasher = Hasher::new(13);
        let mut seen = std::collections::HashSet::new();
        for len in 1..=PATH_MAX {
            let mut path: Vec<u8> = (0..len).map(|i| b'a' + (i % 16) as u8).collect();
            assert_eq!(hasher.digest(Id(1), &path), hasher.digest(Id(1), &path));
            assert!(seen.insert(hasher.digest(Id(1), &path).0) && seen.insert(hasher.digest(Id(2), &path).0));
            for at in 0..len {
                path[at] ^= 0x80;
                assert!(seen.insert(hasher.digest(Id(1), &path).0), "{len} {at}");
                path[at] ^= 0x80;
            }
        }
        assert_ne!(hasher.digest(Id(1), b"a"), Hasher::new(14).digest(Id(1), b"a"), "keyed");
    }

    #[test]
    fn digests_of_similar_paths_spread_over_all_places() {
        let hasher = Hasher::new(3);
        let mut places = vec![0_u32; 1 << 12];
        for i in 0..8 << 12 {
            let digest = hasher.digest(Id(1), format!("directory/of-many-files/file{i}").as_bytes());
            places[(digest.mixed() >> (64 - 12)) as usize] += 1;
        }
        assert!(places.iter().max() < Some(&28));
    }

    #[test]
    fn what_is_no_entry_name_is_refused() {
        let hasher = Hasher::new(1);
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; NAME_MAX + 1]] {
            assert!(hasher.name(Id(1), bad).is_none(), "{bad:?}");
        }
        for good in [&b"..."[..], b".a", b"..a", b"\xff\xfe", &[b'x'; NAME_MAX]] {
            assert!(hasher.name(Id(1), good).is_some(), "{good:?}");
        }
    }

    #[test]
    fn hashes_of_similar_names_and_of_one_name_in_many_directories_spread_over_all_buckets() {
        for seed in 0..64 {
            let hasher = Hasher::new(seed);
            let hash = |dir: u32, name: String| hasher.name(Id(dir), name.as_bytes()).expect("a name").hash();
            let similar = |i| hash(5, format!("file{i}"));
            let equal = |i| hash(i, "Makefile".to_owned());
            for (what, hash) in [("similar", &similar as &dyn Fn(u32) -> u32), ("equal", &equal)] {
                let mut buckets = vec![0_u32; 1 << 12];
                (0..8 << 12).for_each(|i| buckets[hash(i) as usize % (1 << 12)] += 1);
                // Mean 8, so a fair spread stays below 8 + 7 standard deviations of 2.8.
                assert!(buckets.iter().max() < Some(&28), "{what} {seed}");
            }
        }
    }
}
