//! Arithmetic modulo the secret prime of a cache, for fingerprints of names and paths (`name.rs`).
//!
//! Numbers are reduced by Montgomery's method (1985): [`Field::reduce`] answers `x / 2^64` modulo the prime, so each constant that
//! something is multiplied by is kept times 2^64. The prime has 56 bits so that 33 products of a word and a constant fit 128 bits.

use super::name::INLINE;

/// The longest path that is read as one number, in bytes.
pub(crate) const PATH_MAX: usize = 255;

const PATH_WORDS: usize = PATH_MAX / size_of::<u64>();
const NAME_WORDS: usize = INLINE / size_of::<u64>();
const PRIME_BITS: u32 = 56;

pub(crate) struct Field {
    prime: u64,
    /// `-1 / prime` modulo 2^64.
    negative_inverse: u64,
    /// `2^64 / prime`, rounded down.
    reciprocal: u64,
    /// `256^8i * 2^64`.
    words: [u64; PATH_WORDS + 1],
    /// `256^i * 2^64`.
    bytes: [u64; PATH_MAX + 1],
    /// `256^-i * 2^64`.
    back: [u64; INLINE + 1],
}

impl Field {
    /// With a prime drawn by `random`.
    pub(crate) fn new(mut random: impl FnMut() -> u64) -> Field {
        let top = 1 << (PRIME_BITS - 1);
        let prime = loop {
            let candidate = random() & (top - 1) | top | 1;
            if is_prime(candidate) {
                break candidate;
            }
        };
        // Newton: each step doubles the bits that are right; an odd number is its own inverse modulo 8.
        let inverse = (0..5).fold(prime, |x, _| x.wrapping_mul(2_u64.wrapping_sub(prime.wrapping_mul(x))));
        let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(prime)) as u64;
        let one = (u128::from(u64::MAX) % u128::from(prime)) as u64 + 1;
        let powers = |base: u64| move |i: u32| times(power(base, u64::from(i), prime), one % prime);
        let (up, down) = (powers(256), powers(power(256, prime - 2, prime)));
        Field {
            prime,
            negative_inverse: inverse.wrapping_neg(),
            reciprocal: u64::MAX / prime,
            words: std::array::from_fn(|i| up(8 * i as u32)),
            bytes: std::array::from_fn(|i| up(i as u32)),
            back: std::array::from_fn(|i| down(i as u32)),
        }
    }

    /// `x / 2^64` modulo the prime, `x` below 2^126.
    #[inline(always)]
    pub(crate) fn reduce(&self, x: u128) -> u64 {
        let quotient = (x as u64).wrapping_mul(self.negative_inverse);
        // Divisible by 2^64; below 2^62 after the division.
        let x = ((x + u128::from(quotient) * u128::from(self.prime)) >> 64) as u64;
        let quotient = ((u128::from(x) * u128::from(self.reciprocal)) >> 64) as u64;
        // Less than twice the prime: the quotient is right or one too low.
        let x = x - quotient * self.prime;
        x.min(x.wrapping_sub(self.prime))
    }

    /// The fingerprint of a path of at most [`PATH_MAX`] bytes, with a slash before it, under `seed`.
    #[inline(always)]
    pub(crate) fn path(&self, seed: u64, path: &[u8]) -> u64 {
        let (first, rest) = path.split_at(path.len() % 8);
        let head = match path.first_chunk() {
            Some(eight) => u64::from_be_bytes(*eight).unbounded_shr(64 - 8 * first.len() as u32),
            None => first.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        let (rest, _) = rest.as_chunks();
        let mut sum = u128::from(seed << 8 | u64::from(b'/')) * u128::from(self.bytes[path.len()]);
        sum += u128::from(head) * u128::from(self.words[rest.len()]);
        let mut add =
            |word: &[u8; 8], power: u64| sum += u128::from(u64::from_be_bytes(*word)) * u128::from(power);
        // Two at a time: alone, each took twice as many instructions as it has here.
        let (odd, pairs) = rest.as_rchunks();
        for ([first, second], [low, high]) in pairs.iter().rev().zip(self.words.as_chunks().0) {
            add(second, *low);
            add(first, *high);
        }
        if let [odd] = odd {
            add(odd, self.words[rest.len() - 1]);
        }
        self.reduce(sum)
    }

    /// The same of a name of `len` bytes, at most 32, that stands in `words` with zeroes behind it.
    #[inline(always)]
    pub(crate) fn name(&self, seed: u64, words: &[u64; NAME_WORDS], len: usize) -> u64 {
        // As a name of 32 bytes, then without the zeroes.
        let mut sum = u128::from(seed << 8 | u64::from(b'/')) * u128::from(self.bytes[INLINE]);
        for (i, word) in words.iter().enumerate() {
            sum += u128::from(word.swap_bytes()) * u128::from(self.words[NAME_WORDS - 1 - i]);
        }
        self.reduce(u128::from(self.reduce(sum)) * u128::from(self.back[INLINE - len]))
    }
}

fn power(base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64;
    let (mut base, mut result) = (base % modulus, 1);
    while exponent != 0 {
        if exponent & 1 == 1 {
            result = times(result, base);
        }
        base = times(base, base);
        exponent >>= 1;
    }
    result
}

/// Miller and Rabin's test, for odd numbers; with these bases it is never wrong below 2^64 (Sinclair 2011).
fn is_prime(n: u64) -> bool {
    if [3, 5, 7, 11, 13, 17, 19, 23].iter().any(|small| n.is_multiple_of(*small)) {
        return false;
    }
    let twos = (n - 1).trailing_zeros();
    [2, 325, 9375, 28178, 450_775, 9_780_504, 1_795_265_022].iter().all(|&base| {
        let mut x = power(base, (n - 1) >> twos, n);
        if x <= 1 || x == n - 1 {
            return x != 0 || base % n == 0;
        }
        for _ in 1..twos {
            x = (u128::from(x) * u128::from(x) % u128::from(n)) as u64;
            if x == n - 1 {
                return true;
            }
        }
        false
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn primes_are_told_from_other_odd_numbers() {
        // The largest prime below 2^56 is 2^56 - 5.
        assert!(is_prime((1 << 56) - 5));
        assert!([1, 3, 7].iter().all(|less| !is_prime((1 << 56) - less)));
        // A square of a prime, and a product of two, none of them small.
        assert!(!is_prime(134_217_689 * 134_217_689) && !is_prime(134_217_689 * 134_217_649));
    }

    #[test]
    fn a_fingerprint_is_the_number_that_the_bytes_are() {
        let mut state = 5_u64;
        let field = Field::new(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        });
        let prime = u128::from(field.prime);
        for len in 1..=PATH_MAX {
            let path: Vec<u8> = (0..len).map(|i| (i * 151 + len) as u8).collect();
            let slow =
                [&b"/"[..], &path].concat().iter().fold(77, |n, &byte| (n * 256 + u128::from(byte)) % prime);
            assert_eq!(u128::from(field.path(77, &path)), slow, "{len}");
            if len <= INLINE {
                let mut padded = [0; INLINE];
                padded[..len].copy_from_slice(&path);
                let words = super::super::bytes::words(&padded);
                assert_eq!(u128::from(field.name(77, &words, len)), slow, "{len}");
            }
        }
    }

    #[test]
    fn the_largest_sums_are_reduced() {
        let mut candidate = 1 << 56;
        let field = Field::new(|| {
            candidate -= 1;
            candidate
        });
        let (x, prime) = ((1_u128 << 126) - 1, u128::from(field.prime));
        let back = u128::from(field.reduce(x)) % prime;
        assert_eq!((back << 64) % prime, x % prime);
    }
}
