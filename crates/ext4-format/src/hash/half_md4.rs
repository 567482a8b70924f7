//! Half of MD4 (three rounds of eight steps): of one name, or of eight names side by side.
//!
//! Every step waits for the one before, so a processor that digests one name mostly waits. Eight names in the lanes of
//! its vectors take little longer than one.

use super::{CharSign, HashSeed, input_words};
use std::array;
use std::ops::{BitAnd, BitOr, BitXor};
use wide::u32x8;

/// Bytes of a name that are digested at once.
pub(super) const BYTES: usize = 32;
/// The same in words.
pub(super) const WORDS: usize = BYTES / 4;
/// Names that are digested side by side.
pub(super) const LANES: usize = 8;

/// What MD4 computes with: a word of one name, or one word of each of several.
pub(super) trait Word:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    fn all(word: u32) -> Self;
    fn plus(self, other: Self) -> Self;
    fn rotated(self, by: u32) -> Self;
}

impl Word for u32 {
    #[inline]
    fn all(word: u32) -> Self {
        word
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline]
    fn rotated(self, by: u32) -> Self {
        self.rotate_left(by)
    }
}

impl Word for u32x8 {
    #[inline]
    fn all(word: u32) -> Self {
        Self::splat(word)
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline]
    fn rotated(self, by: u32) -> Self {
        (self << by) | (self >> (u32::BITS - by))
    }
}

/// One round of MD4: eight steps, each with the input word whose turn it is.
#[inline(always)]
fn round<W: Word>(
    [mut a, mut b, mut c, mut d]: [W; 4],
    function: impl Fn(W, W, W) -> W,
    constant: u32,
    words: [W; WORDS],
    shifts: [u32; 4],
) -> [W; 4] {
    for (step, word) in words.into_iter().enumerate() {
        // What the step before has written comes in last.
        let sum = a.plus(word.plus(W::all(constant))).plus(function(b, c, d));
        // MD4 names the four registers anew at each step: the one just written becomes `b` of the next.
        (a, b, c, d) = (d, sum.rotated(shifts[step % 4]), b, c);
    }
    [a, b, c, d]
}

/// Takes the next words of a name into the state.
#[inline(always)]
pub(super) fn transform<W: Word>(state: &mut [W; 4], input: &[W; WORDS]) {
    let [i0, i1, i2, i3, i4, i5, i6, i7] = *input;
    let choose = |x: W, y: W, z: W| z ^ (x & (y ^ z));
    let mixed = round(*state, choose, 0, *input, [3, 7, 11, 19]);
    let majority = |x: W, y: W, z: W| (x & y) | (z & (x | y));
    let mixed = round(mixed, majority, 0x5a82_7999, [i1, i3, i5, i7, i0, i2, i4, i6], [3, 5, 9, 13]);
    let parity = |x: W, y: W, z: W| x ^ y ^ z;
    let mixed = round(mixed, parity, 0x6ed9_eba1, [i3, i7, i2, i6, i1, i5, i0, i4], [3, 9, 11, 15]);
    *state = array::from_fn(|at| state[at].plus(mixed[at]));
}

/// The four words of the state that each name leads to: word by word, in each those of all names.
pub(super) fn side_by_side(
    mut rests: [&[u8]; LANES],
    sign: CharSign,
    HashSeed(seed): HashSeed,
) -> [[u32; LANES]; 4] {
    let mut state = seed.map(u32x8::splat);
    while rests.iter().any(|rest| !rest.is_empty()) {
        let (mut input, mut is_fed) = ([[0; LANES]; WORDS], [0; LANES]);
        for (lane, rest) in rests.iter_mut().enumerate().filter(|(_, rest)| !rest.is_empty()) {
            let words: [u32; WORDS] = input_words(rest, sign);
            input.iter_mut().zip(words).for_each(|(lanes, word)| lanes[lane] = word);
            is_fed[lane] = u32::MAX;
            *rest = rest.get(BYTES..).unwrap_or_default();
        }
        let (before, is_fed) = (state, u32x8::new(is_fed));
        transform(&mut state, &input.map(u32x8::new));
        // Names that have come to their end stay as they are.
        state = array::from_fn(|at| (state[at] & is_fed) | (before[at] & !is_fed));
    }
    state.map(u32x8::to_array)
}
