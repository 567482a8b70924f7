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
//! One folded multiplication per sixteen bytes, under secrets drawn for each cache: names that an outsider chooses
//! cannot be aimed at one bucket. All names of less than sixteen bytes take the same steps, without a branch on
//! their length, which no processor could predict.

use super::bytes::positions;

/// Bytes of a name that fit the record.
pub(crate) const INLINE: usize = 32;
/// The longest name that is cached.
pub(crate) const NAME_MAX: usize = 255;

const WORDS: usize = INLINE / size_of::<u64>();
const BLOCK: usize = 2 * size_of::<u64>();

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

    /// Whether this may be `.` or `..`.
    #[inline(always)]
    pub(crate) fn begins_with_dot(&self) -> bool {
        self.words[0] as u8 == b'.'
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

    /// Splits the name at the beginning of `rest`, the end of `path`, off it, and hashes it under `seed`: all blocks
    /// up to and with the one in which the name ends. `rest` is not empty and begins with no slash.
    #[inline]
    pub(crate) fn split<'p>(&self, seed: u32, path: &'p [u8], rest: &'p [u8]) -> (Name<'p>, &'p [u8]) {
        self.split_short(seed, path, rest).unwrap_or_else(|| self.split_long(seed, path, rest))
    }

    /// As [`split`](Self::split), for names of less than 32 bytes; `None` for others.
    #[inline(always)]
    pub(crate) fn split_short<'p>(
        &self,
        seed: u32,
        path: &'p [u8],
        rest: &'p [u8],
    ) -> Option<(Name<'p>, &'p [u8])> {
        let first = Block::of_name(path, rest);
        let hash = self.mix(self.start(seed), first);
        if first.len < BLOCK {
            let (bytes, behind) = rest.split_at_checked(first.len)?;
            return Some((Name { bytes, words: [first.low, first.high, 0, 0], hash }, behind));
        }
        let second = Block::of_name(path, rest.get(BLOCK..)?);
        let hash = self.mix(hash, second);
        if second.len < BLOCK {
            let (bytes, behind) = rest.split_at_checked(BLOCK + second.len)?;
            return Some((
                Name { bytes, words: [first.low, first.high, second.low, second.high], hash },
                behind,
            ));
        }
        None
    }

    /// As [`split`](Self::split), for a name of at least 32 bytes.
    #[cold]
    fn split_long<'p>(&self, seed: u32, path: &'p [u8], rest: &'p [u8]) -> (Name<'p>, &'p [u8]) {
        let (mut hash, mut second) = (self.start(seed), self.secret[2]);
        let (mut words, mut end) = ([0; WORDS], 0);
        loop {
            let block = Block::of_name(path, &rest[end..]);
            hash = self.mix(hash, block);
            second = fold(second ^ block.low, self.secret[3] ^ block.high);
            if end < INLINE {
                words[end / 8] = block.low;
                words[end / 8 + 1] = block.high;
            }
            end += block.len;
            if block.len < BLOCK {
                break;
            }
        }
        let (bytes, behind) = rest.split_at(end);
        let words = if bytes.len() > INLINE { [hash, second, 0, 0] } else { words };
        (Name { bytes, words, hash }, behind)
    }

    #[inline(always)]
    fn start(&self, seed: u32) -> u64 {
        self.secret[0] ^ u64::from(seed)
    }

    #[inline(always)]
    fn mix(&self, state: u64, block: Block) -> u64 {
        fold(state ^ block.low, self.secret[1] ^ block.high)
    }

    /// A whole name. `None` for what is no name of a directory entry: nothing, `.`, `..`, more than
    /// [`NAME_MAX`] bytes, or a slash or NUL inside.
    pub(crate) fn name<'n>(&self, seed: u32, bytes: &'n [u8]) -> Option<Name<'n>> {
        if bytes.is_empty() || bytes.len() > NAME_MAX || bytes.contains(&0) {
            return None;
        }
        let (name, behind) = self.split(seed, bytes, bytes);
        (behind.is_empty() && !name.bytes.is_empty() && !name.is_dot() && !name.is_dot_dot()).then_some(name)
    }
}

/// Up to sixteen bytes of a name, zero beyond its end.
#[derive(Clone, Copy)]
struct Block {
    low: u64,
    high: u64,
    len: usize,
}

impl Block {
    /// The next bytes of the name at the beginning of `rest`, the end of `path`.
    #[inline(always)]
    fn of_name(path: &[u8], rest: &[u8]) -> Block {
        let bytes = match rest.first_chunk() {
            Some(bytes) => u128::from_le_bytes(*bytes),
            None => last_block(path, rest.len()),
        };
        // One more at the end, for where there is no slash.
        let slashes = positions(bytes as u64, (bytes >> 64) as u64, b'/') | 1 << BLOCK;
        let len = slashes.trailing_zeros() as usize;
        let bytes = bytes & KEPT[len];
        Block { low: bytes as u64, high: (bytes >> 64) as u64, len }
    }
}

/// Masks for the first 0 to 16 bytes of a block. Loading one takes less than computing it.
const KEPT: [u128; BLOCK + 1] = {
    let mut masks = [u128::MAX; BLOCK + 1];
    let mut len = 0;
    while len < BLOCK {
        masks[len] = !(u128::MAX << (8 * len));
        len += 1;
    }
    masks
};

const SLASHES: u128 = u128::from_ne_bytes([b'/'; BLOCK]);

/// The last `len` bytes of the path, fewer than sixteen, as if slashes followed them.
#[inline]
fn last_block(path: &[u8], len: usize) -> u128 {
    match path.last_chunk() {
        // The last sixteen bytes, moved down.
        Some(bytes) => {
            (u128::from_le_bytes(*bytes) ^ SLASHES).unbounded_shr(8 * (BLOCK - len) as u32) ^ SLASHES
        }
        None => short_block(path, len),
    }
}

fn short_block(path: &[u8], len: usize) -> u128 {
    let mut bytes = [b'/'; BLOCK];
    bytes[..len].copy_from_slice(&path[path.len() - len..]);
    u128::from_le_bytes(bytes)
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
                    let (inside, behind) = hasher.split(99, &path, &path[prefix.len()..]);
                    assert_eq!((inside.bytes, behind), (&bytes[..], suffix.as_bytes()));
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
