//! The source of a new image: a directory, and the manifest that overrides it.

use super::fill_error::FillError;
use super::manifest::{Line, Manifest};
use super::time::Time;
use crate::host::{self, Stat, os_str};
use crate::path::join;
use dentree_vfs::{FileType, NewKind, Timestamp};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// What to fill from, and how.
pub(super) struct Source<'a> {
    pub(super) directory: &'a Path,
    pub(super) manifest: &'a Manifest,
    /// The time of entries of the manifest, and the limit of other times.
    pub(super) time: Time,
}

/// An entry to make, by the manifest, else by the directory.
pub(super) struct SourceEntry {
    pub(super) path: Vec<u8>,
    /// The source of content and attributes.
    pub(super) local: Option<(PathBuf, Stat)>,
    pub(super) kind: FileType,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    pub(super) device: (u32, u32),
    pub(super) target: Vec<u8>,
}

impl SourceEntry {
    pub(super) fn new_kind(&self) -> NewKind<'_> {
        let (major, minor) = self.device;
        match self.kind {
            FileType::Regular => NewKind::Regular,
            FileType::Directory => NewKind::Directory,
            FileType::Symlink => NewKind::Symlink(&self.target),
            FileType::CharDevice => NewKind::CharDevice { major, minor },
            FileType::BlockDevice => NewKind::BlockDevice { major, minor },
            FileType::Fifo => NewKind::Fifo,
            FileType::Socket => NewKind::Socket,
        }
    }
}

impl Source<'_> {
    /// The names in the local directory and in the manifest, sorted.
    pub(super) fn names(&self, path: &[u8], local: Option<&Path>) -> Result<BTreeSet<Vec<u8>>, FillError> {
        let mut names: BTreeSet<Vec<u8>> = self.manifest.names_in(path).map(<[u8]>::to_vec).collect();
        if let Some(local) = local {
            let list = || {
                std::fs::read_dir(local)?
                    .map(|entry| Ok(entry?.file_name()))
                    .collect::<io::Result<Vec<OsString>>>()
            };
            let found = list().map_err(|error| FillError::Local(local.to_owned(), error))?;
            names.extend(found.into_iter().map(OsString::into_encoded_bytes));
        }
        Ok(names)
    }

    /// The entry at `path`, for the local file `local` or for the manifest alone.
    pub(super) fn entry(&self, path: Vec<u8>, local: Option<PathBuf>) -> Result<SourceEntry, FillError> {
        let line = self.manifest.of(&path);
        let local = match local {
            None => None,
            Some(local) => match host::stat(&local, false) {
                Ok(found) => Some((local, found)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(FillError::Local(local, error)),
            },
        };
        // The root may be a link to a directory.
        let local = match local {
            Some((local, found)) if path == b"/" && found.attr.kind == FileType::Symlink => {
                let found =
                    host::stat(&local, true).map_err(|error| FillError::Local(local.clone(), error))?;
                Some((local, found))
            }
            other => other,
        };
        match local {
            Some((local, found)) => self.thing_of(path, line, local, found),
            None => self.thing_by_line(path, line),
        }
    }

    fn thing_of(
        &self,
        path: Vec<u8>,
        line: &Line,
        local: PathBuf,
        found: Stat,
    ) -> Result<SourceEntry, FillError> {
        let attr = &found.attr;
        let has = attr.kind;
        let kind = line.kind.unwrap_or(has);
        if (kind == FileType::Directory) != (has == FileType::Directory) {
            let why = format!("{} has another type", local.display());
            return Err(FillError::Line(line.number, why));
        }
        let target = match (kind == has, kind) {
            (true, FileType::Symlink) if line.target.is_empty() => std::fs::read_link(&local)
                .map_err(|error| FillError::Local(local.clone(), error))?
                .into_os_string()
                .into_encoded_bytes(),
            _ => line.target.clone(),
        };
        let device = if line.kind.is_some() { line.device } else { (attr.rdev_major, attr.rdev_minor) };
        Ok(SourceEntry {
            path,
            kind,
            permissions: line.permissions.unwrap_or(attr.permissions),
            uid: line.uid.unwrap_or(attr.uid),
            gid: line.gid.unwrap_or(attr.gid),
            mtime: self.time.latest.map_or(attr.mtime, |latest| attr.mtime.min(latest)),
            device,
            target,
            local: (kind == has).then_some((local, found)),
        })
    }

    fn thing_by_line(&self, path: Vec<u8>, line: &Line) -> Result<SourceEntry, FillError> {
        let missing = |what: &str| {
            FillError::Line(line.number, format!("the directory lacks it, so the line needs a {what}"))
        };
        let kind = line.kind.ok_or_else(|| missing("TYPE"))?;
        let permissions = match kind {
            FileType::Symlink => line.permissions.unwrap_or(0o777),
            _ => line.permissions.ok_or_else(|| missing("MODE"))?,
        };
        Ok(SourceEntry {
            path,
            local: None,
            kind,
            permissions,
            uid: line.uid.unwrap_or(0),
            gid: line.gid.unwrap_or(0),
            mtime: self.time.now,
            device: line.device,
            target: line.target.clone(),
        })
    }

    /// Calls `each` for everything below `/`, directories before their contents: the input of the
    /// image's identity.
    pub(super) fn each(&self, each: &mut dyn FnMut(&SourceEntry)) -> Result<(), FillError> {
        let mut left = vec![(b"/".to_vec(), Some(self.directory.to_owned()))];
        while let Some((path, local)) = left.pop() {
            for name in self.names(&path, local.as_deref())? {
                let local = local.as_ref().map(|local| local.join(os_str(&name)));
                let entry = self.entry(join(&path, &name), local)?;
                each(&entry);
                if entry.kind == FileType::Directory {
                    left.push((entry.path, entry.local.map(|(local, _)| local)));
                }
            }
        }
        Ok(())
    }
}
