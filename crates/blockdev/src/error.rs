//! What can go wrong in opening a device. Reads and writes themselves fail with [`std::io::Error`].

use std::io;
use std::path::PathBuf;

/// Why a device, or the part of it that was asked for, could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file asked for.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Another program has the file open for writing.
    #[error(
        "{} is being written by {}: end that first, or open it read-only",
        path.display(), holder.as_deref().unwrap_or("another program")
    )]
    Locked {
        /// The file asked for.
        path: PathBuf,
        /// Who has it, where the system tells: `process 123 (dentree)`.
        holder: Option<String>,
    },
    /// The path leads to something that holds no blocks.
    #[error("{} is neither a regular file nor a block device but {kind}", path.display())]
    NotADevice {
        /// The file asked for.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A part of a device that is not all there.
    #[error("{len} bytes at offset {start} are not all on the device, which has {size} bytes")]
    OutOfRange {
        /// First byte of the part.
        start: u64,
        /// Length of the part in bytes.
        len: u64,
        /// Length of the device in bytes.
        size: u64,
    },
}
