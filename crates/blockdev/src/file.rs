//! A device in a file or on a block device of the system.
//!
//! Locking. Opening to write takes `flock(LOCK_EX)`, so that a second writer is refused by name. `flock` and not a
//! record lock, because it is what systemd, udev and util-linux use to keep off a block device. A block device
//! is also opened `O_EXCL`, by which the kernel refuses one that is mounted. A loop device locks nothing: where the system shows one
//! that may write to the file, opening to write is refused as well.
//! Opening to read takes no lock and asks for none: one may always look. What a reader sees while somebody writes (this
//! program, a loop mount, a virtual machine, which takes no lock that can be seen) is the file as
//! it is at each read, which need not fit together; checksums then name what does not.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::lock_holder::{Holder, lock_holder, loop_device};
use crate::pool::{Job, ReaderPool};
use crate::ring::Ring;
use crate::{BlockDevice, Done, Error, check_range};

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only; takes no lock.
    ReadOnly,
    /// Reading and writing, as the only writer.
    ReadWrite,
}

/// A regular file or a block device of the system, read and written at any offset without a lock.
///
/// Reads that are [submitted](BlockDevice::submit) are made at once where the system has the bytes in memory: to hand them to somebody else
/// would take longer. The others go to a [`Queue`] that starts when first needed.
pub struct FileDevice {
    file: Arc<File>,
    path: PathBuf,
    size: u64,
    access: Access,
    /// The system can write without keeping a copy, as far as is known.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    writes_out: AtomicBool,
    /// What was asked for.
    queue: Queue,
    /// Also what the system has in memory goes to the queue.
    queues_all: bool,
    /// `None` where there is no ring, or there should be none.
    ring: OnceLock<Option<Ring>>,
    pool: ReaderPool,
}

/// Who makes the reads that are [submitted](BlockDevice::submit) to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Queue {
    /// The kernel, by io_uring; and threads where it has none or refuses it to this process.
    #[default]
    Ring,
    /// Threads that block.
    Threads,
}

impl FileDevice {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`Error::Locked`] where it is to be written and another program writes it, [`Error::NotADevice`] for
    /// directories, pipes and the like, and else [`Error::Open`].
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
        let is_block_device = check_kind(path)?;
        let mut flags = OFlags::CLOEXEC;
        if is_block_device && access == Access::ReadWrite {
            flags |= OFlags::EXCL;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(access == Access::ReadWrite)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        if access == Access::ReadWrite {
            lock(path, &file)?;
        }
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
            writes_out: AtomicBool::new(true),
            queue: Queue::default(),
            queues_all: false,
            ring: OnceLock::new(),
            pool,
        })
    }

    /// The same device, whose submitted reads are all made by `queue`, also those of what the system has in memory.
    pub fn with_queue(mut self, queue: Queue) -> Self {
        self.queue = queue;
        self.queues_all = true;
        self
    }

    /// Fills `buf` if the system has all of it in memory; else there may be anything in it.
    fn read_from_memory(&self, offset: u64, buf: &mut [u8]) -> bool {
        let wanted = buf.len();
        let read = preadv2(&self.file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT);
        // Where it would have to wait, or does not know how not to, the queue says what is wrong, if anything.
        read == Ok(wanted)
    }

    /// Who makes submitted reads here. Starts the ring where one is asked for.
    pub fn queue(&self) -> Queue {
        if self.ring().is_some() { Queue::Ring } else { Queue::Threads }
    }

    fn ring(&self) -> Option<&Ring> {
        let start = || match self.queue {
            // Refused for whatever reason: threads can always do it.
            Queue::Ring => Ring::new(Arc::clone(&self.file)).ok(),
            Queue::Threads => None,
        };
        self.ring.get_or_init(start).as_ref()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
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
    /// Gives the lock back itself: others may have the file open yet, and with it the lock. A program that this one is starting has all
    /// files of this one for a moment, and the kernel may let go of a read that has ended only after that.
    fn drop(&mut self) {
        if self.access == Access::ReadWrite {
            // What is left of an error is that the lock ends later.
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Whether `path` is a block device, and not a regular file. Looked at before opening: to open a pipe can wait for ever.
fn check_kind(path: &Path) -> Result<bool, Error> {
    let metadata = std::fs::metadata(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
    let kind = metadata.file_type();
    let other = if kind.is_file() || kind.is_block_device() {
        return Ok(kind.is_block_device());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a character device"
    };
    Err(Error::NotADevice { path: path.to_owned(), kind: other })
}

fn lock(path: &Path, file: &File) -> Result<(), Error> {
    let lock = || rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    let locked = |holder| Err(Error::Locked { path: path.to_owned(), holder });
    let mut taken = lock();
    if taken == Err(Errno::WOULDBLOCK) {
        let found = file.metadata().ok();
        if let Some(holder) = found.and_then(|found| lock_holder(found.dev(), found.ino())) {
            return locked(Some(holder));
        }
        // Who had it may have ended meanwhile.
        taken = lock();
    }
    match taken {
        Ok(()) => loop_behind(file).map_or(Ok(()), |holder| locked(Some(holder))),
        Err(Errno::WOULDBLOCK) => locked(None),
        Err(errno) => Err(Error::Open { path: path.to_owned(), source: errno.into() }),
    }
}

/// The loop device that writes to a file. One that was just unmounted may still be there for a moment, while somebody looks at it.
fn loop_behind(file: &File) -> Option<Holder> {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(20);
    let found = file.metadata().ok()?;
    let began = Instant::now();
    loop {
        let holder = loop_device(found.dev(), found.ino())?;
        if began.elapsed() > PATIENCE {
            return Some(holder);
        }
        std::thread::sleep(PAUSE);
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
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
                    // An older kernel, or a file system that always keeps a copy.
                    Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                        self.writes_out.store(false, Relaxed);
                    }
                    done => return done,
                }
            }
            rustix::io::pwritev(&self.file, bufs, offset)
        })
    }

    /// Holes of the file are filled with zeros. Space that is taken and not written (`fallocate`) is a hole in this sense: the system keeps a
    /// record of that, too, which changes with the first write.
    #[cfg(target_os = "linux")]
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        let (mut at, end) = (offset, offset + len);
        // Where the system cannot tell, the space is taken with the first write, as everywhere else.
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

    /// In a file, a hole; on a disk, a discard.
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

/// Writes all of `bufs` at `offset` by a system call that may write fewer bytes than it is given, and takes so many slices.
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

/// `RWF_DONTCACHE`, of Linux 6.14: write through the page cache, begin to write to the disk at once, and give the pages back when they are there.
///
/// 256 MiB in pieces of 8 MiB into a sparse file on ext4, and a flush, took a third to a tenth of the time that it takes without: the disk
/// works meanwhile, and a few pages serve for all of it where the system would have to find a fresh one for each.
#[cfg(target_os = "linux")]
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// So many zeros are written at a time.
#[cfg(target_os = "linux")]
const ZEROS: usize = 1 << 20;

/// How many slices one `preadv` takes.
#[cfg(target_os = "linux")]
const IOV_MAX: usize = 1024;
