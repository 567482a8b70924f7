//! Holes in archives: the sparse formats of GNU tar in pax headers. Version 1.0 is written; 0.0,
//! 0.1 and 1.0 are read (GNU tar manual, "Storing Sparse Files").

use std::io::{self, Read};

/// Data of a sparse file: offset and length.
pub(super) type Segment = (u64, u64);

const BLOCK: usize = 512;
/// The most segments that are read, which bounds the memory for a hostile map.
pub(super) const MOST: usize = 1 << 20;

/// The map in front of the data, padded to whole blocks.
pub(super) fn encode(segments: &[Segment]) -> Vec<u8> {
    let mut map = format!("{}\n", segments.len());
    for (offset, len) in segments {
        map.push_str(&format!("{offset}\n{len}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// Reads the map in front of the data.
pub(super) fn decode(from: &mut impl Read) -> io::Result<Vec<Segment>> {
    let mut lines = Lines { from, block: [0; BLOCK], at: BLOCK };
    let count = lines.number()?;
    if count > MOST as u64 {
        return Err(invalid("its map of holes is too long"));
    }
    (0..count).map(|_| Ok((lines.number()?, lines.number()?))).collect()
}

/// The map of version 0.1: `offset,length,offset,length`.
pub(super) fn decode_list(text: &[u8]) -> io::Result<Vec<Segment>> {
    let text = std::str::from_utf8(text).map_err(|_| invalid("its map of holes is no text"))?;
    let numbers =
        text.split(',').map(|number| number.parse().map_err(|_| invalid("its map of holes is damaged")));
    let numbers: Vec<u64> = numbers.take(2 * MOST + 1).collect::<io::Result<_>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() || pairs.len() > MOST {
        return Err(invalid("its map of holes is damaged"));
    }
    Ok(pairs.iter().map(|&[offset, len]| (offset, len)).collect())
}

pub(super) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Numbers on lines, read in whole blocks.
struct Lines<'r, R> {
    from: &'r mut R,
    block: [u8; BLOCK],
    at: usize,
}

impl<R: Read> Lines<'_, R> {
    fn byte(&mut self) -> io::Result<u8> {
        if self.at == BLOCK {
            self.from.read_exact(&mut self.block)?;
            self.at = 0;
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut number = 0_u64;
        loop {
            match self.byte()? {
                b'\n' => return Ok(number),
                digit @ b'0'..=b'9' => {
                    let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
                    number = next.ok_or_else(|| invalid("its map of holes is damaged"))?;
                }
                _ => return Err(invalid("its map of holes is damaged")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_the_same_after_it_was_written() {
        let segments: Vec<Segment> = (0..200).map(|n| (n << 30, n)).collect();
        let map = encode(&segments);
        assert_eq!(map.len() % BLOCK, 0);
        let mut both = [&map[..], b"data"].concat();
        both.resize(map.len() + BLOCK, 0);
        assert_eq!(decode(&mut &both[..]).unwrap(), segments);
        assert_eq!(decode_list(b"0,5,4096,1").unwrap(), [(0, 5), (4096, 1)]);
    }

    #[test]
    fn damaged_maps_are_refused() {
        for map in ["x\n", "99999999999\n", "2\n1\n1\n1\n", "18446744073709551616\n", ""] {
            let mut map = map.as_bytes().to_vec();
            map.resize(map.len().next_multiple_of(BLOCK), b'!');
            assert!(decode(&mut &map[..]).is_err());
        }
        assert!(decode_list(b"1,2,3").is_err() && decode_list(b"a,b").is_err());
    }
}
