//! Block devices: files, memory, slices, and test devices.
//!
//! [`BlockDevice`] has positioned access by many threads, and [`submit`](BlockDevice::submit) for
//! reads in flight. A device has no position and no cache.
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
//!
//! # Features
//! Default: `io-uring` (submitted reads through io_uring on 64-bit Linux, else threads) and
//! `partitions` (MBR and GPT).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(feature = "partitions")]
mod append;
mod error;
mod fault;
mod file;
mod format;
mod holder;
mod host;
mod listing;
mod memory;
mod meter;
#[cfg(not(all(feature = "io-uring", target_os = "linux", target_pointer_width = "64", not(loom))))]
mod no_ring;
#[cfg(not(feature = "partitions"))]
mod no_table;
mod partition;
mod pool;
mod recording;
mod rescue_map;
#[cfg(all(feature = "io-uring", target_os = "linux", target_pointer_width = "64", not(loom)))]
mod ring;
mod slice;
mod slow;
#[cfg(feature = "partitions")]
mod table;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(all(feature = "io-uring", target_os = "linux", target_pointer_width = "64", not(loom))))]
use no_ring as ring;
#[cfg(not(feature = "partitions"))]
use no_table as append;
#[cfg(not(feature = "partitions"))]
use no_table as table;

pub use append::{append_partition, end_of_partitions};
pub use error::Error;
pub use fault::{Failure, Fault, FaultDevice, Operation};
pub use file::{Access, FileDevice, Queue};
pub use format::{Engine, Format};
pub use holder::Holder;
pub use host::{FileExt, writer_of};
pub use listing::{Listing, Partition};

pub use memory::MemoryDevice;
pub use meter::{DeviceCounts, MeteredDevice, SIZE_CLASSES};
pub use partition::{Choice, content, foreign, locate, open_partition};
pub use recording::{Recording, RecordingDevice, Replay, SECTOR, Step, Survivors};
pub use rescue_map::{MappedDevice, NoRescueMap, RescueMap};
pub use slice::Slice;
pub use slow::SlowDevice;
pub use table::partitions;

/// A byte device with positioned access by many threads.
///
/// Offsets and lengths are in bytes. An access is complete or fails; past
/// [`size`](BlockDevice::size) with [`io::ErrorKind::UnexpectedEof`] ([`check_range`]).
pub trait BlockDevice: Send + Sync + 'static {
    /// Length in bytes; constant while open.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Returns when all writes that have returned are durable.
    fn flush(&self) -> io::Result<()>;

    /// Fills `bufs` from `offset`, in one request where possible.
    ///
    /// Afterwards the slices in `bufs` may point elsewhere.
    fn read_vectored_at(&self, mut offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        check_range(offset, total_len(bufs.iter().map(|buf| buf.len()))?, self.size())?;
        for buf in bufs {
            self.read_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes `bufs` at `offset`, in one request where possible.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        check_range(offset, total_len(bufs.iter().map(|buf| buf.len()))?, self.size())?;
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// As [`write_vectored_at`](BlockDevice::write_vectored_at), for data not read soon: starts
    /// writeback and caches nothing where possible. Durable after [`flush`](BlockDevice::flush).
    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.write_vectored_at(offset, bufs)
    }

    /// Allocates space for `len` bytes at `offset`, so that later writes change no metadata. Keeps
    /// the content. Must not run beside writes there. A hint.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())
    }

    /// Frees the space of `len` bytes at `offset`. The content is unspecified until written.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What tells its content from another under the same name, for a record beside it: length and
    /// time of change, or a server's mark. `None` where that is not known.
    fn identity(&self) -> Option<String> {
        None
    }

    /// What came over a network so far; `None` for a device that is here.
    fn transfers(&self) -> Option<Transfers> {
        None
    }

    /// Starts to fill `buf` from `offset`; `done` gets it or the error.
    ///
    /// Reads start in order and end in any order. `done` is called once, by any thread, perhaps
    /// before this returns: keep it short. Dropping the device fails reads that have not started.
    /// The default reads here.
    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        let read = self.read_at(offset, &mut buf);
        done(read.map(|()| buf));
    }
}

/// Transfers over a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Requests, with repeated ones.
    pub requests: u64,
    /// Bytes received.
    pub fetched_bytes: u64,
    /// Bytes from a disk cache instead.
    pub cached_bytes: u64,
    /// Bytes of both that were read, in units of the device.
    pub used_bytes: u64,
    /// Reads for which a thread waited, because the bytes were not here.
    pub waits: u64,
    /// How long those waited, together.
    pub waited: Duration,
    /// Submitted reads of bytes that were not here: read ahead, or many at a time.
    pub ahead: u64,
}

/// Callback of a finished read, see [`BlockDevice::submit`].
pub type Done = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;

/// Checks that a range is within `size`.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] with the numbers.
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

// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
