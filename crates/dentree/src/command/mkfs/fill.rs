//! Fills a new file system from a directory and a manifest.
//!
//! One thread, in the byte order of names: the same tree gives the same image. The entries of a
//! directory are made before anything below them, so that their inodes are adjacent; its times are
//! set after all of them.

use super::fill_error::FillError;
use super::source::{Source, SourceEntry};
use crate::host::{os_str, read_xattrs};
use crate::local::{each_data, without_zeros};
use crate::path::join;
use dentree_vfs::{Error, FileSystem, FileType, NewInode, SetAttr, SetTime, SetXattr};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Granularity of holes: the largest block size made here.
const GRAIN: usize = 4096;

/// Receives progress.
pub(super) trait ProgressSink {
    /// `entries` more files and `bytes` more bytes are in the image.
    fn add(&self, entries: u64, bytes: u64);

    /// An attribute of `path` could not be set.
    fn lost(&self, path: &[u8], name: &[u8], error: &Error);
}

/// Copies the tree into the root of `fs`, and syncs.
pub(super) fn fill<F: FileSystem>(
    fs: &F,
    source: &Source<'_>,
    watch: &dyn ProgressSink,
    interrupted: &AtomicBool,
) -> Result<(), FillError> {
    let mut filler = Filler { fs, source, watch, interrupted, links: HashMap::new(), made: BTreeSet::new() };
    let at = |error| FillError::Image(b"/".to_vec(), error);
    let root = fs.load(fs.root()).map_err(at)?;
    filler.made.insert(b"/".to_vec());
    let mut left =
        vec![Directory { node: root, path: b"/".to_vec(), local: Some(source.directory.to_owned()) }];
    while let Some(directory) = left.pop() {
        let mut below = filler.directory(&directory)?;
        fs.evict(&directory.node);
        below.reverse();
        left.append(&mut below);
    }
    for (path, line) in source.manifest.lines() {
        if !filler.made.contains(path) {
            let why = "its directory does not exist; add a line for it";
            return Err(FillError::Line(line.number, why.to_owned()));
        }
    }
    for node in filler.links.values() {
        fs.evict(node);
    }
    fs.sync().map_err(at)
}

/// A directory of the image to fill.
struct Directory<N> {
    node: N,
    path: Vec<u8>,
    /// The local directory; `None` if only the manifest has it.
    local: Option<PathBuf>,
}

struct Filler<'a, F: FileSystem> {
    fs: &'a F,
    source: &'a Source<'a>,
    watch: &'a dyn ProgressSink,
    interrupted: &'a AtomicBool,
    /// Local inodes with several names, by device and inode number.
    links: HashMap<(u64, u64), Arc<F::Node>>,
    made: BTreeSet<Vec<u8>>,
}

impl<F: FileSystem> Filler<'_, F> {
    /// Makes the entries of a directory and sets its attributes; returns its subdirectories.
    fn directory(&mut self, directory: &Directory<F::Node>) -> Result<Vec<Directory<F::Node>>, FillError> {
        let mut below = Vec::new();
        for name in self.source.names(&directory.path, directory.local.as_deref())? {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(FillError::Interrupted);
            }
            let local = directory.local.as_ref().map(|local| local.join(os_str(&name)));
            let entry = self.source.entry(join(&directory.path, &name), local)?;
            let node = self.make(directory, &name, &entry)?;
            self.made.insert(entry.path.clone());
            self.watch.add(1, 0);
            if entry.kind == FileType::Directory {
                let local = entry.local.map(|(local, _)| local);
                below.extend(node.map(|node| Directory { node, path: entry.path, local }));
            }
        }
        let own = self.source.entry(directory.path.clone(), directory.local.clone())?;
        self.keep(&directory.node, &own)?;
        Ok(below)
    }

    /// Makes one entry with its content; returns the node of a directory.
    fn make(
        &mut self,
        directory: &Directory<F::Node>,
        name: &[u8],
        entry: &SourceEntry,
    ) -> Result<Option<F::Node>, FillError> {
        let at = |error| FillError::Image(entry.path.clone(), error);
        if entry.kind == FileType::Directory
            && let Some(found) = self.fs.lookup(&directory.node, name).map_err(at)?
        {
            // `lost+found` keeps its blocks.
            return self.fs.load(found.ino).map(Some).map_err(at);
        }
        let several = entry
            .local
            .as_ref()
            .filter(|(_, found)| found.attr.nlink > 1 && entry.kind != FileType::Directory);
        let key = several.map(|(_, found)| found.identity());
        if let Some(first) = key.and_then(|key| self.links.get(&key)) {
            return self.fs.link(&directory.node, name, first).map(|()| None).map_err(at);
        }
        let new = NewInode {
            kind: entry.new_kind(),
            permissions: entry.permissions,
            uid: entry.uid,
            gid: entry.gid,
            xattrs: &[],
        };
        let node = self.fs.create(&directory.node, name, &new).map_err(at)?;
        if entry.kind == FileType::Directory {
            return Ok(Some(node));
        }
        if let (FileType::Regular, Some((local, found))) = (entry.kind, &entry.local) {
            self.content(&node, entry, local, found.attr.size)?;
        }
        self.keep(&node, entry)?;
        match key {
            Some(key) => drop(self.links.insert(key, Arc::new(node))),
            None => self.fs.evict(&node),
        }
        Ok(None)
    }

    /// Copies content. Zeros become holes, whether or not they were: a copy of a directory often
    /// has other holes, and should give the same image.
    fn content(&self, node: &F::Node, entry: &SourceEntry, local: &Path, size: u64) -> Result<(), FillError> {
        let failed = |error| FillError::Local(local.to_owned(), error);
        let at = |error| FillError::Image(entry.path.clone(), error);
        let file = File::open(local).map_err(failed)?;
        let mut written = 0;
        let copied = each_data(&file, size, GRAIN as u64, &mut |offset, bytes| {
            if self.interrupted.load(Ordering::Relaxed) {
                return ControlFlow::Break(FillError::Interrupted);
            }
            self.watch.add(0, bytes.len() as u64);
            for run in without_zeros(bytes, GRAIN) {
                let start = offset + run.start as u64;
                match self.fs.write(node, start, &bytes[run.clone()]) {
                    Ok(len) if len == run.len() => written = start + len as u64,
                    Ok(_) => return ControlFlow::Break(at(Error::NoSpace)),
                    Err(error) => return ControlFlow::Break(at(error)),
                }
            }
            ControlFlow::Continue(())
        });
        if let ControlFlow::Break(stopped) = copied.map_err(failed)? {
            return Err(stopped);
        }
        if written < size {
            self.fs.set_attr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).map_err(at)?;
        }
        Ok(())
    }

    /// Sets attributes: the owner first, which would clear capabilities, then extended attributes,
    /// mode and times. The access time is that of modification: that of the local file says nothing
    /// about the image.
    fn keep(&self, node: &F::Node, entry: &SourceEntry) -> Result<(), FillError> {
        let at = |error| FillError::Image(entry.path.clone(), error);
        let owner = SetAttr { uid: Some(entry.uid), gid: Some(entry.gid), ..SetAttr::default() };
        self.fs.set_attr(node, &owner).map_err(at)?;
        if let Some((local, _)) = &entry.local {
            self.keep_xattrs(node, entry, local)?;
        }
        let time = Some(SetTime::At(entry.mtime));
        let changes = SetAttr {
            permissions: (entry.kind != FileType::Symlink).then_some(entry.permissions),
            atime: time,
            mtime: time,
            ..SetAttr::default()
        };
        self.fs.set_attr(node, &changes).map_err(at)
    }

    fn keep_xattrs(&self, node: &F::Node, entry: &SourceEntry, local: &Path) -> Result<(), FillError> {
        let read = read_xattrs(local).map_err(|error| FillError::Local(local.to_owned(), error))?;
        for (name, value) in read {
            if let Err(error) = self.fs.setxattr(node, &name, &value, SetXattr::Any) {
                self.watch.lost(&entry.path, &name, &error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::Manifest;
    use super::super::memory::{Held, Memory};
    use super::super::time::Time;
    use super::*;
    use dentree_vfs::Timestamp;
    use std::cell::{Cell, RefCell};
    use std::fs;
    use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

    #[derive(Default)]
    struct Heard {
        entries: Cell<u64>,
        bytes: Cell<u64>,
        lost: RefCell<Vec<Vec<u8>>>,
    }

    impl ProgressSink for Heard {
        fn add(&self, entries: u64, bytes: u64) {
            self.entries.set(self.entries.get() + entries);
            self.bytes.set(self.bytes.get() + bytes);
        }

        fn lost(&self, path: &[u8], _: &[u8], _: &Error) {
            self.lost.borrow_mut().push(path.to_vec());
        }
    }

    fn filled(
        directory: &Path,
        manifest: &str,
        room: u64,
        latest: Option<i64>,
    ) -> (Memory, Heard, Result<(), FillError>) {
        let manifest =
            Manifest::parse(manifest.as_bytes(), "m").unwrap_or_else(|problem| panic!("{problem:?}"));
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let time = Time { now: at(1000), latest: latest.map(at) };
        let (memory, heard) = (Memory::new(room), Heard::default());
        let source = Source { directory, manifest: &manifest, time };
        let done = fill(&memory, &source, &heard, &AtomicBool::new(false));
        (memory, heard, done)
    }

    fn held(memory: &Memory, path: &str) -> Held {
        memory.at(path).unwrap_or_else(|| panic!("{path} does not exist")).1
    }

    fn touch(path: &Path, seconds: u64) {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn content_modes_times_links_and_holes_are_those_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("sub/deep")).unwrap();
        fs::write(path("sub/file"), "hello").unwrap();
        fs::set_permissions(path("sub/file"), fs::Permissions::from_mode(0o4750)).unwrap();
        fs::hard_link(path("sub/file"), path("another")).unwrap();
        symlink("sub/file", path("link")).unwrap();
        let sparse = File::create(path("sparse")).unwrap();
        sparse.write_all_at(b"x", 8 << 20).unwrap();
        sparse.set_len(20 << 20).unwrap();
        touch(&path("sub/file"), 77);
        touch(&path("sub"), 88);
        let (memory, heard, done) = filled(dir.path(), "", 1 << 20, None);
        done.unwrap();
        let file = held(&memory, "/sub/file");
        assert_eq!(
            (file.content.as_slice(), file.permissions, file.mtime, file.links),
            (&b"hello"[..], 0o4750, 77, 2)
        );
        assert_eq!(memory.at("/another"), memory.at("/sub/file"));
        assert_eq!(held(&memory, "/link").target, b"sub/file");
        // The time is set after the entries are made.
        assert_eq!(held(&memory, "/sub").mtime, 88);
        let sparse = held(&memory, "/sparse");
        assert_eq!((sparse.size, sparse.content.get(8 << 20)), (20 << 20, Some(&b'x')));
        assert_eq!(sparse.written, 4096);
        assert_eq!(heard.entries.get(), 6);
        assert!((4101..1 << 20).contains(&heard.bytes.get()), "{} bytes were read", heard.bytes.get());
        assert!(held(&memory, "/lost+found").names.is_empty());
    }

    #[test]
    fn blocks_of_zeros_become_holes() {
        let dir = tempfile::tempdir().unwrap();
        let content = [vec![0; 4096], b"x".to_vec(), vec![0; 12_287], b"y".to_vec(), vec![0; 4096]].concat();
        fs::write(dir.path().join("file"), &content).unwrap();
        let (memory, _, done) = filled(dir.path(), "", 1 << 20, None);
        done.unwrap();
        let file = held(&memory, "/file");
        assert_eq!((file.written, file.size), (8192, content.len() as u64));
        assert!(content.starts_with(&file.content));
        assert!(without_zeros(&[0; 5000], GRAIN).is_empty());
        assert_eq!(without_zeros(&[1; 5000], GRAIN), [std::ops::Range { start: 0, end: 5000 }]);
    }

    #[test]
    fn the_manifest_adds_entries_and_changes_owners_and_modes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/shadow"), "secret").unwrap();
        let manifest = "/etc/shadow - 640 0 42\n/dev d 755 0 0\n/dev/tty c 620 0 5 5 1\n/dev/sda b 660 0 6 8 0\n\
                        /run l - 0 0 /var/run\n/fifo p 600 7 7\n* - - 3 4\n";
        let (memory, _, done) = filled(dir.path(), manifest, 1 << 20, None);
        done.unwrap();
        let shadow = held(&memory, "/etc/shadow");
        assert_eq!(
            (shadow.content.as_slice(), shadow.permissions, shadow.owner),
            (&b"secret"[..], 0o640, (0, 42))
        );
        assert_eq!((held(&memory, "/etc").owner, held(&memory, "/").owner), ((3, 4), (3, 4)));
        let (tty, sda) = (held(&memory, "/dev/tty"), held(&memory, "/dev/sda"));
        assert_eq!((tty.kind, tty.device, tty.owner), (Some(FileType::CharDevice), (5, 1), (0, 5)));
        assert_eq!((sda.kind, sda.device, sda.mtime), (Some(FileType::BlockDevice), (8, 0), 1000));
        assert_eq!(
            (held(&memory, "/run").target, held(&memory, "/fifo").kind),
            (b"/var/run".to_vec(), Some(FileType::Fifo))
        );
    }

    #[test]
    fn lines_that_fit_no_directory_are_refused_by_their_number() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        for (manifest, wrong) in [
            ("/file - 644 0 0\n/gone/x f 644 0 0\n", 2),
            ("/new - 644 0 0\n", 1),
            ("\n/new f - 0 0\n", 2),
            ("/file d 755 0 0\n", 1),
        ] {
            let (_, _, done) = filled(dir.path(), manifest, 1 << 20, None);
            assert!(
                matches!(done, Err(FillError::Line(number, _)) if number == wrong),
                "{manifest}: {done:?}"
            );
        }
    }

    #[test]
    fn a_full_file_system_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("large"), vec![1; 3000]).unwrap();
        let (_, _, done) = filled(dir.path(), "", 2000, None);
        assert!(matches!(done, Err(FillError::Image(path, Error::NoSpace)) if path == b"/large"));
    }

    #[test]
    fn times_after_the_epoch_of_the_source_become_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), "").unwrap();
        fs::write(dir.path().join("new"), "").unwrap();
        touch(&dir.path().join("old"), 5);
        let (memory, _, done) = filled(dir.path(), "", 0, Some(1000));
        done.unwrap();
        assert_eq!((held(&memory, "/old").mtime, held(&memory, "/new").mtime), (5, 1000));
    }
}
