//! Unix: files and block devices.
//!
//! # Locking
//! Opening for writing takes `flock(LOCK_EX)`: the lock that systemd, udev and util-linux use to
//! reserve a block device. A block device is also opened with `O_EXCL`, which the kernel refuses
//! for a mounted one. A loop device takes no lock; a file with a writable loop device is refused
//! where sysfs shows it.

use super::lock_holder::{lock_holder, loop_device};
use crate::{Access, Error, Holder};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

pub use super::lock_holder::writer_of;
pub use std::os::unix::fs::FileExt;

/// The numbers of two errors.
pub(crate) const IO_ERROR: i32 = Errno::IO.raw_os_error();
pub(crate) const NO_SPACE: i32 = Errno::NOSPC.raw_os_error();

pub(crate) fn open(path: &Path, access: Access) -> Result<File, Error> {
    let is_block_device = check_kind(path)?;
    let mut flags = OFlags::CLOEXEC;
    if is_block_device && access == Access::ReadWrite {
        flags |= OFlags::EXCL;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| Error::Open { path: path.to_owned(), source })?;
    if access == Access::ReadWrite {
        lock(path, &file)?;
    }
    Ok(file)
}

/// Ends the lock of a writer.
pub(crate) fn unlock(file: &File) {
    // After an error the lock ends later.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// Seconds and nanoseconds.
pub(crate) fn mtime(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

/// Whether `path` is a block device, and not a regular file. Checked before opening, because
/// opening a pipe can block.
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
        // The holder may have ended meanwhile.
        taken = lock();
    }
    match taken {
        Ok(()) => loop_behind(file).map_or(Ok(()), |holder| locked(Some(holder))),
        Err(Errno::WOULDBLOCK) => locked(None),
        Err(errno) => Err(Error::Open { path: path.to_owned(), source: errno.into() }),
    }
}

/// The loop device that writes to a file. A loop device that was just unmounted may remain for a
/// moment while another process reads it.
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
