//! Target directories, by their paths.
//!
//! Below a copied directory a link is refused where it is met. There are no calls relative to an
//! open directory: another process that replaces a directory by a link meanwhile can lead a copy
//! elsewhere. Making links takes a privilege, or the developer mode.

use super::{TempEntry, not_kept, os_str, set_permissions, stat, symlink, system_time};
use crate::command::cp::{DANGLING, IN_THE_WAY};
use crate::host::{Destination, Rules};
use dentree_vfs::{FileType, Timestamp};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// To set times (`FILE_WRITE_ATTRIBUTES`).
const WRITE_ATTRIBUTES: u32 = 0x100;
/// Opens a directory (`FILE_FLAG_BACKUP_SEMANTICS`) or a link itself
/// (`FILE_FLAG_OPEN_REPARSE_POINT`).
const ITSELF: u32 = 0x0200_0000 | 0x0020_0000;

pub(crate) struct TargetDir {
    path: PathBuf,
    /// Components below the top directory.
    below: Vec<Vec<u8>>,
}

impl TargetDir {
    /// The directory at `path`, a user's argument: links are followed.
    pub(crate) fn top(path: &Path) -> io::Result<TargetDir> {
        if !fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(TargetDir { path: path.to_owned(), below: Vec::new() })
    }

    pub(crate) fn label(&self, name: &[u8]) -> PathBuf {
        self.path.join(os_str(name))
    }

    /// The components from the top to `name`.
    pub(crate) fn below(&self, name: &[u8]) -> Vec<Vec<u8>> {
        [&self.below[..], &[name.to_vec()]].concat()
    }

    /// Opens or makes the directory `name`, and tells whether it was made.
    pub(crate) fn directory(&self, name: &[u8]) -> io::Result<(TargetDir, bool)> {
        let path = self.label(name);
        let made = match fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        if !fs::symlink_metadata(&path)?.is_dir() {
            let message = "something other than a directory is in the way";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Ok((TargetDir { path, below: self.below(name) }, made))
    }

    /// Where to write the content of the file `name`.
    pub(crate) fn destination(&self, name: &[u8], rules: Rules) -> io::Result<Destination<'_>> {
        let follows = rules.named && !rules.remove;
        let path = self.label(name);
        let found = match stat(&path, follows) {
            Ok(found) => found.attr,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if follows && self.is_there(name) => return Err(io::Error::other(DANGLING)),
            Err(_) => return self.file().map(Destination::New),
        };
        match found.kind {
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            _ if rules.remove || rules.links && found.nlink > 1 => self.file().map(Destination::Instead),
            FileType::Regular => match OpenOptions::new().write(true).open(&path) {
                Err(_) if rules.force => self.file().map(Destination::Instead),
                opened => opened.map(Destination::Through),
            },
            _ => Err(io::Error::other(IN_THE_WAY)),
        }
    }

    /// The time of change of what exists, a link itself; `None` for directories.
    pub(crate) fn changed(&self, name: &[u8]) -> Option<Timestamp> {
        let found = stat(&self.label(name), false).ok()?.attr;
        (found.kind != FileType::Directory).then_some(found.mtime)
    }

    /// Renames an entry, in place of another one if there is one.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        fs::rename(self.label(from), self.label(to))
    }

    pub(crate) fn is_there(&self, name: &[u8]) -> bool {
        fs::symlink_metadata(self.label(name)).is_ok()
    }

    /// A new regular file.
    pub(crate) fn file(&self) -> io::Result<TempEntry<'_>> {
        TempEntry::file(&self.path)
    }

    pub(crate) fn symlink(&self, target: &[u8]) -> io::Result<TempEntry<'_>> {
        TempEntry::entry(&self.path, |path| symlink(target, path))
    }

    pub(crate) fn node(&self, _: FileType, _: (u32, u32)) -> io::Result<TempEntry<'_>> {
        Err(not_kept("devices, pipes and sockets"))
    }

    /// A hard link to the file at `below` under `top`.
    pub(crate) fn link(&self, top: &TargetDir, below: &[Vec<u8>]) -> io::Result<TempEntry<'_>> {
        let first = below.iter().fold(top.path.clone(), |path, name| path.join(os_str(name)));
        TempEntry::entry(&self.path, |path| fs::hard_link(&first, path))
    }
}

/// A copy whose attributes can be set.
pub(crate) enum Target<'a> {
    File(&'a File),
    /// A directory, or a link.
    Path(&'a Path),
}

impl<'a> Target<'a> {
    pub(crate) fn directory(dir: &'a TargetDir) -> Self {
        Target::Path(&dir.path)
    }

    pub(crate) fn file(file: &'a File) -> Self {
        Target::File(file)
    }

    pub(crate) fn temp(temp: &'a TempEntry<'a>) -> Self {
        temp.open().map_or(Target::Path(temp.path()), Target::File)
    }

    pub(crate) fn set_owner(&self, _: Option<u32>, _: Option<u32>) -> io::Result<()> {
        Err(not_kept("owners of Unix"))
    }

    /// Of the mode, whether a file may be written.
    pub(crate) fn set_mode(&self, permissions: u32) -> io::Result<()> {
        let Target::File(file) = self else { return Ok(()) };
        set_permissions(file, permissions)
    }

    pub(crate) fn set_xattr(&self, _: &[u8], _: &[u8]) -> io::Result<()> {
        Err(not_kept("extended attributes"))
    }

    pub(crate) fn set_times(&self, access: Timestamp, modification: Timestamp) -> io::Result<()> {
        let times = FileTimes::new().set_accessed(system_time(access));
        let times = times.set_modified(system_time(modification));
        match self {
            Target::File(file) => file.set_times(times),
            Target::Path(path) => {
                let mut options = OpenOptions::new();
                options.access_mode(WRITE_ATTRIBUTES).custom_flags(ITSELF).open(path)?.set_times(times)
            }
        }
    }
}

/// Whether a name of an image is valid here.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    const DEVICES: [&str; 4] = ["CON", "PRN", "AUX", "NUL"];
    let Ok(name) = str::from_utf8(name) else { return false };
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_ascii_uppercase();
    let is_port = |port: &str| stem.strip_prefix(port).is_some_and(|number| number.chars().count() == 1);
    let is_device = DEVICES.contains(&&*stem) || is_port("COM") || is_port("LPT");
    let is_odd = |letter: char| letter < ' ' || r#"<>:"/\|?*"#.contains(letter);
    // Also without `.` and `..`: a dot or blank at the end is dropped.
    !name.is_empty() && !name.ends_with(['.', ' ']) && !is_device && !name.contains(is_odd)
}
