//! macOS: what it lacks of Linux.

pub(crate) use super::in_root::open_in_root;
use rustix::fs::{FileType, Mode, getpath};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Every file has a name here.
pub(crate) fn unnamed_file(_: BorrowedFd<'_>, _: Mode) -> Result<OwnedFd, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// A path to an open file.
pub(crate) fn path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    Ok(OsString::from_vec(getpath(fd)?.into_bytes()).into())
}

/// No call makes devices, pipes and sockets relative to a directory.
pub(crate) fn make_node(_: BorrowedFd<'_>, _: &str, _: FileType, _: (u32, u32)) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}
