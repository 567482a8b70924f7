//! Where blocks live: files, memory, partitions, and devices that misbehave on purpose.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::io::{self, IoSlice, IoSliceMut};

/// A device of bytes that can be read and written at any offset by many threads at once.
///
/// Offsets and lengths are bytes. Reads and writes are complete or fail: a device never moves fewer bytes
/// than asked. An access that reaches past [`size`](BlockDevice::size) fails with
/// [`io::ErrorKind::UnexpectedEof`].
pub trait BlockDevice: Send + Sync {
    /// The length of the device in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from the bytes at `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Returns once every write that was answered before is on stable storage.
    fn flush(&self) -> io::Result<()>;

    /// Fills `bufs`, one after the other, from the bytes at `offset`, in one request where the device can.
    fn read_vectored_at(&self, mut offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.read_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes `bufs`, one after the other, at `offset`, in one request where the device can.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }
}
