//! Errors of opening. Reads and writes fail with [`std::io::Error`].

use std::io;

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Damaged or unsupported.
    #[error("{at}: cannot be read as qcow2: {source}")]
    Format {
        /// File.
        at: String,
        /// Problem.
        source: io::Error,
    },
    /// An overlay cannot be made or opened.
    #[error("{at}: {problem}")]
    Overlay {
        /// File of the overlay.
        at: String,
        /// Problem and remedy.
        problem: String,
    },
    /// Error of the file.
    #[error(transparent)]
    File(#[from] dentree_blockdev::Error),
}
