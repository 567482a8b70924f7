//! What the cache on disk needs of the host.

use std::fs::Metadata;
use std::io;
use std::path::Path;

/// Whether a file takes disk space only where it was written. On Windows it would take that of the
/// whole object at once.
pub(crate) const HAS_SPARSE_FILES: bool = cfg!(unix);

/// Makes a directory that only its owner may read.
#[cfg(unix)]
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Bytes of the disk that a file takes.
#[cfg(unix)]
pub(crate) fn allocated(found: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    found.blocks() * 512
}

#[cfg(not(unix))]
pub(crate) fn make_private(_: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(crate) fn allocated(found: &Metadata) -> u64 {
    found.len()
}
