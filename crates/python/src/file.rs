//! `File`: an open file, read and written at positions.

use crate::errors::at;
use crate::walk::{CALLER, Fs, Node};
use dentree_vfs::{Durability, Error, Result, SetAttr};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An open file; `dentree.ImagePath.open` makes a file object of it.
#[pyclass(frozen, module = "dentree._dentree")]
pub(crate) struct File {
    fs: Fs,
    node: Node,
    path: PathBuf,
}

impl File {
    pub(crate) fn new(fs: Fs, node: Node, path: PathBuf) -> Self {
        File { fs, node, path }
    }

    fn on<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Fs, &Node) -> Result<T> + Send) -> PyResult<T> {
        py.detach(|| work(&self.fs, &self.node)).map_err(|error| at(self.path.as_os_str().as_bytes(), &error))
    }
}

#[pymethods]
impl File {
    /// Its length in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.node.attr().size
    }

    /// Up to `count` bytes at `offset`; fewer only at the end.
    fn pread<'py>(&self, py: Python<'py>, count: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.node.attr().size.saturating_sub(offset);
        let mut bytes = vec![0; count.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let read = self.on(py, |fs, node| read_full(fs, node, offset, &mut bytes))?;
        Ok(PyBytes::new(py, &bytes[..read]))
    }

    /// Writes all of `data` at `offset`, or at the end where that is `None`; the position after it.
    #[pyo3(signature = (data, offset))]
    fn pwrite(&self, py: Python<'_>, data: &[u8], offset: Option<u64>) -> PyResult<u64> {
        self.on(py, |fs, node| {
            let (offset, written) = match offset {
                Some(offset) => (offset, 0),
                None => fs.append(CALLER, node, data)?,
            };
            write_full(fs, node, offset + written as u64, &data[written..])
        })
    }

    /// Makes it `size` bytes long.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.on(py, |fs, node| fs.set_attr(CALLER, node, &changes))
    }

    /// Returns when it is on stable storage.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        self.on(py, |fs, node| fs.fsync(node, Durability::Full))
    }
}

/// Fills `buf`, up to the end of the file.
fn read_full(fs: &Fs, node: &Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match fs.read(node, offset + filled as u64, &mut buf[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Writes all; the position after it.
fn write_full(fs: &Fs, node: &Node, mut offset: u64, mut data: &[u8]) -> Result<u64> {
    while !data.is_empty() {
        let written = fs.write(CALLER, node, offset, data)?;
        if written == 0 {
            return Err(Error::NoSpace);
        }
        offset += written as u64;
        data = &data[written..];
    }
    Ok(offset)
}

/// The whole content. Grows with what is read: a damaged size takes no memory.
pub(crate) fn read_all(fs: &Fs, node: &Node) -> Result<Vec<u8>> {
    const PIECE: usize = 4 << 20;
    let mut content = Vec::new();
    loop {
        let before = content.len();
        let left = node.attr().size.saturating_sub(before as u64);
        let piece = PIECE.min(usize::try_from(left).unwrap_or(PIECE)).max(1);
        content.resize(before + piece, 0);
        let read = fs.read(node, before as u64, &mut content[before..])?;
        content.truncate(before + read);
        if read == 0 {
            return Ok(content);
        }
    }
}
