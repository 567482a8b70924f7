//! Request counts of a device.
//!
//! Two relaxed atomics per request: statistics only.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{BlockDevice, Done, Transfers, total_len};

/// Size classes of [`DeviceCounts`].
pub const SIZE_CLASSES: usize = 13;

/// Requests of a device. A vectored request counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Reads by size, see [`DeviceCounts::class_limit`].
    pub reads: [u64; SIZE_CLASSES],
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes by size.
    pub writes: [u64; SIZE_CLASSES],
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl DeviceCounts {
    /// Largest request of a class in bytes: 512, 1024, … 1 MiB. `None`: no limit (last class).
    pub fn class_limit(class: usize) -> Option<u64> {
        (class + 1 < SIZE_CLASSES).then(|| 512 << class)
    }

    /// Reads of any size.
    pub fn total_reads(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// Writes of any size.
    pub fn total_writes(&self) -> u64 {
        self.writes.iter().sum()
    }
}

#[derive(Default)]
struct Counters {
    reads: [AtomicU64; SIZE_CLASSES],
    read_bytes: AtomicU64,
    writes: [AtomicU64; SIZE_CLASSES],
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

fn size_class(len: u64) -> usize {
    let doublings = len.saturating_sub(1) >> 9;
    ((u64::BITS - doublings.leading_zeros()) as usize).min(SIZE_CLASSES - 1)
}

impl Counters {
    fn read(&self, len: u64) {
        self.reads[size_class(len)].fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(len, Relaxed);
    }

    fn write(&self, len: u64) {
        self.writes[size_class(len)].fetch_add(1, Relaxed);
        self.written_bytes.fetch_add(len, Relaxed);
    }
}

/// Counts requests, failed ones included, and passes them on.
///
/// ```
/// use std::sync::Arc;
/// use dentree_blockdev::{BlockDevice, MemoryDevice, MeteredDevice};
///
/// let device = MeteredDevice::new(Arc::new(MemoryDevice::new(8192)));
/// device.read_at(0, &mut [0; 4096])?;
/// device.read_at(1024, &mut [0; 200])?;
/// let counts = device.counts();
/// assert_eq!((counts.total_reads(), counts.read_bytes), (2, 4296));
/// assert_eq!((counts.reads[0], counts.reads[3]), (1, 1)); // up to 512 bytes, up to 4096
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct MeteredDevice {
    device: Arc<dyn BlockDevice>,
    counters: Counters,
}

impl MeteredDevice {
    /// Counts from now on.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        MeteredDevice { device, counters: Counters::default() }
    }

    /// Counts so far. A request in flight may be in some of them.
    pub fn counts(&self) -> DeviceCounts {
        let load =
            |counters: &[AtomicU64; SIZE_CLASSES]| counters.each_ref().map(|count| count.load(Relaxed));
        DeviceCounts {
            reads: load(&self.counters.reads),
            read_bytes: self.counters.read_bytes.load(Relaxed),
            writes: load(&self.counters.writes),
            written_bytes: self.counters.written_bytes.load(Relaxed),
            flushes: self.counters.flushes.load(Relaxed),
        }
    }
}

impl BlockDevice for MeteredDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.counters.read(buf.len() as u64);
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.counters.write(buf.len() as u64);
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.counters.flushes.fetch_add(1, Relaxed);
        self.device.flush()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.counters.read(total_len(bufs.iter().map(|buf| buf.len()))?);
        self.device.read_vectored_at(offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.counters.write(total_len(bufs.iter().map(|buf| buf.len()))?);
        self.device.write_vectored_at(offset, bufs)
    }

    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.counters.write(total_len(bufs.iter().map(|buf| buf.len()))?);
        self.device.write_out_at(offset, bufs)
    }

    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.fill_holes(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(offset, len)
    }

    fn transfers(&self) -> Option<Transfers> {
        self.device.transfers()
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        self.counters.read(buf.len() as u64);
        Arc::clone(&self.device).submit(offset, buf, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_request_counts_in_the_smallest_class_that_holds_it() {
        let limits: Vec<_> = (0..SIZE_CLASSES).map(DeviceCounts::class_limit).collect();
        assert_eq!(
            (limits[0], limits[3], limits[11], limits[12]),
            (Some(512), Some(4096), Some(1 << 20), None)
        );
        for (class, limit) in limits.iter().enumerate() {
            if let Some(limit) = *limit {
                assert_eq!((size_class(limit), size_class(limit + 1)), (class, class + 1));
            }
        }
        assert_eq!((size_class(0), size_class(u64::MAX)), (0, SIZE_CLASSES - 1));
    }

    #[test]
    fn every_way_to_ask_is_counted_once() {
        let device = Arc::new(MeteredDevice::new(Arc::new(MemoryDevice::new(8192))));
        device.read_at(0, &mut [0; 512]).unwrap();
        let (mut a, mut b) = ([0; 512], [0; 512]);
        device.read_vectored_at(0, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap();
        Arc::clone(&device).submit(0, vec![0; 2048], Box::new(|read| assert!(read.is_ok())));
        assert!(device.read_at(8000, &mut [0; 4096]).is_err());
        device.write_at(0, &a).unwrap();
        device.write_vectored_at(0, &[IoSlice::new(&a), IoSlice::new(&b)]).unwrap();
        device.flush().unwrap();
        let counts = device.counts();
        assert_eq!(counts.reads[..4], [1, 1, 1, 1]);
        assert_eq!(counts.read_bytes, 512 + 1024 + 2048 + 4096);
        assert_eq!(counts.writes[..2], [1, 1]);
        assert_eq!((counts.total_writes(), counts.written_bytes, counts.flushes), (2, 1536, 1));
    }
}
