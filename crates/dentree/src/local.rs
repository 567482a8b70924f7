//! Reading local files that are copied into an image.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// An extended attribute: full name and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

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
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes.
        Err(Errno::INVAL) => return Ok(Some(offset..size)),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start))?.min(size);
    let whole = (start - start % grain).max(offset)..end.next_multiple_of(grain).min(size);
    Ok((start < end).then_some(whole))
}

/// Reads from a file opened with `O_NONBLOCK`; `None` after a short wait without data, so that the
/// caller can check for signals.
pub(crate) fn read_ready(file: &mut File, buf: &mut [u8]) -> io::Result<Option<usize>> {
    const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut [PollFd::new(&*file, PollFlags::IN)], Some(&MOMENT)) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        ready => ready?,
    };
    match file.read(buf) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        read => read.map(Some),
    }
}

/// The extended attributes of a file, or of a link itself, sorted by name.
pub(crate) fn read_xattrs(path: &Path) -> io::Result<Vec<Xattr>> {
    // The kernel's limit (`XATTR_LIST_MAX`).
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names: Vec<Vec<u8>> =
        names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, &name[..], &mut value[..])?;
        value.truncate(len);
        found.push((name, value));
    }
    Ok(found)
}
