//! Half of MD4 (three rounds of eight steps), of one name or of sixteen in parallel.
//!
//! The steps of one name depend on each other and leave the processor idle; sixteen names in vector
//! lanes take little longer. A name of 20 bytes takes 35 ns alone, and among others 20 ns with four
//! words per vector (x86-64), 12 with eight (AVX2), 8 with sixteen (AVX-512). The width is chosen
//! at run time.
//!
//! Bytes after a name's end are masked in the vectors, so no branch depends on its length.
//! Functions with a [`Simd`] argument are `inline(always)`, because only the caller enables the
//! instructions.

use super::{CharSign, HashSeed, NameHash};
use fearless_simd::{Level, Simd, dispatch, prelude::*, u8x32, u32x8, u32x16};
use std::ops::{BitAnd, BitOr, BitXor, Range};

/// Per transform.
pub(super) const BYTES: usize = 32;
/// Per transform.
pub(super) const WORDS: usize = BYTES / 4;
/// Names in parallel.
const LANES: usize = 16;

/// MD4's operand: a word of one name, or of several.
pub(super) trait Word:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    fn plus(self, other: Self) -> Self;
    fn plus_all(self, word: u32) -> Self;
    fn rotated(self, by: u32) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn plus_all(self, word: u32) -> Self {
        self.wrapping_add(word)
    }

    #[inline(always)]
    fn rotated(self, by: u32) -> Self {
        self.rotate_left(by)
    }
}

impl<S: Simd> Word for u32x16<S> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn plus_all(self, word: u32) -> Self {
        self + word
    }

    #[inline(always)]
    fn rotated(self, by: u32) -> Self {
        (self << by) | (self >> (u32::BITS - by))
    }
}

#[inline(always)]
fn choose<W: Word>(x: W, y: W, z: W) -> W {
    z ^ (x & (y ^ z))
}

#[inline(always)]
fn majority<W: Word>(x: W, y: W, z: W) -> W {
    (x & y) | (z & (x | y))
}

#[inline(always)]
fn parity<W: Word>(x: W, y: W, z: W) -> W {
    x ^ y ^ z
}

/// Eight steps, each with an input word.
#[inline(always)]
fn round<W: Word>(
    [mut a, mut b, mut c, mut d]: [W; 4],
    function: impl Fn(W, W, W) -> W,
    constant: u32,
    words: [W; WORDS],
    shifts: [u32; 4],
) -> [W; 4] {
    for (step, word) in words.into_iter().enumerate() {
        // The previous step's result is added last: it is ready last.
        let sum = a.plus(word.plus_all(constant)).plus(function(b, c, d));
        // Rotates the registers: the result is `b` of the next step.
        (a, b, c, d) = (d, sum.rotated(shifts[step % 4]), b, c);
    }
    [a, b, c, d]
}

#[inline(always)]
pub(super) fn transform<W: Word>(state: &mut [W; 4], input: &[W; WORDS]) {
    let [i0, i1, i2, i3, i4, i5, i6, i7] = *input;
    let mixed = round(*state, choose, 0, *input, [3, 7, 11, 19]);
    let mixed = round(mixed, majority, 0x5a82_7999, [i1, i3, i5, i7, i0, i2, i4, i6], [3, 5, 9, 13]);
    let mixed = round(mixed, parity, 0x6ed9_eba1, [i3, i7, i2, i6, i1, i5, i0, i4], [3, 9, 11, 15]);
    for (word, mixed) in state.iter_mut().zip(mixed) {
        *word = word.plus(mixed);
    }
}

/// Appends the hashes in the names' order.
pub(super) fn hash_in_parallel(
    level: Level,
    bytes: &[u8],
    names: impl Iterator<Item = Range<usize>>,
    sign: CharSign,
    seed: HashSeed,
    hashes: &mut Vec<NameHash>,
) {
    dispatch!(level, simd => digest_all(simd, bytes, names, sign, seed, hashes));
}

#[inline(always)]
fn digest_all<S: Simd>(
    simd: S,
    bytes: &[u8],
    mut names: impl Iterator<Item = Range<usize>>,
    sign: CharSign,
    HashSeed(seed): HashSeed,
    hashes: &mut Vec<NameHash>,
) {
    loop {
        let (mut starts, mut lens, mut count, mut longest) = ([0; LANES], [0; LANES], 0, 0);
        for ((start, len), name) in starts.iter_mut().zip(&mut lens).zip(&mut names) {
            let name_len = bytes.get(name.clone()).map_or(0, <[u8]>::len);
            (*start, *len) = (name.start, u32::try_from(name_len).unwrap_or(u32::MAX));
            (longest, count) = (longest.max(name_len), count + 1);
        }
        let mut left = u32x16::load_array(simd, lens);
        let mut state = [u32x16::splat(simd, 0); 4];
        for (word, seed) in state.iter_mut().zip(seed) {
            *word = u32x16::splat(simd, seed);
        }
        for at in (0..longest).step_by(BYTES) {
            let input = words_of_all(simd, bytes, &starts, at, left, sign);
            let before = state;
            transform(&mut state, &input);
            // Names that have ended keep their state.
            let is_fed = left.simd_gt(u32x16::splat(simd, 0));
            for (word, before) in state.iter_mut().zip(before) {
                *word = is_fed.select(*word, before);
            }
            let taken = u32x16::splat(simd, BYTES as u32);
            left = left.max(taken) - taken;
        }
        let [_, majors, minors, _] = state;
        let words = majors.to_array().into_iter().zip(minors.to_array());
        hashes.extend(words.take(count).map(|(major, minor)| NameHash::new(major, minor)));
        if count < LANES {
            return;
        }
    }
}

/// [`input_words`](super::input_words) of each name from byte `at`; `left` bytes remain.
#[inline(always)]
fn words_of_all<S: Simd>(
    simd: S,
    bytes: &[u8],
    starts: &[usize; LANES],
    at: usize,
    left: u32x16<S>,
    sign: CharSign,
) -> [u32x16<S>; WORDS] {
    let mut words = [u32x16::splat(simd, 0); WORDS];
    let (pairs, _) = starts.as_chunks();
    for (row, &[first, second]) in words.iter_mut().zip(pairs) {
        *row = simd.combine_u32x8(load(simd, bytes, first, at), load(simd, bytes, second, at));
    }
    // Each moves the lowest bit of an element's position to the top: three bits of the word, from
    // lanes to rows.
    let mut words = rotated(rotated(rotated(words)));

    let sign_bits = match sign {
        CharSign::Signed => 0x8080_8080,
        CharSign::Unsigned => 0,
    };
    let half = left | (left << 8);
    let padding = half | (half << 16);
    let whole = left >> 2;
    let mut part = padding;
    for (at, word) in (0..).zip(&mut words) {
        let at = u32x16::splat(simd, at);
        let read = first_highest(*word);
        part = whole.simd_eq(at).select(read, part);
        *word = whole.simd_gt(at).select(less_borrowed(read, sign_bits), padding);
    }
    // A shift by the width of a word is undefined.
    let bits = (left & 3) << 3;
    let part = (part >> 1) >> (u32x16::splat(simd, u32::BITS - 1) - bits);
    let part = (padding << bits) + less_borrowed(part, sign_bits);
    for (at, word) in (0..).zip(&mut words) {
        *word = whole.simd_eq(u32x16::splat(simd, at)).select(part, *word);
    }
    words
}

/// Eight words from byte `at` after `start`, in memory order, zero after the end.
#[inline(always)]
fn load<S: Simd>(simd: S, bytes: &[u8], start: usize, at: usize) -> u32x8<S> {
    let rest = bytes.get(start.saturating_add(at)..).unwrap_or_default();
    let loaded = match rest.first_chunk() {
        Some(chunk) => u8x32::load_array_ref(simd, chunk),
        None => u8x32::load_array(simd, with_zeros(rest)),
    };
    loaded.bitcast()
}

#[cold]
fn with_zeros(rest: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.iter_mut().zip(rest).for_each(|(byte, &read)| *byte = read);
    bytes
}

/// Moves each element to its position (row above lane) rotated right by one of seven bits.
#[inline(always)]
fn rotated<S: Simd>([r0, r1, r2, r3, r4, r5, r6, r7]: [u32x16<S>; WORDS]) -> [u32x16<S>; WORDS] {
    let (s0, s4) = r0.deinterleave(r1);
    let (s1, s5) = r2.deinterleave(r3);
    let (s2, s6) = r4.deinterleave(r5);
    let (s3, s7) = r6.deinterleave(r7);
    [s0, s1, s2, s3, s4, s5, s6, s7]
}

/// From memory order to first byte highest.
#[inline(always)]
fn first_highest<S: Simd>(word: u32x16<S>) -> u32x16<S> {
    if cfg!(target_endian = "big") {
        return word;
    }
    (word << 24) | ((word & 0xff00) << 8) | ((word >> 8) & 0xff00) | (word >> 24)
}

/// A signed byte borrows from its left neighbour.
#[inline(always)]
fn less_borrowed<S: Simd>(word: u32x16<S>, sign_bits: u32) -> u32x16<S> {
    word - ((word & sign_bits) << 1)
}

#[cfg(test)]
mod tests {
    use super::super::digest;
    use super::*;
    use proptest::prelude::*;

    fn levels() -> Vec<Level> {
        let mut levels = vec![Level::new(), Level::baseline()];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(Level::new().as_sse4_2().map(Level::Sse4_2));
            levels.extend(Level::new().as_avx2().map(Level::Avx2));
        }
        levels
    }

    proptest! {
        #[test]
        fn parallel_input_words_equal_single_ones_for_every_vector_width(
            bytes in prop::collection::vec(any::<u8>(), 0..700),
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..=255_usize), 0..40),
            unsigned in any::<bool>(),
            seed: [u32; 4],
        ) {
            let place = |(start, len): &(prop::sample::Index, usize)| {
                let start = start.index(bytes.len() + 1);
                start..bytes.len().min(start + len)
            };
            let names: Vec<_> = cuts.iter().map(place).collect();
            let sign = if unsigned { CharSign::Unsigned } else { CharSign::Signed };
            let seed = HashSeed::new(seed);
            let alone = |name: &Range<usize>| {
                let bytes = &bytes[name.clone()];
                let [_, major, minor, _] = digest::<BYTES, WORDS>(bytes, sign, seed, transform);
                NameHash::new(major, minor)
            };
            let expected: Vec<_> = names.iter().map(alone).collect();
            for level in levels() {
                let mut found = Vec::new();
                hash_in_parallel(level, &bytes, names.iter().cloned(), sign, seed, &mut found);
                prop_assert_eq!(&found, &expected, "{:?}", level);
            }
        }
    }
}
