//! Windows: files.
//!
//! # Locking
//! The share mode keeps other writers out, also those of other programs, from opening to closing.
//! Readers need no lock; they must allow a writer, as most programs do.

use crate::{Access, Error, Holder};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt as _, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The numbers of three errors (`winerror.h`).
const ERROR_SHARING_VIOLATION: i32 = 32;
pub(crate) const NO_SPACE: i32 = 112;
pub(crate) const IO_ERROR: i32 = 1117;

/// Other handles may read and rename, and not write (`FILE_SHARE_READ`, `FILE_SHARE_DELETE`).
const SHARE: u32 = 1 | 4;
/// Seconds from 1601, where times of files begin, to 1970.
const EPOCH: i64 = 11_644_473_600;

pub(crate) fn open(path: &Path, access: Access) -> Result<File, Error> {
    let failed = |source| Error::Open { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Err(Error::NotADevice { path: path.to_owned(), kind: "a directory" });
    }
    let mut options = OpenOptions::new();
    options.read(true);
    if access == Access::ReadWrite {
        options.write(true).share_mode(SHARE);
    }
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(ERROR_SHARING_VIOLATION) => Error::Locked { path: path.to_owned(), holder: None },
        _ => failed(error),
    })
}

/// The lock ends when the file is closed.
pub(crate) fn unlock(_: &File) {}

/// Seconds and nanoseconds.
pub(crate) fn mtime(found: &Metadata) -> (i64, i64) {
    // Units of 100 ns.
    let time = found.last_write_time().cast_signed();
    (time.div_euclid(10_000_000) - EPOCH, time.rem_euclid(10_000_000) * 100)
}

/// The process that has the file at `path` open for writing. Windows does not tell.
pub fn writer_of(_: &Path) -> Option<Holder> {
    None
}

/// Positioned access to a file, by the names of `std::os::unix::fs::FileExt`. It moves the file's
/// own position.
pub trait FileExt {
    /// Reads some bytes at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of reading.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from the bytes at `offset`.
    ///
    /// # Errors
    /// Those of reading, and [`io::ErrorKind::UnexpectedEof`].
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    buf = &mut buf[len..];
                    offset += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    /// Those of writing.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.seek_read(buf, offset)
    }

    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.seek_write(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    buf = &buf[len..];
                    offset += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
