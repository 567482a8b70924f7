//! Windows: files have times and a read-only flag, but no owners, modes, extended attributes of
//! ext4's kind, or devices.

mod local_tree;
mod signals;
mod target_dir;
mod temp_entry;

pub(crate) use local_tree::Local;
pub(crate) use signals::{SIGNALS, Signals};
pub(crate) use target_dir::{Target, TargetDir, is_plain_name};
pub(crate) use temp_entry::{Parent, TempEntry};

use super::{Stat, Xattr};
use dentree_vfs::{Attr, FileType, Ino, Timestamp};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Stdout};
use std::ops::Range;
use std::os::windows::fs::{MetadataExt, symlink_dir, symlink_file};
use std::os::windows::io::AsHandle;
use std::os::windows::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use winapi_util::{Handle, file::information};

/// The bytes of a name.
pub(crate) trait OsStrExt {
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// A name as the host has it. What is not UTF-8 has no name here: it is shown with replacement
/// characters, and refused by [`is_plain_name`] before it is made.
pub(crate) fn os_str(name: &[u8]) -> Cow<'_, OsStr> {
    match String::from_utf8_lossy(name) {
        Cow::Borrowed(name) => Cow::Borrowed(OsStr::new(name)),
        Cow::Owned(name) => Cow::Owned(name.into()),
    }
}

/// A name as the host has it, see [`os_str`].
pub(crate) fn os_string(name: Vec<u8>) -> OsString {
    os_str(&name).into_owned()
}

/// The attributes of a file, or of a link itself. The owner is root; the mode follows from the type
/// and the read-only flag.
pub(crate) fn stat(path: &Path, follows: bool) -> io::Result<Stat> {
    let found = if follows { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
    let mut stat = Stat { attr: attr_of(&found), device: 0 };
    // A handle follows the link.
    if !found.is_symlink() {
        let found = information(Handle::from_path_any(path)?)?;
        stat.device = found.volume_serial_number();
        stat.attr.ino = Ino(found.file_index());
        stat.attr.nlink = u32::try_from(found.number_of_links()).unwrap_or(u32::MAX);
    }
    Ok(stat)
}

/// What [`Stat::identity`] is, for an open file.
pub(crate) fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = information(file)?;
    Ok((found.volume_serial_number(), found.file_index()))
}

/// All but what only a handle tells.
fn attr_of(found: &Metadata) -> Attr {
    let kind = kind_of(found.file_type());
    let permissions = match kind {
        FileType::Symlink => 0o777,
        FileType::Directory => 0o755,
        _ if found.permissions().readonly() => 0o444,
        _ => 0o644,
    };
    let mtime = timestamp(found.last_write_time());
    Attr {
        ino: Ino(0),
        kind,
        permissions,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev_major: 0,
        rdev_minor: 0,
        size: found.len(),
        blocks: found.len().div_ceil(512),
        block_size: 4096,
        atime: timestamp(found.last_access_time()),
        mtime,
        // The nearest that there is.
        ctime: mtime,
        crtime: Some(timestamp(found.creation_time())),
        generation: 0,
        flags: 0,
        has_acl: false,
    }
}

fn kind_of(kind: fs::FileType) -> FileType {
    match kind {
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_dir() => FileType::Directory,
        _ => FileType::Regular,
    }
}

/// Units of 100 ns since 1601.
fn timestamp(time: u64) -> Timestamp {
    const EPOCH: i64 = 11_644_473_600;
    let (seconds, rest) = (time / 10_000_000, time % 10_000_000);
    Timestamp { seconds: seconds.cast_signed() - EPOCH, nanos: (rest * 100) as u32 }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = std::time::Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH - seconds } else { UNIX_EPOCH + seconds };
    whole + std::time::Duration::from_nanos(time.nanos.into())
}

/// Disks are not written as such here.
pub(crate) fn is_block_device(_: &Metadata) -> bool {
    false
}

/// Gives a file the permissions of another; files have no owner that a copy keeps.
pub(crate) fn copy_owner(file: &File, of: &Metadata) -> io::Result<()> {
    file.set_permissions(of.permissions())
}

/// Of the mode, whether a file may be written.
pub(crate) fn set_permissions(file: &File, permissions: u32) -> io::Result<()> {
    let mut kept = file.metadata()?.permissions();
    kept.set_readonly(permissions & 0o222 == 0);
    file.set_permissions(kept)
}

/// A link to a directory is another kind than one to a file; one that leads nowhere counts as the
/// latter.
pub(crate) fn symlink(target: &[u8], link: &Path) -> io::Result<()> {
    let Ok(target) = str::from_utf8(target) else { return Err(not_kept("names that are not UTF-8")) };
    let end = link.parent().map_or_else(|| target.into(), |dir| dir.join(target));
    if end.is_dir() { symlink_dir(target, link) } else { symlink_file(target, link) }
}

pub(crate) fn open_source(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Another handle of standard input.
pub(crate) fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

/// The next run of data from `offset` on: holes are not reported.
pub(crate) fn next_data(_: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    Ok(Some(offset..u64::MAX))
}

/// Reads; waits for data, and does not notice Ctrl-C meanwhile.
pub(crate) fn read_ready(file: &mut File, buf: &mut [u8]) -> io::Result<Option<usize>> {
    file.read(buf).map(Some)
}

/// No file has extended attributes that ext4 could keep.
pub(crate) fn read_xattrs(_: &Path) -> io::Result<Vec<Xattr>> {
    Ok(Vec::new())
}

/// New files get the usual permissions.
pub(crate) fn umask() -> u16 {
    0o022
}

pub(crate) fn clear_umask() -> u16 {
    umask()
}

/// No user may give files away or mount an image.
pub(crate) fn is_superuser() -> bool {
    false
}

/// There is no limit.
pub(crate) fn raise_file_limit() -> Option<u64> {
    None
}

/// A command line for the host's shell.
pub(crate) fn shell(line: &[u8]) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").raw_arg(os_str(line));
    command
}

/// Columns of a terminal.
pub(crate) fn columns(terminal: &Stdout) -> Option<u16> {
    terminal_size::terminal_size_of(terminal).map(|(columns, _)| columns.0)
}

/// An attribute that files here do not have.
fn not_kept(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("Windows keeps no {what}"))
}
