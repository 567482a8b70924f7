//! Files and block devices.
//!
//! Opening for writing keeps other writers out (`host`).
//!
//! Opening for reading takes no lock. Reads during writes by others may be inconsistent with each
//! other; checksums detect it.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
#[cfg(target_os = "linux")]
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

#[cfg(target_os = "linux")]
use rustix::io::{Errno, ReadWriteFlags};

use crate::host::{self, FileExt};
use crate::pool::{Job, ReaderPool};
use crate::ring::Ring;
use crate::{BlockDevice, Done, Error, check_range};

/// Mode of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Takes no lock.
    ReadOnly,
    /// The only writer.
    ReadWrite,
}

/// A regular file or block device; positioned access without a lock.
///
/// [Submitted](BlockDevice::submit) reads of cached bytes are made at once, which costs less than
/// passing them on. Others go to a [`Queue`] that starts on first use.
pub struct FileDevice {
    file: Arc<File>,
    path: PathBuf,
    size: u64,
    access: Access,
    /// Until the first failure.
    #[cfg(target_os = "linux")]
    writes_out: AtomicBool,
    /// As requested.
    queue: Queue,
    /// Cached bytes, too.
    queues_all: bool,
    /// `None`: no ring.
    ring: OnceLock<Option<Ring>>,
    pool: ReaderPool,
}

/// Engine of [submitted](BlockDevice::submit) reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Queue {
    /// io_uring; threads if the kernel has none or refuses it.
    #[default]
    Ring,
    /// Threads with blocking reads.
    Threads,
}

impl FileDevice {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`Error::Locked`]: another writer. [`Error::NotADevice`]: directories, pipes and the like.
    /// Else [`Error::Open`].
    ///
    /// ```
    /// use dentree_blockdev::{Access, BlockDevice, FileDevice};
    ///
    /// let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("disk.img");
    /// std::fs::write(&path, [0; 4096])?;
    /// let image = FileDevice::open(&path, Access::ReadWrite)?;
    /// assert_eq!(image.size(), 4096);
    /// // A second writer is refused, a reader is not.
    /// assert!(FileDevice::open(&path, Access::ReadWrite).is_err());
    /// assert!(FileDevice::open(&path, Access::ReadOnly).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |source: io::Error| Error::Open { path: path.to_owned(), source };
        let mut file = host::open(path, access)?;
        // A block device reports no length in its metadata.
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let file = Arc::new(file);
        let reader = Arc::clone(&file);
        let pool = ReaderPool::new(Box::new(move |offset, buf| reader.read_exact_at(buf, offset)));
        Ok(FileDevice {
            file,
            path: path.to_owned(),
            size,
            access,
            #[cfg(target_os = "linux")]
            writes_out: AtomicBool::new(true),
            queue: Queue::default(),
            queues_all: false,
            ring: OnceLock::new(),
            pool,
        })
    }

    /// Uses `queue` for all submitted reads, cached ones included.
    pub fn with_queue(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self.queues_all = true;
        self
    }

    /// Fills `buf` if all of it is cached, else leaves it unspecified.
    #[cfg(target_os = "linux")]
    fn read_from_memory(&self, offset: u64, buf: &mut [u8]) -> bool {
        let wanted = buf.len();
        let read =
            rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT);
        // On failure the queue makes the read and reports errors.
        read == Ok(wanted)
    }

    /// Only Linux tells.
    #[cfg(not(target_os = "linux"))]
    fn read_from_memory(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    /// The queue in use. May start the ring.
    pub fn queue(&self) -> Queue {
        if self.ring().is_some() { Queue::Ring } else { Queue::Threads }
    }

    fn ring(&self) -> Option<&Ring> {
        let start = || match self.queue {
            // Threads always work.
            Queue::Ring => Ring::new(Arc::clone(&self.file)).ok(),
            Queue::Threads => None,
        };
        self.ring.get_or_init(start).as_ref()
    }

    /// Changes the length of a file. New bytes are zeros.
    ///
    /// # Errors
    /// Block devices, and files opened read-only.
    pub fn set_size(&mut self, size: u64) -> io::Result<()> {
        self.file.set_len(size)?;
        self.size = size;
        Ok(())
    }

    /// Path at opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle of the open file, for writing beyond its end. The lock ends with the device.
    ///
    /// # Errors
    /// Those of dup(2).
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.access == Access::ReadOnly {
            let message = format!("{} was opened read-only", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        check_range(offset, len, self.size)
    }
}

impl Drop for FileDevice {
    /// Explicit, because other references to the open file keep the lock: a child before its
    /// `exec`, or a read that the kernel has not released.
    fn drop(&mut self) {
        if self.access == Access::ReadWrite {
            host::unlock(&self.file);
        }
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn identity(&self) -> Option<String> {
        let file = self.file.metadata().ok().filter(Metadata::is_file)?;
        let (size, (seconds, nanos)) = (file.len(), host::mtime(&file));
        Some(format!("{size} bytes, changed at {seconds}.{nanos:09}"))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        self.file.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => self.file.sync_data(),
        }
    }

    #[cfg(target_os = "linux")]
    fn read_vectored_at(&self, mut offset: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        check_range(offset, crate::total_len(bufs.iter().map(|buf| buf.len()))?, self.size)?;
        IoSliceMut::advance_slices(&mut bufs, 0);
        while !bufs.is_empty() {
            let most = bufs.len().min(IOV_MAX);
            match rustix::io::preadv(&self.file, &mut bufs[..most], offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(done) => {
                    IoSliceMut::advance_slices(&mut bufs, done);
                    offset += done as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_write(offset, crate::total_len(bufs.iter().map(|buf| buf.len()))?)?;
        write_pieces(offset, bufs, |offset, bufs| rustix::io::pwritev(&self.file, bufs, offset))
    }

    #[cfg(target_os = "linux")]
    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_write(offset, crate::total_len(bufs.iter().map(|buf| buf.len()))?)?;
        write_pieces(offset, bufs, |offset, bufs| {
            if self.writes_out.load(Relaxed) {
                match rustix::io::pwritev2(&self.file, bufs, offset, DONTCACHE) {
                    // Old kernel or other file system.
                    Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                        self.writes_out.store(false, Relaxed);
                    }
                    done => return done,
                }
            }
            rustix::io::pwritev(&self.file, bufs, offset)
        })
    }

    /// Zeros holes, including unwritten extents: the first write would change metadata.
    #[cfg(target_os = "linux")]
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        let (mut at, end) = (offset, offset + len);
        // Unknown: the first write allocates.
        while let Ok(hole) = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(at)) {
            if hole >= end {
                break;
            }
            at = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(hole)) {
                Ok(data) => data.min(end),
                Err(Errno::NXIO) => end,
                Err(_) => break,
            };
            let zeros = vec![0; usize::try_from(at - hole).unwrap_or(usize::MAX).min(ZEROS)];
            for from in (hole..at).step_by(ZEROS) {
                let count = zeros.len().min(usize::try_from(at - from).unwrap_or(usize::MAX));
                self.write_out_at(from, &[IoSlice::new(&zeros[..count])])?;
            }
        }
        Ok(())
    }

    /// A hole in a file; a discard on a disk.
    #[cfg(target_os = "linux")]
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        self.check_write(offset, len)?;
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            done => Ok(done?),
        }
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        let mut job = Job { offset, buf, done };
        if let Err(error) = check_range(offset, job.buf.len() as u64, self.size) {
            return (job.done)(Err(error));
        }
        if !self.queues_all && self.read_from_memory(offset, &mut job.buf) {
            return (job.done)(Ok(job.buf));
        }
        let job = match self.ring() {
            Some(ring) => match ring.submit(job) {
                Ok(()) => return,
                Err(job) => job,
            },
            None => job,
        };
        self.pool.submit(job);
    }
}

/// A system call may write less and limits the number of slices.
#[cfg(target_os = "linux")]
fn write_pieces(
    mut offset: u64,
    bufs: &[IoSlice<'_>],
    write: impl Fn(u64, &[IoSlice<'_>]) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    let mut bufs: Vec<IoSlice<'_>> = bufs.to_vec();
    let mut bufs = bufs.as_mut_slice();
    IoSlice::advance_slices(&mut bufs, 0);
    while !bufs.is_empty() {
        let most = bufs.len().min(IOV_MAX);
        match write(offset, &bufs[..most]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                IoSlice::advance_slices(&mut bufs, done);
                offset += done as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// `RWF_DONTCACHE` of Linux 6.14: starts writeback at once and drops the pages.
///
/// Writing 256 MiB in 8 MiB pieces into a sparse file on ext4, with a flush, takes 1/10 to 1/3 of
/// the time of cached writes.
#[cfg(target_os = "linux")]
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Zeros per write.
#[cfg(target_os = "linux")]
const ZEROS: usize = 1 << 20;

/// Slices per `preadv`.
#[cfg(target_os = "linux")]
const IOV_MAX: usize = 1024;
