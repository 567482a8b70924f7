//! Errors of opening. Reads and writes fail with [`std::io::Error`].

use std::io;

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is damaged, or uses a part of the format that is not read here.
    #[error("{at}: cannot be read as qcow2: {source}")]
    Format {
        /// The file.
        at: String,
        /// What is wrong.
        source: io::Error,
    },
    /// An overlay cannot be made or opened.
    #[error("{at}: {problem}")]
    Overlay {
        /// The overlay's file.
        at: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The file.
    #[error(transparent)]
    File(#[from] dentree_blockdev::Error),
}
