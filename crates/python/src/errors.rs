//! Errors as Python's: `OSError` and its subclasses, by errno.

use dentree_vfs::Error;
use pyo3::PyErr;
use pyo3::exceptions::PyOSError;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The error of a path within an image.
pub(crate) fn at(path: &[u8], error: &Error) -> PyErr {
    let name = OsString::from_vec(path.to_vec());
    // `OSError` makes itself the subclass that the number stands for.
    PyOSError::new_err((error.errno().raw_os_error(), error.to_string(), name))
}

/// The error of an image that cannot be opened or closed.
pub(crate) fn of_image(source: &str, errno: Errno, message: impl ToString) -> PyErr {
    PyOSError::new_err((errno.raw_os_error(), message.to_string(), source.to_owned()))
}
