//! Android sparse images: a header and chunks of content, of one repeated word, or of nothing.
//! Read only. All numbers are little-endian.
//!
//! | header at | what | chunk at | what |
//! |---|---|---|---|
//! | 0 | magic number, 32 bits | 0 | kind, 16 bits |
//! | 4, 6 | version: 1, 0 | 2 | nothing |
//! | 8, 10 | lengths of this header and of a chunk's, 16 bits each | 4 | blocks that it makes, 32 bits |
//! | 12, 16, 20 | bytes of a block, blocks, chunks: 32 bits each | 8 | its own bytes, 32 bits |

use dentree_blockdev::{BlockDevice, check_range};
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 4] = [0x3a, 0xff, 0x26, 0xed];
const HEADER: usize = 28;
const CHUNK: usize = 12;

/// Chunks that are kept in memory: a terabyte of alternating blocks of a megabyte has a quarter.
const CHUNKS_MAX: u32 = 1 << 22;

/// The disk in a sparse image.
pub(crate) struct SparseDevice {
    file: Arc<dyn BlockDevice>,
    size: u64,
    /// In order and without gaps; behind the last one are zeros.
    runs: Vec<Run>,
}

/// Bytes of the disk up to `end`, from where the run before ends.
struct Run {
    end: u64,
    what: What,
}

enum What {
    /// From this byte of the file on.
    Content(u64),
    Word([u8; 4]),
}

/// Whether a file is a sparse image.
pub(crate) fn is_sparse(file: &dyn BlockDevice) -> io::Result<bool> {
    let mut magic = [0; MAGIC.len()];
    if file.size() < HEADER as u64 {
        return Ok(false);
    }
    file.read_at(0, &mut magic)?;
    Ok(magic == MAGIC)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl SparseDevice {
    /// Reads the header and the chunks' headers.
    pub(crate) fn open(file: Arc<dyn BlockDevice>) -> io::Result<Self> {
        let mut header = [0; HEADER];
        file.read_at(0, &mut header)?;
        let (major, lengths) = (half(&header, 4), [half(&header, 8), half(&header, 10)]);
        let [block, blocks, chunks] = [12, 16, 20].map(|at| word(&header, at));
        if major != 1 {
            return Err(wrong(format!("it is of version {major}, and 1 is known")));
        }
        if usize::from(lengths[0]) < HEADER || usize::from(lengths[1]) < CHUNK {
            return Err(wrong(format!("its headers have {lengths:?} bytes, which are too few")));
        }
        if block == 0 || block % 4 != 0 {
            return Err(wrong(format!("its blocks have {block} bytes, which is no multiple of 4")));
        }
        if chunks > CHUNKS_MAX {
            return Err(wrong(format!("it has {chunks} chunks, and {CHUNKS_MAX} at most are read")));
        }
        let size = u64::from(block) * u64::from(blocks);
        let mut device = SparseDevice { file, size, runs: Vec::new() };
        let mut at = u64::from(lengths[0]);
        for number in 0..chunks {
            at = device.chunk(at, u64::from(lengths[1]), u64::from(block)).map_err(|error| {
                io::Error::new(error.kind(), format!("chunk {number} at byte {at}: {error}"))
            })?;
        }
        Ok(device)
    }

    /// Reads the chunk at a byte of the file; returns the place of the next.
    fn chunk(&mut self, at: u64, header: u64, block: u64) -> io::Result<u64> {
        let mut bytes = [0; CHUNK];
        self.file.read_at(at, &mut bytes)?;
        let (kind, len, own) = (half(&bytes, 0), u64::from(word(&bytes, 4)) * block, word(&bytes, 8));
        let (content, own) = (at.saturating_add(header), u64::from(own));
        let start = self.runs.last().map_or(0, |run| run.end);
        let end = start + if kind == 0xcac4 { 0 } else { len };
        if end > self.size {
            return Err(wrong(format!("it ends at byte {end} of a disk of {}", self.size)));
        }
        let expected = match kind {
            0xcac1 => header + len,
            0xcac2 | 0xcac4 => header + 4,
            0xcac3 => header,
            _ => return Err(wrong(format!("its kind {kind:#x} is not known"))),
        };
        if own != expected {
            return Err(wrong(format!("it has {own} bytes, and {expected} would be right")));
        }
        let what = match kind {
            0xcac1 => What::Content(content),
            0xcac2 => {
                let mut word = [0; 4];
                self.file.read_at(content, &mut word)?;
                What::Word(word)
            }
            _ => What::Word([0; 4]),
        };
        if end > start {
            self.runs.push(Run { end, what });
        }
        Ok(at.saturating_add(own))
    }
}

impl BlockDevice for SparseDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn identity(&self) -> Option<String> {
        self.file.identity()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        let mut number = self.runs.partition_point(|run| run.end <= offset);
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let start = number.checked_sub(1).map_or(0, |before| self.runs[before].end);
            let Some(run) = self.runs.get(number) else {
                rest.fill(0);
                break;
            };
            let len = usize::try_from(run.end - at).unwrap_or(usize::MAX).min(rest.len());
            let (piece, behind) = rest.split_at_mut(len);
            match run.what {
                What::Content(place) => self.file.read_at(place + (at - start), piece)?,
                What::Word(word) => {
                    // Runs begin at multiples of four.
                    let first = (at % 4) as usize;
                    piece.iter_mut().enumerate().for_each(|(index, byte)| *byte = word[(first + index) % 4]);
                }
            }
            (at, rest, number) = (at + len as u64, behind, number + 1);
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_blockdev::MemoryDevice;

    const BLOCK: usize = 4096;

    fn header(blocks: u32, chunks: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0, 0, 0, HEADER as u8, 0, CHUNK as u8, 0]);
        for number in [BLOCK as u32, blocks, chunks, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    fn chunk(kind: u16, blocks: u32, content: &[u8]) -> Vec<u8> {
        let own = (CHUNK + content.len()) as u32;
        [&kind.to_le_bytes(), &[0; 2][..], &blocks.to_le_bytes(), &own.to_le_bytes(), content].concat()
    }

    fn open(bytes: Vec<u8>) -> io::Result<SparseDevice> {
        SparseDevice::open(Arc::new(MemoryDevice::from(bytes)))
    }

    #[test]
    fn content_words_and_holes_make_the_disk() {
        let content: Vec<u8> = (0..3 * BLOCK).map(|at| (at / 7) as u8).collect();
        let chunks = [
            chunk(0xcac1, 3, &content),
            chunk(0xcac3, 2, &[]),
            chunk(0xcac4, 0, &[1; 4]),
            chunk(0xcac2, 1, b"word"),
            chunk(0xcac1, 1, &content[..BLOCK]),
        ];
        let device = open([header(9, 5), chunks.concat()].concat()).unwrap();
        let zeros = [0; 2 * BLOCK];
        let expected = [&content, &zeros[..], &b"word".repeat(BLOCK / 4), &content[..BLOCK], &zeros].concat();
        let read = |offset: usize, len: usize| {
            let mut buf = vec![0xff; len];
            device.read_at(offset as u64, &mut buf).map(|()| buf)
        };
        assert!(read(0, 9 * BLOCK).unwrap() == expected);
        for offset in (0..9 * BLOCK - 5000).step_by(1237) {
            assert!(read(offset, 5000).unwrap() == expected[offset..offset + 5000], "{offset}");
        }
        assert!(read(9 * BLOCK - 1, 2).is_err());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let raw = chunk(0xcac1, 1, &[0; BLOCK]);
        for (bytes, why) in [
            (header(1, 1), "reach past the end"),
            ([header(0, 1), raw.clone()].concat(), "chunk 0 at byte 28: it ends at byte 4096 of a disk of 0"),
            ([header(2, 1), chunk(0xcac1, 2, &[0; BLOCK])].concat(), "would be right"),
            ([header(2, 1), chunk(0xcac5, 2, &[])].concat(), "kind 0xcac5 is not known"),
            (header(1, u32::MAX), "at most are read"),
        ] {
            let error = open(bytes).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn damage_is_an_error_or_other_bytes_and_never_a_panic() {
        let whole = [header(4, 2), chunk(0xcac1, 1, &[7; BLOCK]), chunk(0xcac2, 3, b"fill")].concat();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random(6) {
                // Headers alone decide.
                let places = [random(HEADER + CHUNK), HEADER + CHUNK + BLOCK + random(CHUNK + 4)];
                bytes[places[random(2)]] = random(256) as u8;
            }
            if let Ok(device) = open(bytes) {
                let _ = device.read_at(device.size() / 2, &mut [0; 100]);
            }
        }
    }
}
