//! What the device is made over: an origin, and a store of what was fetched.

use bytes::Bytes;
use dentree_blockdev::Transfers;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Bytes that are slow to ask for. They do not change.
pub trait Origin: Send + Sync + 'static {
    /// Why a request failed. Every read that waits for the request gets it.
    type Error: Clone + Into<io::Error> + Send + Sync + 'static;

    /// Whether a request may fail for a part of its range. Then reads that wait for a request that
    /// failed are asked for one by one.
    const FAILS_BY_RANGE: bool;

    /// Bytes in all.
    fn size(&self) -> u64;

    /// What tells its bytes from others under the same name.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The bytes of a range, all of them.
    fn fetch(&self, range: Range<u64>) -> impl Future<Output = Result<Fetched, Self::Error>> + Send;

    /// Requests made and bytes fetched since the origin was opened.
    fn transfers(&self) -> Transfers;
}

/// The bytes of a range, and how long they took.
#[derive(Debug)]
pub struct Fetched {
    /// As many as were asked for.
    pub bytes: Bytes,
    /// From the request to the head of the answer.
    pub latency: Duration,
    /// From there to the end.
    pub transfer: Duration,
}

/// Keeps blocks for later runs. A failure is a block that is not there: a store is a help.
pub trait Store: Send + Sync + 'static {
    /// Whether a block is there, as far as is known without reading it.
    fn has(&self, number: u64) -> bool;

    /// A block, where it is there and whole.
    fn get(&self, number: u64) -> Option<Vec<u8>>;

    /// Keeps a block, where there is room.
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
