//! Files of the local machine that get their name when they are complete. Until then they have a
//! random one, which a killed process leaves behind.

use super::os_str;
use crate::host::Existing;
use dentree_blockdev::{Access, FileDevice};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory to make entries in.
pub(crate) struct Parent(PathBuf);

impl Parent {
    pub(crate) fn open(path: &Path) -> io::Result<Parent> {
        if fs::metadata(path)?.is_dir() {
            Ok(Parent(path.to_owned()))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    pub(crate) fn file(&self) -> io::Result<TempEntry<'_>> {
        TempEntry::file(&self.0)
    }
}

/// An entry without its final name. Dropping it removes it.
pub(crate) struct TempEntry<'a> {
    file: Option<File>,
    path: PathBuf,
    is_published: bool,
    dir: PhantomData<&'a Path>,
}

impl<'a> TempEntry<'a> {
    pub(super) fn file(dir: &'a Path) -> io::Result<TempEntry<'a>> {
        // Other handles may read, write, and rename it.
        let share = 1 | 2 | 4;
        let make = |path: &Path| {
            OpenOptions::new().read(true).write(true).create_new(true).share_mode(share).open(path)
        };
        let (path, file) = named(dir, make)?;
        Ok(TempEntry { file: Some(file), path, is_published: false, dir: PhantomData })
    }

    /// An entry that `make` makes; no regular file.
    pub(super) fn entry(dir: &'a Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<TempEntry<'a>> {
        let (path, ()) = named(dir, make)?;
        Ok(TempEntry { file: None, path, is_published: false, dir: PhantomData })
    }

    /// The name until it is published.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, if it is a regular file.
    pub(crate) fn open(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The file as a device, locked against other writers: [`open`](Self::open) is one, and ends.
    pub(crate) fn device(&mut self) -> Result<FileDevice, dentree_blockdev::Error> {
        self.file = None;
        FileDevice::open(&self.path, Access::ReadWrite)
    }

    /// Gives it its final name.
    pub(crate) fn publish(mut self, name: &[u8], existing: Existing) -> io::Result<()> {
        let to = self.path.with_file_name(os_str(name));
        if existing == Existing::Keep {
            // Reserves the name: renaming replaces what is there.
            File::create_new(&to)?;
        }
        let renamed = fs::rename(&self.path, &to);
        if renamed.is_err() && existing == Existing::Keep {
            let _ = fs::remove_file(to);
        }
        self.is_published = renamed.is_ok();
        renamed
    }
}

impl Drop for TempEntry<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_dir(&self.path));
        }
    }
}

/// Makes an entry under an unused name, and returns both.
fn named<T>(dir: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    static RANDOM: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let path = dir.join(format!(".dentree-{:016x}-{}", *RANDOM, COUNT.fetch_add(1, Ordering::Relaxed)));
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
