//! `Image`: an open file system. Every call leaves the GIL to others while it works.

use crate::errors::{at, of_image};
use crate::file::{File, read_all};
use crate::find::Search;
use crate::source;
use crate::stat::{Stat, timestamp};
use crate::table::Table;
use crate::tree::{Entry, Noted, Tree, list};
use crate::walk::{CALLER, Fs, Node, parent, walk};
use dentree_blockdev::Access;
use dentree_ext4::{Ext4, Options};
use dentree_vfs::*;
use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// An ext2, ext3 or ext4 image: a path, an address, or an object with `read` and `seek`.
#[pyclass(frozen, subclass, module = "dentree._dentree")]
pub(crate) struct Image {
    /// `None` after `close`. Calls under way keep it.
    fs: RwLock<Option<Fs>>,
    name: String,
    writable: bool,
}

impl Image {
    pub(crate) fn fs(&self) -> PyResult<Fs> {
        let fs = self.fs.read().unwrap_or_else(PoisonError::into_inner).clone();
        fs.ok_or_else(|| PyValueError::new_err("the image is closed"))
    }

    /// Does `work` on a path without the GIL.
    fn on<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        work: impl FnOnce(&Fs, &[u8]) -> Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.fs()?;
        let path = path.as_os_str().as_bytes();
        py.detach(|| work(&fs, path)).map_err(|error| at(path, &error))
    }

    /// Does `work` on the inode of a path.
    fn on_node<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        follow: bool,
        work: impl FnOnce(&Fs, &Node) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.on(py, path, |fs, path| work(fs, &walk(fs, path, follow)?))
    }

    fn set(&self, py: Python<'_>, path: &Path, follow: bool, changes: SetAttr) -> PyResult<()> {
        self.on_node(py, path, follow, |fs, node| fs.set_attr(CALLER, node, &changes))
    }
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (source, *, partition=None, offset=None, overlay=None, writable=false,
                        endpoint=None, cache_dir=None, cache_size=1 << 30))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        partition: Option<u32>,
        offset: Option<u64>,
        overlay: Option<PathBuf>,
        writable: bool,
        endpoint: Option<String>,
        cache_dir: Option<PathBuf>,
        cache_size: u64,
    ) -> PyResult<Self> {
        let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
        let how = dentree_source::Options { access, endpoint, cache_dir, cache_size, overlay };
        let (device, name) = source::device(source, &how)?;
        let (fs, notices) = py.detach(|| {
            let part = source::part(device, partition, offset, &name)?;
            let failed = |error: Error| of_image(&name, error.errno(), error);
            let options = Options { writable, ..Options::default() };
            let fs = Ext4::open(part, options).map_err(|error| failed(error.into()))?;
            let notices: Vec<_> = fs.notices().iter().map(|notice| format!("{name}: {notice:?}")).collect();
            let fs = Vfs::new(fs).map_err(failed)?;
            PyResult::Ok((Arc::new(fs), notices))
        })?;
        for notice in notices {
            let notice = CString::new(notice).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &notice, 1)?;
        }
        Ok(Image { fs: RwLock::new(Some(fs)), name, writable })
    }

    /// What it was opened from.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether changes are allowed.
    #[getter]
    fn writable(&self) -> bool {
        self.writable
    }

    /// Commits all changes, and ends every use but that of files which are open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = py.detach(|| match fs {
            Some(fs) if self.writable => fs.fs().close().map_err(Error::from),
            _ => Ok(()),
        });
        closed.map_err(|error| of_image(&self.name, error.errno(), error))
    }

    /// Returns when all changes are on stable storage.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.on(py, Path::new("/"), |fs, _| fs.sync())
    }

    /// What `os.stat` returns of a file.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn stat<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let attr = self.on_node(py, &path, follow_symlinks, |_, node| Ok(node.attr()))?;
        Stat::new(py)?.of(&attr)
    }

    /// What `stat` returns of each path, or the `OSError` of one that fails. One walk for all.
    #[pyo3(signature = (paths, *, follow_symlinks=true))]
    fn stat_many<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<PathBuf>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let stat = Stat::new(py)?;
        let each = |_: &Fs, node: &Node| Ok(node.attr());
        self.many(py, &paths, follow_symlinks, each, |attr| stat.of(&attr))
    }

    /// The content of each path, or the `OSError` of one that fails. One walk for all.
    fn read_many<'py>(&self, py: Python<'py>, paths: Vec<PathBuf>) -> PyResult<Bound<'py, PyList>> {
        let each = |fs: &Fs, node: &Node| read_all(fs, node);
        self.many(py, &paths, true, each, |content| Ok(PyBytes::new(py, &content).into_any()))
    }

    /// The content of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.on_node(py, &path, true, read_all)?))
    }

    /// Opens a file for positioned reads and writes; `create` makes it where it is missing.
    #[pyo3(signature = (path, *, create=false, exclusive=false, mode=0o666))]
    fn open(
        &self,
        py: Python<'_>,
        path: PathBuf,
        create: bool,
        exclusive: bool,
        mode: u16,
    ) -> PyResult<File> {
        let node = self.on(py, &path, |fs, path| match (create, exclusive) {
            (false, _) => walk(fs, path, true),
            (true, false) => match walk(fs, path, true) {
                Err(Error::NotFound) => {
                    let last = parent(fs, path)?;
                    Ok(fs.open_or_create(CALLER, &last.dir, last.name, mode)?.0)
                }
                found => found,
            },
            (true, true) => {
                let last = parent(fs, path)?;
                fs.create(CALLER, &last.dir, last.name, NewKind::Regular, mode)
            }
        })?;
        if node.is_dir() {
            return Err(at(path.as_os_str().as_bytes(), &Error::IsADirectory));
        }
        Ok(File::new(self.fs()?, node, path))
    }

    /// Names, inode numbers and types (as `find -type` has them) of a directory.
    fn listdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u64, char)>> {
        self.on_node(py, &path, true, |fs, dir| {
            let mut damage = None;
            let listed = list(fs, dir.ino(), &mut |error| damage = Some(error))?;
            if let Some(error) = damage {
                return Err(error);
            }
            let mut names = Vec::with_capacity(listed.len());
            for (name, ino, kind) in listed {
                let kind = kind.map_or_else(|| fs.attr(ino).map(|attr| attr.kind), Ok)?;
                names.push((OsString::from_vec(name), ino.0, kind.letter()));
            }
            Ok(names)
        })
    }

    /// An iterator over lists of what is below a directory, `depth` levels of it:
    /// `(path, ino, type, stat or None)`.
    #[pyo3(signature = (path, *, stat=false, depth=None))]
    fn tree(slf: &Bound<'_, Self>, path: PathBuf, stat: bool, depth: Option<u32>) -> PyResult<Below> {
        let this = slf.get();
        let top = this.on_node(slf.py(), &path, true, |_, node| {
            if node.is_dir() { Ok(node.ino()) } else { Err(Error::NotADirectory) }
        })?;
        let fs = this.fs()?;
        let search = Search::levels(depth.unwrap_or(u32::MAX));
        let tree = Tree::new(path.into_os_string().into_vec(), top, search, stat);
        Ok(Below { fs, tree: tree.into(), noted: Noted::default() })
    }

    /// An iterator over lists of the paths at and below `path` that an expression of `dentree find`
    /// finds, given as its words.
    fn search(&self, py: Python<'_>, path: PathBuf, words: Vec<OsString>) -> PyResult<Found> {
        let fs = self.fs()?;
        let search = py.detach(|| Search::compile(&fs, &words))?;
        let noted = Noted::default();
        let path = path.into_os_string().into_vec();
        let found = py.detach(|| {
            let top = walk(&fs, &path, false)?;
            Ok(Tree::with_top(&fs, path.clone(), &top, search, &noted))
        });
        let (top, tree) = found.map_err(|error: Error| at(&path, &error))?;
        Ok(Found { top: Mutex::new(top), below: Below { fs, tree: tree.into(), noted } })
    }

    /// What is below a directory as an Arrow table, one row a name. `columns` are those that are
    /// wanted, in their order; some are read only if they are among them. `words` are an expression
    /// of `dentree find` that names have to hold for.
    fn scan(
        &self,
        py: Python<'_>,
        path: PathBuf,
        columns: Option<Vec<String>>,
        words: Vec<OsString>,
    ) -> PyResult<Table> {
        let fs = self.fs()?;
        // Told at once, not by the first batch.
        py.detach(|| Search::compile(&fs, &words))?;
        Table::new(fs, &self.name, path.into_os_string().into_vec(), columns, words)
    }

    /// The target of a symbolic link.
    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.on_node(py, &path, false, |fs, node| fs.readlink(node)).map(OsString::from_vec)
    }

    /// All extended attributes, by full name.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn xattrs<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let found = self.on_node(py, &path, follow_symlinks, |fs, node| {
            let names = fs.listxattr(node)?.into_iter();
            names.map(|name| Ok((fs.getxattr(node, &name)?, name))).collect::<Result<Vec<_>>>()
        })?;
        let all = PyDict::new(py);
        for (value, name) in found {
            all.set_item(OsString::from_vec(name), PyBytes::new(py, &value))?;
        }
        Ok(all)
    }

    /// Sets an extended attribute; `None` removes it.
    #[pyo3(signature = (path, name, value, *, follow_symlinks=true))]
    fn set_xattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        value: Option<Vec<u8>>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let name = name.as_bytes();
        self.on_node(py, &path, follow_symlinks, |fs, node| match &value {
            Some(value) => fs.setxattr(CALLER, node, name, value, SetXattr::Any),
            None => fs.removexattr(CALLER, node, name),
        })
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode=0o777))]
    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u16) -> PyResult<()> {
        self.on(py, &path, |fs, path| {
            let last = parent(fs, path)?;
            fs.create(CALLER, &last.dir, last.name, NewKind::Directory, mode).map(drop)
        })
    }

    /// Makes a symbolic link.
    fn symlink(&self, py: Python<'_>, target: OsString, path: PathBuf) -> PyResult<()> {
        self.on(py, &path, |fs, path| {
            let last = parent(fs, path)?;
            let kind = NewKind::Symlink(target.as_bytes());
            fs.create(CALLER, &last.dir, last.name, kind, 0o777).map(drop)
        })
    }

    /// Makes another name of a file.
    fn link(&self, py: Python<'_>, path: PathBuf, new: PathBuf) -> PyResult<()> {
        self.on(py, &path, |fs, path| {
            let node = walk(fs, path, false)?;
            let last = parent(fs, new.as_os_str().as_bytes())?;
            fs.link(CALLER, &node, &last.dir, last.name)
        })
    }

    /// Removes a name of a file.
    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.on(py, &path, |fs, path| {
            let last = parent(fs, path)?;
            fs.unlink(CALLER, &last.dir, last.name)
        })
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.on(py, &path, |fs, path| {
            let last = parent(fs, path)?;
            fs.rmdir(CALLER, &last.dir, last.name)
        })
    }

    /// Gives a file or directory another name.
    #[pyo3(signature = (old, new, *, replace=true))]
    fn rename(&self, py: Python<'_>, old: PathBuf, new: PathBuf, replace: bool) -> PyResult<()> {
        let on_existing = if replace { OnExisting::Replace } else { OnExisting::Fail };
        self.on(py, &old, |fs, old| {
            let (old, new) = (parent(fs, old)?, parent(fs, new.as_os_str().as_bytes())?);
            fs.rename(CALLER, &old.dir, old.name, &new.dir, new.name, on_existing).map(drop)
        })
    }

    /// Sets the permission bits.
    #[pyo3(signature = (path, mode, *, follow_symlinks=true))]
    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u16, follow_symlinks: bool) -> PyResult<()> {
        let changes = SetAttr { permissions: Some(mode & 0o7777), ..SetAttr::default() };
        self.set(py, &path, follow_symlinks, changes)
    }

    /// Sets owner and group.
    #[pyo3(signature = (path, uid=None, gid=None, *, follow_symlinks=true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.set(py, &path, follow_symlinks, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets times of access and modification, in nanoseconds since 1970.
    #[pyo3(signature = (path, atime_ns, mtime_ns, *, follow_symlinks=true))]
    fn utime(
        &self,
        py: Python<'_>,
        path: PathBuf,
        atime_ns: i128,
        mtime_ns: i128,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let time = |nanos| timestamp(nanos).map(SetTime::At);
        let (atime, mtime) = (Some(time(atime_ns)?), Some(time(mtime_ns)?));
        self.set(py, &path, follow_symlinks, SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// Sizes and free counts as `os.statvfs` has them:
    /// `(bsize, blocks, bfree, bavail, files, ffree, namemax)`.
    fn statvfs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let stat = self.on(py, Path::new("/"), |fs, _| fs.statfs())?;
        let FsStat {
            block_size, blocks, blocks_free, blocks_available, inodes, inodes_free, name_max, ..
        } = stat;
        (block_size, blocks, blocks_free, blocks_available, inodes, inodes_free, name_max).into_pyobject(py)
    }
}

impl Image {
    /// Walks to many paths at once, and makes an object of what each gives, or of its error.
    fn many<'py, T: Send>(
        &self,
        py: Python<'py>,
        paths: &[PathBuf],
        follow: bool,
        each: impl Fn(&Fs, &Node) -> Result<T> + Send + Sync,
        object: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let fs = self.fs()?;
        let options = if follow { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
        let bytes: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
        let found: Vec<Result<T>> = py.detach(|| {
            let nodes = fs.walk_many(CALLER, fs.root(), &bytes, options);
            nodes.into_iter().map(|node| each(&fs, &node?)).collect()
        });
        let objects = found.into_iter().zip(&bytes).map(|(found, path)| match found {
            Ok(found) => object(found),
            Err(error) => Ok(at(path, &error).into_value(py).into_bound(py).into_any()),
        });
        PyList::new(py, objects.collect::<PyResult<Vec<_>>>()?)
    }
}

/// What is below a directory.
#[pyclass(module = "dentree._dentree")]
pub(crate) struct Below {
    fs: Fs,
    tree: Mutex<Tree>,
    noted: Noted,
}

impl Below {
    /// What is found in the next directory. What is damaged is a warning.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Entry>>> {
        let entries = py.detach(|| {
            let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
            tree.next(&self.fs, &self.noted)
        });
        for (path, reason) in self.noted.take() {
            let message = CString::new(format!("{path}: {reason}")).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)?;
        }
        Ok(entries)
    }
}

#[pymethods]
impl Below {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(entries) = self.next(py)? else { return Ok(None) };
        let stat = Stat::new(py)?;
        let rows = entries.into_iter().map(|entry| {
            let stat = entry.attr.map(|attr| stat.of(&attr)).transpose()?;
            (OsString::from_vec(entry.path), entry.ino.0, entry.kind.letter(), stat).into_pyobject(py)
        });
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?).map(Some)
    }
}

/// Paths that a search finds.
#[pyclass(module = "dentree._dentree")]
pub(crate) struct Found {
    top: Mutex<Option<Entry>>,
    below: Below,
}

#[pymethods]
impl Found {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<OsString>>> {
        let path = |entry: Entry| OsString::from_vec(entry.path);
        if let Some(top) = self.top.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(Some(vec![path(top)]));
        }
        while let Some(entries) = self.below.next(py)? {
            if !entries.is_empty() {
                return Ok(Some(entries.into_iter().map(path).collect()));
            }
        }
        Ok(None)
    }
}
