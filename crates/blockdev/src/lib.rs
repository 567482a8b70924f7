//! Block devices: files, memory, parts of other devices, and devices with faults for tests.
//!
//! All crates above read and write through [`BlockDevice`]: positioned access by many threads at
//! once, and [`submit`](BlockDevice::submit) for many reads in flight. A device has no position and
//! no cache.
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
//! Both are on by default. `io-uring`: submitted reads of files through io_uring on 64-bit Linux,
//! by threads without. `partitions`: MBR and GPT.
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

/// A device of bytes with positioned access by many threads at once.
///
/// Offsets and lengths are in bytes. Reads and writes are complete or fail. An access past
/// [`size`](BlockDevice::size) fails with [`io::ErrorKind::UnexpectedEof`], see [`check_range`].
pub trait BlockDevice: Send + Sync + 'static {
    /// Length of the device in bytes. Constant while the device is open.
    fn size(&self) -> u64;

    /// Fills `buf` from the bytes at `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Returns when every write that returned before is on stable storage.
    fn flush(&self) -> io::Result<()>;

    /// Fills `bufs` in order from the bytes at `offset`, in one request where the device can.
    ///
    /// The slices in `bufs` may point elsewhere afterwards.
    fn read_vectored_at(&self, mut offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        check_range(offset, total_len(bufs.iter().map(|buf| buf.len()))?, self.size())?;
        for buf in bufs {
            self.read_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes `bufs` in order at `offset`, in one request where the device can.
    fn write_vectored_at(&self, mut offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        check_range(offset, total_len(bufs.iter().map(|buf| buf.len()))?, self.size())?;
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// As [`write_vectored_at`](BlockDevice::write_vectored_at), for large data that is not read
    /// again soon: where the device can, it starts writeback at once and keeps no copy in memory.
    /// Durable only after [`flush`](BlockDevice::flush).
    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.write_vectored_at(offset, bufs)
    }

    /// Allocates space for `len` bytes at `offset` where the medium has none, as in a sparse file,
    /// so that later writes only write data. The content does not change. No thread may write there
    /// meanwhile. A device that cannot tell does nothing.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())
    }

    /// Gives the space of `len` bytes at `offset` back to the medium. Their content is unspecified
    /// until written again.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the medium takes nothing back.
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

    /// Starts filling `buf` from the bytes at `offset`, and calls `done` with the buffer or the
    /// error.
    ///
    /// Reads start in the order of submission and end in any order. `done` is called once, by any
    /// thread, perhaps before this returns: it must be short. A read that has not started when the
    /// device is dropped ends with an error. The default makes the read here.
    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        let read = self.read_at(offset, &mut buf);
        done(read.map(|()| buf));
    }
}

/// What a device has fetched over a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Requests to the server, with those that were sent again.
    pub requests: u64,
    /// Bytes that came.
    pub fetched_bytes: u64,
    /// Bytes that came from a cache on disk instead.
    pub cached_bytes: u64,
    /// Those of both that were read, in units of the device.
    pub used_bytes: u64,
    /// Reads for which a thread waited, because the bytes were not here.
    pub waits: u64,
    /// How long those waited, together.
    pub waited: Duration,
    /// Submitted reads of bytes that were not here: read ahead, or many at a time.
    pub ahead: u64,
}

/// Called when a read has ended, see [`BlockDevice::submit`].
pub type Done = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;

/// Checks that `len` bytes at `offset` are within the `size` of a device.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] with the three numbers.
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

// The example on the crate's page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
