//! Why an image is not made.

use dentree_vfs::Error;
use std::io;
use std::path::PathBuf;

/// Why the file system is not full as it should be.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Something of this machine could not be read.
    Local(PathBuf, io::Error),
    /// The file system refused, at this path of it.
    Image(Vec<u8>, Error),
    /// A line of the manifest makes no sense with this directory.
    Line(usize, String),
    /// Ctrl-C.
    Interrupted,
}
