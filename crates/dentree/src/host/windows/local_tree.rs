//! A local tree, by its paths.

use super::{kind_of, os_str, stat};
use crate::any_tree::digest::Content;
use crate::any_tree::{Facts, Source};
use crate::progress::Progress;
use crate::report::{Problem, Report};
use crate::tree::{Entry, Listing};
use dentree_blockdev::FileExt;
use dentree_vfs::{Attr, FileType, Ino};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) struct Local<'a> {
    report: &'a Report,
    base: &'a Path,
    progress: &'a Progress,
}

/// A file by its path.
pub(crate) struct LocalFile {
    path: PathBuf,
    attr: Attr,
}

impl<'a> Local<'a> {
    pub(crate) fn new(report: &'a Report, base: &'a Path, progress: &'a Progress) -> Self {
        Local { report, base, progress }
    }

    /// The root of the tree, a user's argument: links are followed.
    pub(crate) fn root(&self) -> Result<LocalFile, Problem> {
        let failed = |error: io::Error| Problem::local(self.base.as_os_str().as_encoded_bytes(), &error);
        let attr = stat(self.base, true).map_err(failed)?.attr;
        if attr.kind != FileType::Directory {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(LocalFile { path: self.base.to_owned(), attr })
    }

    /// The file at a path such as `./a/b` below `root`. A link or `..` in the middle is refused:
    /// it could lead out of the tree.
    pub(crate) fn listed(&self, root: &LocalFile, path: &[u8]) -> Option<LocalFile> {
        let open = || {
            let mut file = LocalFile { path: root.path.clone(), attr: root.attr };
            for name in path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
                if name == b".." || file.attr.kind == FileType::Symlink {
                    let message = "a link or .. above it; name it without";
                    return Err(io::Error::new(io::ErrorKind::Unsupported, message));
                }
                file = below(&file, name)?;
            }
            Ok(file)
        };
        self.or_report(path, open())
    }

    fn or_report<T>(&self, path: &[u8], result: io::Result<T>) -> Option<T> {
        let path = || self.base.join(os_str(path.strip_prefix(b"./").unwrap_or(path)));
        let problem = |error| Problem::local(path().as_os_str().as_encoded_bytes(), &error);
        result.map_err(|error| self.report.problem(&problem(error))).ok()
    }
}

fn below(dir: &LocalFile, name: &[u8]) -> io::Result<LocalFile> {
    let path = dir.path.join(os_str(name));
    let attr = stat(&path, false)?.attr;
    Ok(LocalFile { path, attr })
}

impl Source for Local<'_> {
    type File = LocalFile;

    fn list(&self, dir: &LocalFile, path: &[u8]) -> Listing {
        let mut listing = Listing::default();
        let mut read = || -> io::Result<()> {
            for entry in fs::read_dir(&dir.path)? {
                let entry = entry?;
                let (name, kind) = (entry.file_name(), kind_of(entry.file_type()?));
                listing.push(Entry { name: name.as_encoded_bytes(), ino: Ino(0), kind: Some(kind) });
            }
            Ok(())
        };
        let read = read();
        self.or_report(path, read);
        listing
    }

    fn open(&self, dir: &Arc<LocalFile>, entry: Entry<'_>, path: &[u8]) -> Option<LocalFile> {
        self.or_report(path, below(dir, entry.name))
    }

    fn facts(&self, file: &LocalFile) -> Facts {
        let attr = &file.attr;
        Facts {
            kind: attr.kind,
            permissions: attr.permissions.into(),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime: attr.mtime,
            nlink: attr.nlink.into(),
            rdev: (0, 0),
        }
    }

    fn target(&self, file: &LocalFile, path: &[u8]) -> Option<Vec<u8>> {
        let target = fs::read_link(&file.path).map(|target| target.into_os_string().into_encoded_bytes());
        self.or_report(path, target)
    }

    fn xattrs(&self, _: &LocalFile, _: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        Some(Vec::new())
    }

    fn content(&self, file: &LocalFile, path: &[u8]) -> Option<blake3::Hash> {
        let read = || -> io::Result<blake3::Hash> {
            let file = File::open(&file.path)?;
            let mut content = Content::new();
            content.data(0, u64::MAX, |offset, buf| {
                let len = read_full(&file, offset, buf)?;
                self.progress.add(0, len as u64);
                Ok::<_, io::Error>(len)
            })?;
            Ok(content.finish())
        };
        self.or_report(path, read())
    }

    fn progress(&self) -> &Progress {
        self.progress
    }
}

/// Reads until `buf` is full or the file ends.
fn read_full(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match file.read_at(&mut buf[len..], offset + len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}
