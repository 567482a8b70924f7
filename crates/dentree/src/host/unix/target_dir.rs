//! Target directories: open descriptors in which entries are made one name at a time.
//!
//! No call here takes a path of more than one component. Below a copied directory no link is
//! followed, and only regular files are written to: whatever names the image has and whatever
//! exists in the target, a copy stays below the directory that the user named. A name that the user
//! gave means what it means to cp(1): links are followed, and pipes and devices are written to.

use super::{TempEntry, own};
use crate::command::cp::{DANGLING, IN_THE_WAY};
use crate::host::{Destination, Rules};
use dentree_vfs::Timestamp;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) struct TargetDir {
    fd: OwnedFd,
    /// Components below the top directory, to reopen it.
    below: Vec<Vec<u8>>,
    label: PathBuf,
}

impl TargetDir {
    /// The directory at `path`, a user's argument: links are followed.
    pub(crate) fn top(path: &Path) -> io::Result<TargetDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(TargetDir { fd, below: Vec::new(), label: path.to_owned() })
    }

    pub(crate) fn label(&self, name: &[u8]) -> PathBuf {
        self.label.join(OsStr::from_bytes(name))
    }

    /// The components from the top to `name`.
    pub(crate) fn below(&self, name: &[u8]) -> Vec<Vec<u8>> {
        [&self.below[..], &[name.to_vec()]].concat()
    }

    /// Opens or makes the directory `name`, and tells whether it was made.
    pub(crate) fn directory(&self, name: &[u8]) -> io::Result<(TargetDir, bool)> {
        let made = match rustix::fs::mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let fd =
            rustix::fs::openat(&self.fd, name, OPEN_DIRECTORY, Mode::empty()).map_err(
                |error| match error {
                    Errno::LOOP | Errno::NOTDIR => io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "something other than a directory is in the way",
                    ),
                    error => error.into(),
                },
            )?;
        Ok((TargetDir { fd, below: self.below(name), label: self.label(name) }, made))
    }

    /// Where to write the content of the file `name`.
    pub(crate) fn destination(&self, name: &[u8], rules: Rules) -> io::Result<Destination<'_>> {
        let follows = rules.named && !rules.remove;
        let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let found = match rustix::fs::statat(&self.fd, name, flags) {
            Ok(found) => found,
            Err(Errno::NOENT) if follows && self.is_there(name) => return Err(io::Error::other(DANGLING)),
            Err(Errno::NOENT) => return self.file().map(Destination::New),
            Err(error) => return Err(error.into()),
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        let of_several = rules.links && found.st_nlink > 1;
        match kind {
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ if rules.remove => self.file().map(Destination::Instead),
            FileType::RegularFile if of_several => self.file().map(Destination::Instead),
            FileType::RegularFile => match self.open(name, follows) {
                Err(_) if rules.force => self.file().map(Destination::Instead),
                opened => opened.map(Destination::Through),
            },
            _ if follows => self.open(name, true).map(Destination::Stream),
            _ => Err(io::Error::other(IN_THE_WAY)),
        }
    }

    /// The time of change of what exists, a link itself; `None` for directories.
    pub(crate) fn changed(&self, name: &[u8]) -> Option<Timestamp> {
        let found = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let nanos = u32::try_from(found.st_mtime_nsec).unwrap_or(0);
        let time = Timestamp { seconds: found.st_mtime, nanos };
        (FileType::from_raw_mode(found.st_mode) != FileType::Directory).then_some(time)
    }

    /// Renames an entry, in place of another one if there is one.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    pub(crate) fn is_there(&self, name: &[u8]) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens an existing entry for writing.
    fn open(&self, name: &[u8], follows: bool) -> io::Result<File> {
        // NONBLOCK: another process may have replaced the file by a pipe.
        let careful = if follows { OFlags::empty() } else { OFlags::NOFOLLOW | OFlags::NONBLOCK };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | careful;
        let file: File = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?.into();
        if follows || file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other(IN_THE_WAY)) }
    }

    /// A new regular file with mode 0600.
    pub(crate) fn file(&self) -> io::Result<TempEntry<'_>> {
        TempEntry::file(self.fd.as_fd(), Mode::RUSR | Mode::WUSR)
    }

    pub(crate) fn symlink(&self, target: &[u8]) -> io::Result<TempEntry<'_>> {
        TempEntry::entry(self.fd.as_fd(), |name| rustix::fs::symlinkat(target, &self.fd, name))
    }

    pub(crate) fn node(&self, kind: dentree_vfs::FileType, device: (u32, u32)) -> io::Result<TempEntry<'_>> {
        let kind = FileType::from_raw_mode(kind.mode_bits() as RawMode);
        TempEntry::entry(self.fd.as_fd(), |name| own::make_node(self.fd.as_fd(), name, kind, device))
    }

    /// A hard link to the file at `below` under `top`.
    pub(crate) fn link(&self, top: &TargetDir, below: &[Vec<u8>]) -> io::Result<TempEntry<'_>> {
        let Some((name, directories)) = below.split_last() else { return Err(Errno::INVAL.into()) };
        let mut dir = rustix::fs::openat(&top.fd, ".", OPEN_DIRECTORY, Mode::empty())?;
        for name in directories {
            dir = rustix::fs::openat(&dir, &**name, OPEN_DIRECTORY, Mode::empty())?;
        }
        TempEntry::entry(self.fd.as_fd(), |temp| {
            rustix::fs::linkat(&dir, &**name, &self.fd, temp, AtFlags::empty())
        })
    }
}

/// A copy whose attributes can be set.
pub(crate) enum Target<'a> {
    Open(BorrowedFd<'a>),
    Entry(&'a TempEntry<'a>),
}

impl<'a> Target<'a> {
    pub(crate) fn directory(dir: &'a TargetDir) -> Self {
        Target::Open(dir.fd.as_fd())
    }

    pub(crate) fn file(file: &'a File) -> Self {
        Target::Open(file.as_fd())
    }

    pub(crate) fn temp(temp: &'a TempEntry<'a>) -> Self {
        temp.open().map_or(Target::Entry(temp), |file| Target::Open(file.as_fd()))
    }

    pub(crate) fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Target::Open(fd) => rustix::fs::fchown(fd, uid, gid)?,
            Target::Entry(temp) => {
                let (dir, name) = temp.at();
                rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(())
    }

    /// Not for symbolic links, which have no mode.
    pub(crate) fn set_mode(&self, permissions: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(permissions as RawMode);
        match self {
            Target::Open(fd) => rustix::fs::fchmod(fd, mode)?,
            Target::Entry(temp) => {
                let (dir, name) = temp.at();
                rustix::fs::chmodat(dir, name, mode, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        match self {
            Target::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())?,
            Target::Entry(temp) => {
                let (dir, file) = temp.at();
                // lsetxattr does not follow the last component, and no other one is a link.
                let path = own::path(dir)?.join(file);
                rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_times(&self, access: Timestamp, modification: Timestamp) -> io::Result<()> {
        let timespec = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
        let times = Timestamps { last_access: timespec(access), last_modification: timespec(modification) };
        match self {
            Target::Open(fd) => rustix::fs::futimens(fd, &times)?,
            Target::Entry(temp) => {
                let (dir, name) = temp.at();
                rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(())
    }
}

/// Whether a name of an image is valid here.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_not_entered_as_a_directory() {
        let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("x")).unwrap();
        let dir = TargetDir::top(dir.path()).unwrap();
        assert!(dir.directory(b"x").is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert!(!is_plain_name(name));
        }
        assert!(is_plain_name(b"...") && is_plain_name(b"\xff"));
    }
}
