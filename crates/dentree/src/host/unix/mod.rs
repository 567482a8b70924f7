//! Linux and macOS.

mod in_root;
#[cfg(target_os = "linux")]
mod linux;
mod local_tree;
#[cfg(not(target_os = "linux"))]
mod macos;
mod target_dir;
mod temp_entry;

#[cfg(target_os = "linux")]
use linux as own;
#[cfg(not(target_os = "linux"))]
use macos as own;

pub(crate) use local_tree::Local;
pub(crate) use signal_hook::iterator::Signals;
pub(crate) use std::os::unix::ffi::OsStrExt;
pub(crate) use target_dir::{Target, TargetDir, is_plain_name};
pub(crate) use temp_entry::{Parent, TempEntry};

use super::{Stat, Xattr};
use dentree_vfs::{Attr, FileType, Ino, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, SeekFrom, seek};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask as set_umask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Stdout};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Signals that end a command in an orderly way.
pub(crate) const SIGNALS: &[i32] = &[SIGINT, SIGTERM, SIGHUP];

/// A name as the host has it.
pub(crate) fn os_str(name: &[u8]) -> Cow<'_, OsStr> {
    Cow::Borrowed(OsStr::from_bytes(name))
}

/// A name as the host has it.
pub(crate) fn os_string(name: Vec<u8>) -> OsString {
    OsString::from_vec(name)
}

pub(crate) fn symlink(target: &[u8], link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(OsStr::from_bytes(target), link)
}

/// The attributes of a file, or of a link itself.
pub(crate) fn stat(path: &Path, follows: bool) -> io::Result<Stat> {
    let found = if follows { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
    Ok(Stat { attr: attr_of(&found), device: found.dev() })
}

/// What [`Stat::identity`] is, for an open file.
pub(crate) fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|found| (found.dev(), found.ino()))
}

fn attr_of(found: &Metadata) -> Attr {
    let time = |seconds, nanos: i64| Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
    let (rdev_major, rdev_minor) = major_minor(found.rdev());
    Attr {
        ino: Ino(found.ino()),
        kind: FileType::from_mode(found.mode()).unwrap_or(FileType::Regular),
        // The mask leaves permission bits only.
        permissions: (found.mode() & 0o7777) as u16,
        nlink: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        uid: found.uid(),
        gid: found.gid(),
        rdev_major,
        rdev_minor,
        size: found.len(),
        blocks: found.blocks(),
        block_size: 4096,
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        crtime: found.created().ok().and_then(since_epoch),
        generation: 0,
        flags: 0,
        has_acl: false,
    }
}

/// `None` before 1970.
fn since_epoch(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() })
}

fn major_minor(dev: u64) -> (u32, u32) {
    // The width differs between hosts.
    let dev = dev as rustix::fs::Dev;
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}

pub(crate) fn is_block_device(found: &Metadata) -> bool {
    found.file_type().is_block_device()
}

/// Gives a file owner and permissions of another.
pub(crate) fn copy_owner(file: &File, of: &Metadata) -> io::Result<()> {
    // Where the owner cannot be set, the mode applies to the present one.
    let _ = fchown(file, Some(of.uid()), Some(of.gid()));
    file.set_permissions(of.permissions())
}

pub(crate) fn set_permissions(file: &File, permissions: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(permissions))
}

/// Opens a file for reading without waiting for the other end of a pipe. [`read_ready`] waits where
/// Ctrl-C is noticed.
pub(crate) fn open_source(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Another handle of standard input.
pub(crate) fn stdin() -> io::Result<File> {
    Ok(rustix::stdio::stdin().try_clone_to_owned()?.into())
}

/// The next run of data from `offset` on; `None` at the end.
pub(crate) fn next_data(file: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..u64::MAX)),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(start..seek(file, SeekFrom::Hole(start))?))
}

/// Reads from a file of [`open_source`]; `None` after a short wait without data, so that the caller
/// can check for signals.
pub(crate) fn read_ready(file: &mut File, buf: &mut [u8]) -> io::Result<Option<usize>> {
    const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut [PollFd::new(&*file, PollFlags::IN)], Some(&MOMENT)) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        ready => ready?,
    };
    match file.read(buf) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        read => read.map(Some),
    }
}

/// The extended attributes of a file, or of a link itself, sorted by name.
pub(crate) fn read_xattrs(path: &Path) -> io::Result<Vec<Xattr>> {
    // The kernel's limit (`XATTR_LIST_MAX`).
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names: Vec<Vec<u8>> =
        names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, &name[..], &mut value[..])?;
        value.truncate(len);
        found.push((name, value));
    }
    Ok(found)
}

/// The process's umask.
pub(crate) fn umask() -> u16 {
    // It can only be read by setting it.
    let umask = clear_umask();
    set_umask(Mode::from_bits_truncate(umask.into()));
    umask
}

/// Clears the process's umask; returns what it was.
pub(crate) fn clear_umask() -> u16 {
    // The mask leaves permission bits only.
    (set_umask(Mode::empty()).as_raw_mode() & 0o777) as u16
}

/// Whether the process may give files to other users, and mount.
pub(crate) fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// Raises the limit of open files to its maximum; returns it, `None` for no limit.
pub(crate) fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // On failure the present limit holds.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// A command line for the host's shell.
pub(crate) fn shell(line: &[u8]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(OsStr::from_bytes(line));
    command
}

/// Columns of a terminal.
pub(crate) fn columns(terminal: &Stdout) -> Option<u16> {
    rustix::termios::tcgetwinsize(terminal).ok().map(|size| size.ws_col)
}
