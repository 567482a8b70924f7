//! A local tree. Each step starts at an open directory and follows no link.

use super::{next_data, own};
use crate::any_tree::digest::Content;
use crate::any_tree::{Facts, Source};
use crate::progress::Progress;
use crate::report::{Problem, Report};
use crate::tree::{Entry, Listing};
use dentree_vfs::{FileType, Ino, Timestamp};
use rustix::fs::{AtFlags, Dir, FileType as Kind, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) struct Local<'a> {
    report: &'a Report,
    base: &'a Path,
    progress: &'a Progress,
}

/// A file by its name in an open directory.
pub(crate) struct LocalFile {
    stat: Stat,
    kind: FileType,
    /// The directory of its name; `None` for the root of the tree.
    parent: Option<Arc<LocalFile>>,
    name: Vec<u8>,
    /// Open for directories.
    fd: Option<OwnedFd>,
}

impl LocalFile {
    fn fd(&self) -> io::Result<&OwnedFd> {
        self.fd.as_ref().ok_or_else(|| Errno::NOTDIR.into())
    }

    /// A path for calls that take no descriptor: only its last component may be a link, which those
    /// calls do not follow.
    fn path(&self) -> io::Result<PathBuf> {
        Ok(match &self.parent {
            Some(parent) => own::path(parent.fd()?.as_fd())?.join(OsStr::from_bytes(&self.name)),
            None => own::path(self.fd()?.as_fd())?.join("."),
        })
    }

    fn parent(&self) -> io::Result<&OwnedFd> {
        self.parent.as_ref().ok_or(Errno::INVAL)?.fd()
    }
}

impl<'a> Local<'a> {
    pub(crate) fn new(report: &'a Report, base: &'a Path, progress: &'a Progress) -> Self {
        Local { report, base, progress }
    }

    /// The root of the tree, a user's argument: links are followed.
    pub(crate) fn root(&self) -> Result<LocalFile, Problem> {
        let open = || -> io::Result<LocalFile> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(self.base, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&fd)?;
            Ok(LocalFile { stat, kind: FileType::Directory, parent: None, name: Vec::new(), fd: Some(fd) })
        };
        open().map_err(|error| Problem::local(self.base.as_os_str().as_bytes(), &error))
    }

    /// The file at a path such as `./a/b` below `root`. Links in the middle resolve with `root` as
    /// `/`, as in an image; a link at the end is not followed.
    pub(crate) fn listed(&self, root: &LocalFile, path: &[u8]) -> Option<LocalFile> {
        let at = path.iter().rposition(|&byte| byte == b'/').map_or(path.len(), |slash| slash);
        let (above, name) = match path.get(at + 1..) {
            Some(name) if name != b".." => (&path[..at], Some(name)),
            _ => (path, None),
        };
        let open = || -> io::Result<Arc<LocalFile>> {
            let fd = own::open_in_root(root.fd()?.as_fd(), above)?;
            let stat = rustix::fs::fstat(&fd)?;
            let kind = FileType::Directory;
            Ok(Arc::new(LocalFile { stat, kind, parent: None, name: Vec::new(), fd: Some(fd) }))
        };
        let dir = self.or_report(path, open())?;
        match name {
            Some(name) => self.open(&dir, Entry { name, ino: Ino(0), kind: None }, path),
            None => Arc::into_inner(dir),
        }
    }

    fn or_report<T>(&self, path: &[u8], result: io::Result<T>) -> Option<T> {
        let path = || self.base.join(OsStr::from_bytes(path.strip_prefix(b"./").unwrap_or(path)));
        result
            .map_err(|error| self.report.problem(&Problem::local(path().as_os_str().as_bytes(), &error)))
            .ok()
    }
}

impl Source for Local<'_> {
    type File = LocalFile;

    fn list(&self, dir: &LocalFile, path: &[u8]) -> Listing {
        let mut listing = Listing::default();
        let mut read = || -> io::Result<()> {
            for entry in Dir::read_from(dir.fd()?)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                let kind = match file_type(entry.file_type()) {
                    Some(kind) => kind,
                    None => {
                        let stat = rustix::fs::statat(dir.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
                        file_type(Kind::from_raw_mode(stat.st_mode)).ok_or(Errno::INVAL)?
                    }
                };
                listing.push(Entry { name, ino: Ino(entry.ino()), kind: Some(kind) });
            }
            Ok(())
        };
        let read = read();
        self.or_report(path, read);
        listing
    }

    fn open(&self, dir: &Arc<LocalFile>, entry: Entry<'_>, path: &[u8]) -> Option<LocalFile> {
        let open = || -> io::Result<LocalFile> {
            let stat = rustix::fs::statat(dir.fd()?, entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = file_type(Kind::from_raw_mode(stat.st_mode)).ok_or(Errno::INVAL)?;
            let mut file =
                LocalFile { stat, kind, parent: Some(dir.clone()), name: entry.name.into(), fd: None };
            if kind == FileType::Directory {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                file.fd = Some(rustix::fs::openat(dir.fd()?, entry.name, flags, Mode::empty())?);
            }
            Ok(file)
        };
        self.or_report(path, open())
    }

    fn facts(&self, file: &LocalFile) -> Facts {
        let stat = &file.stat;
        Facts {
            kind: file.kind,
            uid: stat.st_uid,
            gid: stat.st_gid,
            // The kernel reports no negative sizes.
            size: stat.st_size as u64,
            mtime: Timestamp { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
            #[allow(clippy::unnecessary_cast, reason = "some systems have fewer bits")]
            permissions: (stat.st_mode & 0o7777) as u32,
            #[allow(clippy::unnecessary_cast, reason = "some systems have fewer bits")]
            nlink: stat.st_nlink as u64,
            rdev: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        }
    }

    fn target(&self, file: &LocalFile, path: &[u8]) -> Option<Vec<u8>> {
        let read = || -> io::Result<Vec<u8>> {
            Ok(rustix::fs::readlinkat(file.parent()?, &*file.name, Vec::new())?.into_bytes())
        };
        self.or_report(path, read())
    }

    fn xattrs(&self, file: &LocalFile, path: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let read = || -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
            let at = file.path()?;
            let names = match grow(|buf| rustix::fs::llistxattr(&at, buf)) {
                Err(Errno::OPNOTSUPP) => Vec::new(),
                names => names?,
            };
            let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
            names
                .map(|name| Ok((name.to_vec(), grow(|buf| rustix::fs::lgetxattr(&at, name, buf))?)))
                .collect()
        };
        self.or_report(path, read())
    }

    fn content(&self, file: &LocalFile, path: &[u8]) -> Option<blake3::Hash> {
        let read = || -> io::Result<blake3::Hash> {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(file.parent()?, &*file.name, flags, Mode::empty())?);
            sum_up(&file, self.progress)
        };
        self.or_report(path, read())
    }

    fn progress(&self) -> &Progress {
        self.progress
    }
}

fn sum_up(file: &File, progress: &Progress) -> io::Result<blake3::Hash> {
    let mut content = Content::new();
    let mut offset = 0;
    loop {
        let Some(Range { start, end }) = next_data(file, offset)? else { return Ok(content.finish()) };
        content.data(start, end, |offset, buf| {
            let len = read_full(file, offset, buf)?;
            progress.add(0, len as u64);
            Ok::<_, io::Error>(len)
        })?;
        if end == u64::MAX {
            return Ok(content.finish());
        }
        offset = end;
    }
}

/// Reads until `buf` is full or the file ends.
fn read_full(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match file.read_at(&mut buf[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Calls `call` with growing buffers until the result fits.
fn grow(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 256];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() < 1 << 24 => buf.resize(buf.len() * 8, 0),
            Err(error) => return Err(error),
        }
    }
}

fn file_type(kind: Kind) -> Option<FileType> {
    Some(match kind {
        Kind::RegularFile => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::Unknown => return None,
    })
}
