//! Files of the local machine that get their name when they are complete.
//!
//! Regular files have no name until then (`O_TMPFILE`), so a killed process leaves nothing behind.
//! Links and devices, and regular files where the file system lacks `O_TMPFILE`, are made under a
//! random name.

use super::own;
use crate::host::Existing;
use dentree_blockdev::{Access, FileDevice};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory to make entries in.
pub(crate) struct Parent(OwnedFd);

impl Parent {
    pub(crate) fn open(path: &Path) -> io::Result<Parent> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Parent(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// A regular file of mode 0666, less the umask.
    pub(crate) fn file(&self) -> io::Result<TempEntry<'_>> {
        TempEntry::file(self.0.as_fd(), Mode::from_raw_mode(0o666))
    }
}

/// An entry of the directory `dir` without its final name. Dropping it removes it.
pub(crate) struct TempEntry<'a> {
    dir: BorrowedFd<'a>,
    file: Option<File>,
    name: Option<String>,
}

impl<'a> TempEntry<'a> {
    pub(crate) fn file(dir: BorrowedFd<'a>, mode: Mode) -> io::Result<TempEntry<'a>> {
        match own::unnamed_file(dir, mode) {
            // Publishing needs /proc.
            Ok(file) if Path::new("/proc/self/fd").exists() => {
                Ok(TempEntry { dir, file: Some(file.into()), name: None })
            }
            // Errors of kernels and file systems without `O_TMPFILE`.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let (name, file) = named(|name| openat(dir, name, flags, mode))?;
                Ok(TempEntry { dir, file: Some(file.into()), name: Some(name) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// An entry that `make` makes under the given name; no regular file.
    pub(crate) fn entry(
        dir: BorrowedFd<'a>,
        make: impl Fn(&str) -> Result<(), Errno>,
    ) -> io::Result<TempEntry<'a>> {
        let (name, ()) = named(make)?;
        Ok(TempEntry { dir, file: None, name: Some(name) })
    }

    /// The open file, if it is a regular file.
    pub(crate) fn open(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The directory, and the temporary name of a link or device in it.
    pub(crate) fn at(&self) -> (BorrowedFd<'a>, &str) {
        (self.dir, self.name.as_deref().unwrap_or("."))
    }

    /// The file as a device, locked against other writers.
    pub(crate) fn device(&mut self) -> Result<FileDevice, dentree_blockdev::Error> {
        let failed = |source| dentree_blockdev::Error::Open { path: PathBuf::new(), source };
        FileDevice::open(self.path().map_err(failed)?, Access::ReadWrite)
    }

    /// A path to the file, to open it again.
    fn path(&self) -> io::Result<PathBuf> {
        own::path(self.file.as_ref().ok_or(Errno::BADF)?.as_fd())
    }

    /// Gives it its final name.
    pub(crate) fn publish(mut self, name: &[u8], existing: Existing) -> io::Result<()> {
        if self.name.is_none() {
            let path = self.path()?;
            let link = |name: &[u8]| linkat(CWD, &path, self.dir, name, AtFlags::SYMLINK_FOLLOW);
            match link(name) {
                Err(Errno::EXIST) if existing == Existing::Replace => {}
                done => return Ok(done?),
            }
            let (temp, ()) = named(|name| link(name.as_bytes()))?;
            self.name = Some(temp);
        }
        let Some(temp) = &self.name else { return Ok(()) };
        match existing {
            Existing::Replace => renameat(self.dir, temp, self.dir, name)?,
            Existing::Keep => match renameat_with(self.dir, temp, self.dir, name, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS) => {
                    linkat(self.dir, temp, self.dir, name, AtFlags::empty())?;
                }
                done => done?,
            },
        }
        // Dropping removes a leftover: rename(2) of a hard link onto its own file does nothing.
        Ok(())
    }
}

impl Drop for TempEntry<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(self.dir, name, AtFlags::empty());
        }
    }
}

/// Makes an entry under an unused name, and returns both.
fn named<T>(make: impl Fn(&str) -> Result<T, Errno>) -> io::Result<(String, T)> {
    static RANDOM: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!(".dentree-{:016x}-{}", *RANDOM, COUNT.fetch_add(1, Ordering::Relaxed));
        match make(&name) {
            Ok(made) => return Ok((name, made)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn an_unpublished_entry_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = File::open(dir.path()).unwrap();
        drop(TempEntry::file(place.as_fd(), Mode::RWXU).unwrap());
        drop(TempEntry::entry(place.as_fd(), |name| rustix::fs::symlinkat("x", &place, name)).unwrap());
        assert_eq!(count(dir.path()), 0);
    }

    #[test]
    fn publishing_replaces_a_link_and_does_not_write_through_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("victim"), "untouched").unwrap();
        symlink("victim", dir.path().join("x")).unwrap();
        let place = File::open(dir.path()).unwrap();
        TempEntry::file(place.as_fd(), Mode::RWXU).unwrap().publish(b"x", Existing::Replace).unwrap();
        assert_eq!(fs::read(dir.path().join("victim")).unwrap(), b"untouched");
        assert!(fs::symlink_metadata(dir.path().join("x")).unwrap().is_file());
        assert_eq!(count(dir.path()), 2);
    }

    #[test]
    fn an_existing_entry_can_be_kept() {
        let dir = tempfile::tempdir().unwrap();
        let place = File::open(dir.path()).unwrap();
        fs::write(dir.path().join("x"), "stays").unwrap();
        let unnamed = TempEntry::file(place.as_fd(), Mode::RWXU).unwrap();
        let entry = TempEntry::entry(place.as_fd(), |name| rustix::fs::symlinkat("y", &place, name)).unwrap();
        for temp in [unnamed, entry] {
            let refused = temp.publish(b"x", Existing::Keep).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!((count(dir.path()), &*fs::read(dir.path().join("x")).unwrap()), (1, &b"stays"[..]));
    }
}
