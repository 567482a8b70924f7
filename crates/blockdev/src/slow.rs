use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::pool::{Job, MAX_READERS, ReaderPool};
use crate::{BlockDevice, Done};

/// Requests take at least a given time.
///
/// [Submitted](BlockDevice::submit) reads wait in parallel, up to [`DEPTH`](SlowDevice::DEPTH) or
/// [a given number](SlowDevice::with_depth).
pub struct SlowDevice {
    device: Arc<dyn BlockDevice>,
    latency: Duration,
    pool: ReaderPool,
}

impl SlowDevice {
    /// Most submitted reads in flight.
    pub const DEPTH: usize = MAX_READERS;

    /// Adds `latency` to each read, write and flush.
    pub fn new(device: Arc<dyn BlockDevice>, latency: Duration) -> Self {
        SlowDevice::with_depth(device, latency, SlowDevice::DEPTH)
    }

    /// With at most `depth` submitted reads in flight, and at least one.
    pub fn with_depth(device: Arc<dyn BlockDevice>, latency: Duration, depth: usize) -> Self {
        let inner = Arc::clone(&device);
        let read = move |offset, buf: &mut [u8]| after(latency, || inner.read_at(offset, buf));
        let pool = ReaderPool::with_readers(depth, Box::new(read));
        SlowDevice { device, latency, pool }
    }
}

fn after<T>(latency: Duration, request: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let due = Instant::now() + latency;
    let answer = request();
    sleep(due.saturating_duration_since(Instant::now()));
    answer
}

impl BlockDevice for SlowDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        after(self.latency, || self.device.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        after(self.latency, || self.device.write_at(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        after(self.latency, || self.device.flush())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        after(self.latency, || self.device.read_vectored_at(offset, bufs))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        after(self.latency, || self.device.write_vectored_at(offset, bufs))
    }

    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        after(self.latency, || self.device.write_out_at(offset, bufs))
    }

    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        after(self.latency, || self.device.fill_holes(offset, len))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        after(self.latency, || self.device.discard(offset, len))
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        self.pool.submit(Job { offset, buf, done });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use std::sync::mpsc::channel;

    const LATENCY: Duration = Duration::from_millis(5);

    #[test]
    fn no_request_takes_less_than_the_latency() {
        let memory = MemoryDevice::from((0..100).collect::<Vec<u8>>());
        let device = Arc::new(SlowDevice::new(Arc::new(memory), LATENCY));
        let start = Instant::now();
        device.read_at(0, &mut [0; 8]).unwrap();
        assert!(start.elapsed() >= LATENCY);
        let start = Instant::now();
        let (sender, receiver) = channel();
        Arc::clone(&device).submit(7, vec![0], Box::new(move |read| sender.send(read.unwrap()).unwrap()));
        assert_eq!(receiver.recv().unwrap(), [7]);
        assert!(start.elapsed() >= LATENCY);
    }
}
