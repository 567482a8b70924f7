//! Names as words.

/// The bytes of a name as little-endian words, zeros after the last.
#[inline]
pub(crate) fn words(name: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = name.as_chunks::<8>();
    whole.iter().map(|bytes| u64::from_le_bytes(*bytes)).chain((!rest.is_empty()).then(|| padded(rest)))
}

/// One to eight bytes as a little-endian word, zeros above. Two overlapping loads are faster than a
/// copy of variable length.
#[inline]
pub(crate) fn padded(bytes: &[u8]) -> u64 {
    let shift = |kept: usize| 8 * (bytes.len() - kept);
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift(4)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from(u16::from_le_bytes(*first)) | u64::from(u16::from_le_bytes(*last)) << shift(2)
    } else {
        bytes.first().copied().map_or(0, u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_zero_whatever_the_length() {
        let bytes = *b"abcdefgh";
        for len in 1..=8 {
            let mut expected = [0; 8];
            expected[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(padded(&bytes[..len]), u64::from_le_bytes(expected));
        }
    }
}
