//! Reading local files that are copied into an image.

use crate::host;
use dentree_blockdev::FileExt;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// Calls `each` with offset and bytes of the data in the first `size` bytes of a file; holes are
/// left out. Returns the end of the last piece, or the value that `each` broke with. No piece
/// crosses a multiple of 1 MiB. Data is widened to multiples of `grain` bytes, which hides how
/// finely the local file system stores holes.
pub(crate) fn each_data<B>(
    file: &File,
    size: u64,
    grain: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<B>,
) -> io::Result<ControlFlow<B, u64>> {
    let mut chunk = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let mut end = 0;
    while let Some(data) = next_data(file, end, size, grain)? {
        let mut offset = data.start;
        while offset < data.end {
            let left = CHUNK as u64 - offset % CHUNK as u64;
            let len = usize::try_from(left.min(data.end - offset)).unwrap_or(CHUNK);
            file.read_exact_at(&mut chunk[..len], offset)?;
            if let ControlFlow::Break(why) = each(offset, &chunk[..len]) {
                return Ok(ControlFlow::Break(why));
            }
            offset += len as u64;
        }
        end = data.end;
    }
    Ok(ControlFlow::Continue(end))
}

/// Runs of grains of so many bytes that are not all zeros.
pub(crate) fn without_zeros(bytes: &[u8], grain: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, piece) in bytes.chunks(grain).enumerate().filter(|(_, piece)| piece.iter().any(|&b| b != 0)) {
        let (start, end) = (index * grain, index * grain + piece.len());
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

/// The next run of data from `offset` on, within the first `size` bytes, in whole grains.
fn next_data(file: &File, offset: u64, size: u64, grain: u64) -> io::Result<Option<Range<u64>>> {
    if offset >= size {
        return Ok(None);
    }
    let Some(Range { start, end }) = host::next_data(file, offset)? else { return Ok(None) };
    let end = end.min(size);
    let whole = (start - start % grain).max(offset)..end.next_multiple_of(grain).min(size);
    Ok((start < end).then_some(whole))
}
