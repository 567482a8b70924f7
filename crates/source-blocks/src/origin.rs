//! Interfaces of origin and store.

use bytes::Bytes;
use dentree_blockdev::Transfers;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Constant bytes behind a latency.
pub trait Origin: Send + Sync + 'static {
    /// Why a request fails; passed to all waiting reads.
    type Error: Clone + Into<io::Error> + Send + Sync + 'static;

    /// Whether a request may fail for part of its range. Then reads of a failed request are
    /// repeated one by one.
    const FAILS_BY_RANGE: bool;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// What tells its bytes from others under the same name.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The bytes of a range, all of them.
    fn fetch(&self, range: Range<u64>) -> impl Future<Output = Result<Fetched, Self::Error>> + Send;

    /// Transfers since opening.
    fn transfers(&self) -> Transfers;
}

/// A fetched range with its timing.
#[derive(Debug)]
pub struct Fetched {
    /// As requested.
    pub bytes: Bytes,
    /// Until the head of the response.
    pub latency: Duration,
    /// From there to the end.
    pub transfer: Duration,
}

/// Keeps blocks for later runs. A failure is a missing block.
pub trait Store: Send + Sync + 'static {
    /// Whether a block is probably there.
    fn has(&self, number: u64) -> bool;

    /// A complete block.
    fn get(&self, number: u64) -> Option<Vec<u8>>;

    /// Keeps a block if there is room.
    fn put(&self, number: u64, bytes: &[u8]);
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug)]
pub enum NoStore {}

impl Store for NoStore {
    fn has(&self, _: u64) -> bool {
        false
    }

    fn get(&self, _: u64) -> Option<Vec<u8>> {
        None
    }

    fn put(&self, _: u64, _: &[u8]) {}
}
