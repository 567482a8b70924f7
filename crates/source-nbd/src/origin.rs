//! A read-only export, read in few requests.

use crate::{Error, NbdDevice};
use bytes::Bytes;
use dentree_blockdev::{BlockDevice, Transfers};
use dentree_source_blocks::{Blocks, Fetched, NoStore, Origin};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Export with range requests.
pub struct ExportOrigin {
    device: Arc<NbdDevice>,
    requests: AtomicU64,
    fetched: AtomicU64,
    /// In nanoseconds.
    shortest: AtomicU64,
}

/// Why a range cannot be read.
#[derive(Clone, Debug)]
pub struct ExportError(Arc<io::Error>);

impl From<ExportError> for io::Error {
    fn from(ExportError(error): ExportError) -> Self {
        io::Error::new(error.kind(), error.to_string())
    }
}

impl NbdDevice {
    /// Fetches blocks in few requests and caches them. The export must not change meanwhile.
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn in_blocks(self) -> Result<Blocks<ExportOrigin, NoStore>, Error> {
        let origin = ExportOrigin {
            device: Arc::new(self),
            requests: AtomicU64::default(),
            fetched: AtomicU64::default(),
            shortest: AtomicU64::new(u64::MAX),
        };
        Blocks::new(origin, None, None).map_err(Error::Threads)
    }
}

impl Origin for ExportOrigin {
    type Error = ExportError;

    // Disks have bad sectors.
    const FAILS_BY_RANGE: bool = true;

    fn size(&self) -> u64 {
        self.device.size()
    }

    async fn fetch(&self, range: Range<u64>) -> Result<Fetched, ExportError> {
        let failed = |error| ExportError(Arc::new(error));
        let began = Instant::now();
        self.requests.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        let len =
            usize::try_from(range.end - range.start).map_err(|error| failed(io::Error::other(error)))?;
        let done = Box::new(move |read| drop(sender.send((read, Instant::now()))));
        Arc::clone(&self.device).submit(range.start, vec![0; len], done);
        let (read, arrived) = receiver.await.map_err(|error| failed(io::Error::other(error)))?;
        let bytes = Bytes::from(read.map_err(failed)?);
        self.fetched.fetch_add(bytes.len() as u64, Relaxed);
        // Replies come whole: the shortest so far is almost pure latency.
        let took = arrived - began;
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let shortest = nanoseconds.min(self.shortest.fetch_min(nanoseconds, Relaxed));
        let latency = Duration::from_nanos(shortest);
        Ok(Fetched { bytes, latency, transfer: took.saturating_sub(latency) })
    }

    fn transfers(&self) -> Transfers {
        Transfers {
            requests: self.requests.load(Relaxed),
            fetched_bytes: self.fetched.load(Relaxed),
            ..Transfers::default()
        }
    }
}
