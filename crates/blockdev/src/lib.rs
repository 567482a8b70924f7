//! Where blocks live: files, memory, parts of other devices, and devices that misbehave on purpose.
//!
//! Everything above reads and writes through [`BlockDevice`]: positioned access by many threads at once, and
//! [`submit`](BlockDevice::submit) where one thread wants many reads in flight. A device keeps no position and no cache.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::mpsc::channel;
//! use dentree_blockdev::{BlockDevice, MemoryDevice};
//!
//! let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(b"dentry inode".to_vec()));
//! let mut name = [0; 5];
//! device.read_at(7, &mut name)?;
//! assert_eq!(&name, b"inode");
//!
//! let (sender, receiver) = channel();
//! for (offset, len) in [(0, 6), (7, 5)] {
//!     let sender = sender.clone();
//!     device.clone().submit(offset, vec![0; len], Box::new(move |read| drop(sender.send((offset, read)))));
//! }
//! for (offset, read) in receiver.iter().take(2) {
//!     assert_eq!(read?, if offset == 0 { b"dentry".to_vec() } else { b"inode".to_vec() });
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod error;
mod fault;
mod file;
mod listing;
mod lock_holder;
mod memory;
mod meter;
#[cfg(not(all(target_os = "linux", not(loom))))]
mod no_ring;
mod partition;
mod pool;
mod recording;
#[cfg(all(target_os = "linux", not(loom)))]
mod ring;
mod slice;
mod slow;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

#[cfg(not(all(target_os = "linux", not(loom))))]
use no_ring as ring;

pub use error::Error;
pub use fault::{Failure, Fault, FaultDevice, Operation};
pub use file::{Access, FileDevice, Queue};
pub use listing::{Listing, Partition};
pub use lock_holder::{Holder, writer_of};
pub use memory::MemoryDevice;
pub use meter::{DeviceCounts, MeteredDevice, SIZE_CLASSES};
pub use partition::{Choice, locate, partitions};
pub use recording::{Recording, RecordingDevice, Replay, SECTOR, Step, Survivors};
pub use slice::Slice;
pub use slow::SlowDevice;

/// A device of bytes that can be read and written at any offset by many threads at once.
///
/// Offsets and lengths are bytes. Reads and writes are complete or fail: a device never moves fewer bytes
/// than asked. An access that reaches past [`size`](BlockDevice::size) fails with
/// [`io::ErrorKind::UnexpectedEof`], see [`check_range`].
pub trait BlockDevice: Send + Sync + 'static {
    /// The length of the device in bytes. It does not change while the device is open.
    fn size(&self) -> u64;

    /// Fills `buf` from the bytes at `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Returns once every write that was answered before is on stable storage.
    fn flush(&self) -> io::Result<()>;

    /// Fills `bufs`, one after the other, from the bytes at `offset`, in one request where the device can.
    ///
    /// The buffers are filled; what the slices in `bufs` point at afterwards is not promised.
    fn read_vectored_at(&self, mut offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        check_range(offset, total_len(bufs.iter().map(|buf| buf.len()))?, self.size())?;
        for buf in bufs {
            self.read_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes `bufs`, one after the other, at `offset`, in one request where the device can.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        check_range(offset, total_len(bufs.iter().map(|buf| buf.len()))?, self.size())?;
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// As [`write_vectored_at`](BlockDevice::write_vectored_at), for much that nobody is about to read: where it can, the device begins to bring
    /// it to stable storage at once, and keeps no copy in memory. Only a [`flush`](BlockDevice::flush) says that it is there.
    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.write_vectored_at(offset, bufs)
    }

    /// Takes the space for `len` bytes at `offset` where the medium has none for them yet, as in a sparse file: who writes there later writes
    /// those bytes and nothing else. What can be read there stays as it is. Nobody may write there meanwhile. Where a device cannot tell,
    /// it does nothing.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())
    }

    /// Gives the space for `len` bytes at `offset` back to the medium: its content is not needed any more. It reads
    /// as what was there, as zeros, or as anything else, until it is written again.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the medium takes nothing back.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Begins to fill `buf` from the bytes at `offset`, and calls `done` with it, or with why it is not filled.
    ///
    /// Reads end in no particular order, but none is begun before those that were submitted earlier. `done` is called once, by any
    /// thread, maybe before this returns: it must be short. Where the device is dropped first it is called with an error, unless the read
    /// has begun. Where a device has nothing better, the read is made here.
    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        let read = self.read_at(offset, &mut buf);
        done(read.map(|()| buf));
    }
}

/// Who is told that a read has ended, see [`BlockDevice::submit`].
pub type Done = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;

/// Refuses an access of `len` bytes at `offset` that reaches past the `size` of a device.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`], naming the three numbers.
pub fn check_range(offset: u64, len: u64, size: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{len} bytes at offset {offset} reach past the end of the device ({size} bytes): \
                 the image is cut short or its metadata points outside"
            ),
        )),
    }
}

fn total_len(lens: impl Iterator<Item = usize>) -> io::Result<u64> {
    lens.map(|len| len as u64)
        .try_fold(0u64, u64::checked_add)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "more than 2^64 bytes in one request"))
}
