//! Errors that end the making of an image.

use dentree_vfs::Error;
use std::io;
use std::path::PathBuf;

/// Why the tree was not copied.
#[derive(Debug)]
pub(super) enum FillError {
    /// A local file could not be read.
    Local(PathBuf, io::Error),
    /// The new file system failed at this path.
    Image(Vec<u8>, Error),
    /// A line of the manifest does not fit the directory.
    Line(usize, String),
    Interrupted,
}
