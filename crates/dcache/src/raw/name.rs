//! Names as the cache compares them: split off a path, hashed under the directory's seed, in whole words.
//!
//! A name of up to 32 bytes is its own key: four words, padded with zeroes (a file name has no NUL, and lengths
//! are compared too). Of a longer name the key is its length and a keyed 128-bit hash, and the full bytes are
//! compared before a hit is believed.
//!
//! `hash(seed, name)` yields 64 bits: the lower half is the *hash*, which chooses bucket and tag; the upper half
//! is the *seed* of the directory that is created under this name. A directory keeps its seed when it is renamed
//! ("sticky"), so all hashes of a path follow from the path alone as long as nothing above was renamed.
//!
//! One folded multiplication per word, under secrets drawn for each cache: names that an outsider chooses cannot
//! be aimed at one bucket.

/// Bytes of a name that fit the record.
pub(crate) const INLINE: usize = 32;
/// The longest name that is cached.
pub(crate) const NAME_MAX: usize = 255;

const WORDS: usize = INLINE / 8;
const WORD: usize = size_of::<u64>();

/// One component: its bytes, its key and its hash under some directory's seed.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) words: [u64; WORDS],
    hash: u64,
}

impl Name<'_> {
    /// The name of what has none: the root, and entries that were never linked.
    pub(crate) const NONE: Name<'static> = Name { bytes: b"", words: [0; WORDS], hash: 0 };

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        self.hash as u32
    }

    /// The seed of a directory created under this name.
    #[inline]
    pub(crate) fn seed(&self) -> u32 {
        (self.hash >> 32) as u32
    }

    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.bytes.len() > INLINE
    }

    /// Whether this is `.`.
    #[inline]
    pub(crate) fn is_dot(&self) -> bool {
        self.words[0] == u64::from(b'.')
    }

    /// Whether this is `..`.
    #[inline]
    pub(crate) fn is_dot_dot(&self) -> bool {
        self.words[0] == u64::from(u16::from_le_bytes(*b".."))
    }
}

/// The secrets of one cache.
#[derive(Clone, Copy)]
pub(crate) struct Hasher {
    secret: [u64; 4],
}

impl Hasher {
    /// Secrets that follow from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014): consecutive outputs of any seed are well mixed.
        let mut state = seed;
        let secret = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            // Odd, so that no multiplication loses what it is given.
            (x ^ (x >> 31)) | 1
        });
        Hasher { secret }
    }

    /// A seed for a directory that shall not have the one its name implies.
    pub(crate) fn salt(&self, seed: u32, salt: u64) -> u32 {
        (fold(self.secret[2] ^ u64::from(seed), self.secret[3] ^ salt) >> 32) as u32
    }

    /// Splits off the name that begins at `path[at]`, which is no slash, and hashes it under `seed`.
    #[inline(always)]
    pub(crate) fn split<'p>(&self, seed: u32, path: &'p [u8], at: usize) -> Name<'p> {
        let mut words = [0; WORDS];
        let mut state = self.secret[0] ^ u64::from(seed);
        for (i, slot) in words.iter_mut().enumerate() {
            let begin = at + i * WORD;
            let (word, len) = word_of_name(path, begin);
            if len == WORD {
                *slot = word;
                state = fold(state ^ word, self.secret[1]);
                continue;
            }
            if len > 0 {
                *slot = word;
                state = fold(state ^ word, self.secret[1]);
            }
            return Name { bytes: &path[at..begin + len], words, hash: state };
        }
        self.split_long(state, words, path, at)
    }

    /// The rest of `split` for a name of at least 32 bytes.
    #[cold]
    fn split_long<'p>(&self, mut state: u64, words: [u64; WORDS], path: &'p [u8], at: usize) -> Name<'p> {
        let mut end = at + INLINE;
        let mut second = words.iter().fold(self.secret[2], |s, &w| fold(s ^ w, self.secret[3]));
        loop {
            let (word, len) = word_of_name(path, end);
            if len > 0 {
                state = fold(state ^ word, self.secret[1]);
                second = fold(second ^ word, self.secret[3]);
            }
            end += len;
            if len < WORD {
                break;
            }
        }
        let bytes = &path[at..end];
        let words = if bytes.len() > INLINE { [state, second, 0, 0] } else { words };
        Name { bytes, words, hash: state }
    }

    /// A whole name. `None` for what is no name of a directory entry: nothing, `.`, `..`, more than
    /// [`NAME_MAX`] bytes, or a slash or NUL inside.
    pub(crate) fn name<'n>(&self, seed: u32, bytes: &'n [u8]) -> Option<Name<'n>> {
        if bytes.is_empty() || bytes.len() > NAME_MAX || bytes.contains(&0) {
            return None;
        }
        let name = self.split(seed, bytes, 0);
        (name.bytes.len() == bytes.len() && !name.is_dot() && !name.is_dot_dot()).then_some(name)
    }
}

/// Up to eight bytes of a name from `at` on, zero beyond its end, and how many they are.
#[inline(always)]
fn word_of_name(path: &[u8], at: usize) -> (u64, usize) {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);

    let (word, available) = load(path, at);
    // The lowest set bit marks the first slash (above it a borrow may set more).
    let differs = word ^ SLASHES;
    let slash = differs.wrapping_sub(ONES) & !differs & HIGHS;
    let len = (slash.trailing_zeros() as usize / 8).min(available);
    if len == WORD { (word, len) } else { (word & !(u64::MAX << (8 * len)), len) }
}

/// Eight bytes from `at` on, with garbage or zeroes beyond the end, and how many are in the path.
#[inline(always)]
fn load(path: &[u8], at: usize) -> (u64, usize) {
    match path.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => (u64::from_le_bytes(*bytes), WORD),
        None => load_end(path, at),
    }
}

#[inline]
fn load_end(path: &[u8], at: usize) -> (u64, usize) {
    let rest = path.get(at..).unwrap_or(&[]);
    let word = match path.last_chunk() {
        // The last eight bytes, moved down so that `at` is first; in two steps, as `rest` may be empty.
        Some(bytes) => (u64::from_le_bytes(*bytes) >> (8 * (WORD - 1 - rest.len()))) >> 8,
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    (word, rest.len())
}

/// The two halves of a product, folded: every bit of the result depends on all of both factors.
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
            let alone = hasher.name(99, &bytes).expect("a valid name");
            for prefix in ["", "x/", "longer-prefix/"] {
                for suffix in ["", "/", "/y", "/some/more/components"] {
                    let path = [prefix.as_bytes(), &bytes, suffix.as_bytes()].concat();
                    let inside = hasher.split(99, &path, prefix.len());
                    assert_eq!(inside.bytes, bytes);
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
    fn what_is_no_entry_name_is_refused() {
        let hasher = Hasher::new(1);
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; NAME_MAX + 1]] {
            assert!(hasher.name(0, bad).is_none(), "{bad:?}");
        }
        for good in [&b"..."[..], b".a", b"..a", b"\xff\xfe", &[b'x'; NAME_MAX]] {
            assert!(hasher.name(0, good).is_some(), "{good:?}");
        }
    }

    #[test]
    fn hashes_of_similar_names_spread_over_all_buckets() {
        let hasher = Hasher::new(3);
        let mut buckets = vec![0_u32; 1 << 12];
        for i in 0..8 << 12 {
            let name = format!("file{i}");
            let hash = hasher.name(5, name.as_bytes()).expect("a valid name").hash();
            buckets[hash as usize % (1 << 12)] += 1;
        }
        // Mean 8, so a fair spread stays below 8 + 7 standard deviations of 2.8.
        assert!(buckets.iter().max() < Some(&28));
    }
}
