//! A read that failed.

use std::io;
use std::sync::Arc;

/// A block that could not be read: the source of an [`io::Error`] of this crate, shared by all
/// waiters.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read block {block} of {block_size} bytes: {source}")]
pub struct ReadError {
    /// Number of the block on the device.
    pub block: u64,
    /// Its size in bytes.
    pub block_size: usize,
    /// The device's error.
    pub source: Arc<io::Error>,
}

impl ReadError {
    pub(crate) fn new(block: u64, block_size: usize, source: io::Error) -> Self {
        ReadError { block, block_size, source: Arc::new(source) }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        io::Error::new(error.source.kind(), error)
    }
}
