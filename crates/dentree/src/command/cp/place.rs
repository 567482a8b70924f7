//! Where copies go: directories that are open, in which names are made one by one.
//!
//! Nothing here takes a path of more than one component, and nothing follows a link: whatever an image names its files, and
//! whatever links lie in the target already, a copy stays below the directory that the user named. A file is made
//! under a name that nobody can guess and renamed when it is complete.

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory of the target.
pub(super) struct Place {
    fd: OwnedFd,
    /// Components below the top of the copy, from which it can be found again.
    below: Vec<Vec<u8>>,
    /// For messages.
    label: PathBuf,
}

impl Place {
    /// The directory at `path`, which the user named: links in it are followed.
    pub(super) fn top(path: &Path) -> io::Result<Place> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Place { fd, below: Vec::new(), label: path.to_owned() })
    }

    pub(super) fn label(&self, name: &[u8]) -> PathBuf {
        self.label.join(OsStr::from_bytes(name))
    }

    /// Components from the top to `name` here.
    pub(super) fn below(&self, name: &[u8]) -> Vec<Vec<u8>> {
        [&self.below[..], &[name.to_vec()]].concat()
    }

    /// Opens directory `name`, made if it is not there; also tells whether it was made.
    pub(super) fn directory(&self, name: &[u8]) -> io::Result<(Place, bool)> {
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
                        "something that is no directory is in the way",
                    ),
                    error => error.into(),
                },
            )?;
        Ok((Place { fd, below: self.below(name), label: self.label(name) }, made))
    }

    /// A new file for reading and writing by its owner alone.
    pub(super) fn file(&self) -> io::Result<(Draft<'_>, std::fs::File)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (draft, fd) =
            self.draft(|name| rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR))?;
        Ok((draft, fd.into()))
    }

    /// A new symbolic link.
    pub(super) fn symlink(&self, target: &[u8]) -> io::Result<Draft<'_>> {
        self.draft(|name| rustix::fs::symlinkat(target, &self.fd, name)).map(|(draft, ())| draft)
    }

    /// A new device, fifo or socket.
    pub(super) fn node(&self, kind: FileType, (major, minor): (u32, u32)) -> io::Result<Draft<'_>> {
        let device = rustix::fs::makedev(major, minor);
        self.draft(|name| rustix::fs::mknodat(&self.fd, name, kind, Mode::RUSR, device))
            .map(|(draft, ())| draft)
    }

    /// Another name for the file that was made at `below` under `top`.
    pub(super) fn link(&self, top: &Place, below: &[Vec<u8>]) -> io::Result<Draft<'_>> {
        let Some((name, directories)) = below.split_last() else { return Err(Errno::INVAL.into()) };
        let mut dir = rustix::fs::openat(&top.fd, ".", OPEN_DIRECTORY, Mode::empty())?;
        for name in directories {
            dir = rustix::fs::openat(&dir, &**name, OPEN_DIRECTORY, Mode::empty())?;
        }
        self.draft(|draft| rustix::fs::linkat(&dir, &**name, &self.fd, draft, AtFlags::empty()))
            .map(|(draft, ())| draft)
    }

    /// Makes something under a name that nobody else uses.
    fn draft<T>(&self, make: impl Fn(&[u8]) -> Result<T, Errno>) -> io::Result<(Draft<'_>, T)> {
        static RANDOM: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!(".dentree-{:016x}-{}", *RANDOM, COUNT.fetch_add(1, Ordering::Relaxed));
            match make(name.as_bytes()) {
                Ok(made) => return Ok((Draft { place: self, name: Some(name) }, made)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Something that was made and has no final name yet. Dropped, it is removed.
pub(super) struct Draft<'a> {
    place: &'a Place,
    name: Option<String>,
}

impl Draft<'_> {
    /// Gives it its name, in the place of what has that name now, unless that is a directory.
    pub(super) fn publish(mut self, name: &[u8]) -> io::Result<()> {
        let fd = &self.place.fd;
        rustix::fs::renameat(fd, self.draft_name(), fd, name)?;
        // Renaming a hard link onto its own file does nothing at all, so the draft may be left.
        if let Some(draft) = self.name.take() {
            let _ = rustix::fs::unlinkat(fd, draft, AtFlags::empty());
        }
        Ok(())
    }

    fn draft_name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(&self.place.fd, name, AtFlags::empty());
        }
    }
}

/// Something of the target whose attributes can be set.
pub(super) enum Target<'a> {
    Draft(&'a Draft<'a>),
    Directory(&'a Place),
}

impl Target<'_> {
    fn at(&self) -> (&OwnedFd, &str) {
        match self {
            Target::Draft(draft) => (&draft.place.fd, draft.draft_name()),
            Target::Directory(place) => (&place.fd, "."),
        }
    }

    pub(super) fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (fd, name) = self.at();
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(rustix::fs::chownat(fd, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Not for symbolic links: they have no mode of their own.
    pub(super) fn set_mode(&self, permissions: u32) -> io::Result<()> {
        let (fd, name) = self.at();
        Ok(rustix::fs::chmodat(fd, name, Mode::from_raw_mode(permissions), AtFlags::empty())?)
    }

    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let (fd, file) = self.at();
        // A link as the last component is not followed, and there is no other one.
        let path = format!("/proc/self/fd/{}/{file}", fd.as_raw_fd());
        Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
    }

    pub(super) fn set_times(&self, access: Timespec, modification: Timespec) -> io::Result<()> {
        let (fd, name) = self.at();
        let times = Timestamps { last_access: access, last_modification: modification };
        Ok(rustix::fs::utimensat(fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Whether a name from an image may be given to a file here.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_draft_that_is_not_published_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::top(dir.path()).unwrap();
        drop(place.file().unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn publishing_replaces_a_link_and_does_not_write_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        fs::create_dir(dir.path().join("to")).unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("to/x")).unwrap();
        let place = Place::top(&dir.path().join("to")).unwrap();
        place.file().unwrap().0.publish(b"x").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert!(fs::symlink_metadata(dir.path().join("to/x")).unwrap().is_file());
    }

    #[test]
    fn a_link_is_not_entered_as_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", dir.path().join("x")).unwrap();
        let place = Place::top(dir.path()).unwrap();
        assert!(place.directory(b"x").is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert!(!is_plain_name(name));
        }
        assert!(is_plain_name(b"...") && is_plain_name(b"\xff"));
    }
}
