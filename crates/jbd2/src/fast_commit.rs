//! Detects pending fast commits: little-endian records of tag, length and value.

use crate::checksum::crc32c;
use crate::error::Error;
use crate::reader::LogReader;
use crate::tid::Tid;

const TAG_LEN: usize = 4;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Whether there is a complete fast commit after transaction `end`.
pub(crate) fn is_pending(journal: &LogReader, end: Tid) -> Result<bool, Error> {
    let mut reader = Reader { end, sum: 0, has_head: false };
    for block in journal.fast_commits() {
        match reader.block(&journal.read(block)?) {
            Next::Block => {}
            Next::Stop(is_pending) => return Ok(is_pending),
        }
    }
    Ok(false)
}

struct Reader {
    end: Tid,
    sum: u32,
    has_head: bool,
}

enum Next {
    Block,
    Stop(bool),
}

fn le32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

impl Reader {
    /// Records do not cross blocks.
    fn block(&mut self, mut block: &[u8]) -> Next {
        while let Some(([a, b, c, d], rest)) = block.split_first_chunk() {
            let (tag, len) = (u16::from_le_bytes([*a, *b]), usize::from(u16::from_le_bytes([*c, *d])));
            let Some(value) = rest.get(..len) else { return Next::Stop(false) };
            if !self.has_head && tag != HEAD {
                return Next::Stop(false);
            }
            match tag {
                // The value: features, then the preceding transaction.
                HEAD if value.get(4..).and_then(le32) != Some(self.end.0) => return Next::Stop(false),
                HEAD => self.has_head = true,
                TAIL => {
                    let summed = &block[..(TAG_LEN + 4).min(block.len())];
                    let is_ours = le32(value) == Some(self.end.0);
                    let sum = value.get(4..).and_then(le32);
                    return Next::Stop(is_ours && sum == Some(crc32c(self.sum, summed)));
                }
                1..=7 => {}
                _ => return Next::Stop(false),
            }
            let (record, rest) = block.split_at(TAG_LEN + len);
            self.sum = crc32c(self.sum, record);
            block = rest;
        }
        Next::Block
    }
}
