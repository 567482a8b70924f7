//! Where an image comes from: a path, an address, or an object of Python's.

use crate::errors::of_image;
use dentree_blockdev::{Access, BlockDevice, Choice, FileDevice, check_range, locate};
use dentree_source::{Options, open, open_file, scheme};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Opens what `source` names, and its name for messages.
pub(crate) fn device(source: &Bound<'_, PyAny>, how: &Options) -> PyResult<(Arc<dyn BlockDevice>, String)> {
    let py = source.py();
    if source.hasattr("seek")? && source.hasattr("read")? {
        if how.access == Access::ReadWrite {
            return Err(PyTypeError::new_err("an image in a Python object is only read: give a path"));
        }
        let name = source.repr()?.to_string();
        return Ok((Arc::new(ObjectDevice::new(source)?), name));
    }
    let path: PathBuf = source.extract()?;
    let name = path.to_string_lossy().into_owned();
    let opened = py.detach(|| match path.to_str().filter(|name| scheme(name).is_some()) {
        Some(address) => open(address, how),
        None => open_file(|access| FileDevice::open(&path, access), how),
    });
    let device = opened.map_err(|error| of_image(&name, errno(&path, &error), error))?;
    Ok((device, name))
}

/// The number that says most: whether there is such a file.
fn errno(path: &Path, error: &dentree_source::Error) -> Errno {
    if error.is_unsupported() {
        return Errno::OPNOTSUPP;
    }
    let is_local = path.to_str().is_none_or(|name| scheme(name).is_none());
    match std::fs::metadata(path) {
        Err(error) if is_local => Errno::from_io_error(&error).unwrap_or(Errno::IO),
        _ => Errno::IO,
    }
}

/// The part of a device with the file system.
pub(crate) fn part(
    device: Arc<dyn BlockDevice>,
    partition: Option<u32>,
    offset: Option<u64>,
    name: &str,
) -> PyResult<Arc<dyn BlockDevice>> {
    let choice = match (partition, offset) {
        (Some(number), _) => Choice::Partition(number),
        (None, Some(offset)) => Choice::Offset(offset),
        (None, None) => Choice::Auto,
    };
    match locate(device, choice) {
        Ok(part) => Ok(Arc::new(part)),
        Err(error) => Err(of_image(name, Errno::INVAL, error)),
    }
}

/// A file object of Python's with `seek` and `read`.
struct ObjectDevice {
    file: Py<PyAny>,
    size: u64,
    /// Held over `seek` and `read`. Always taken without the GIL, which is taken behind it.
    position: Mutex<()>,
}

impl ObjectDevice {
    fn new(file: &Bound<'_, PyAny>) -> PyResult<Self> {
        const FROM_END: i32 = 2;
        let size = file.call_method1("seek", (0, FROM_END))?.extract()?;
        Ok(ObjectDevice { file: file.clone().unbind(), size, position: Mutex::default() })
    }

    fn read(&self, py: Python<'_>, offset: u64, buf: &mut [u8]) -> PyResult<()> {
        let file = self.file.bind(py);
        file.call_method1("seek", (offset,))?;
        let mut filled = 0;
        while filled < buf.len() {
            let bytes = file.call_method1("read", (buf.len() - filled,))?;
            let bytes = bytes.cast::<PyBytes>()?.as_bytes();
            let Some(room) = buf.get_mut(filled..filled + bytes.len()).filter(|room| !room.is_empty()) else {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            };
            room.copy_from_slice(bytes);
            filled += bytes.len();
        }
        Ok(())
    }
}

impl BlockDevice for ObjectDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        let _position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        Python::attach(|py| self.read(py, offset, buf).map_err(|error| io::Error::other(error.to_string())))
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
