//! Linux.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, makedev, mknodat, openat, openat2};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Opens a directory. Links in the path resolve with `root` as `/`.
pub(crate) fn open_in_root(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

/// A file without a name (`O_TMPFILE`).
pub(crate) fn unnamed_file(dir: BorrowedFd<'_>, mode: Mode) -> Result<OwnedFd, Errno> {
    openat(dir, ".", OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE, mode)
}

/// A path to an open file.
pub(crate) fn path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    Ok(format!("/proc/self/fd/{}", fd.as_raw_fd()).into())
}

/// Makes a device, pipe or socket that its owner may read.
pub(crate) fn make_node(
    dir: BorrowedFd<'_>,
    name: &str,
    kind: FileType,
    (major, minor): (u32, u32),
) -> Result<(), Errno> {
    mknodat(dir, name, kind, Mode::RUSR, makedev(major, minor))
}
