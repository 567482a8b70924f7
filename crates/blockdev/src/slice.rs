use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::{BlockDevice, Done, Error, check_range};

/// A range of another device: a partition, or a file system at an offset.
///
/// ```
/// use std::sync::Arc;
/// use dentree_blockdev::{BlockDevice, MemoryDevice, Slice};
///
/// let disk = Arc::new(MemoryDevice::from(b"....ext4....".to_vec()));
/// let slice = Slice::new(disk, 4, 4)?;
/// let mut buf = [0; 4];
/// slice.read_at(0, &mut buf)?;
/// assert_eq!(&buf, b"ext4");
/// assert!(slice.read_at(1, &mut buf).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Slice {
    device: Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
}

impl Slice {
    /// `len` bytes of `device` from `start`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the end of the device.
    pub fn new(device: Arc<dyn BlockDevice>, start: u64, len: u64) -> Result<Self, Error> {
        match start.checked_add(len) {
            Some(end) if end <= device.size() => Ok(Slice { device, start, len }),
            _ => Err(Error::OutOfRange { start, len, size: device.size() }),
        }
    }

    /// Start in the device below, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Offset below. Cannot overflow, because the slice's end does not.
    fn below(&self, offset: u64, len: u64) -> io::Result<u64> {
        check_range(offset, len, self.len)?;
        Ok(self.start + offset)
    }
}

impl BlockDevice for Slice {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(self.below(offset, buf.len() as u64)?, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(self.below(offset, buf.len() as u64)?, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = crate::total_len(bufs.iter().map(|buf| buf.len()))?;
        self.device.read_vectored_at(self.below(offset, len)?, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = crate::total_len(bufs.iter().map(|buf| buf.len()))?;
        self.device.write_vectored_at(self.below(offset, len)?, bufs)
    }

    fn write_out_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = crate::total_len(bufs.iter().map(|buf| buf.len()))?;
        self.device.write_out_at(self.below(offset, len)?, bufs)
    }

    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.fill_holes(self.below(offset, len)?, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(self.below(offset, len)?, len)
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        match self.below(offset, buf.len() as u64) {
            Ok(offset) => Arc::clone(&self.device).submit(offset, buf, done),
            Err(error) => done(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn slice() -> Slice {
        let disk = MemoryDevice::from((0..100).collect::<Vec<u8>>());
        Slice::new(Arc::new(disk), 10, 20).unwrap()
    }

    #[test]
    fn a_slice_neither_reads_nor_writes_outside_itself() {
        let slice = slice();
        let mut buf = [0; 20];
        slice.read_at(0, &mut buf).unwrap();
        assert_eq!((buf[0], buf[19]), (10, 29));
        for offset in [1, 20, u64::MAX] {
            assert_eq!(slice.read_at(offset, &mut buf).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(slice.write_at(offset, &buf).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let mut parts = [[0; 10], [0; 10]];
        let mut bufs = parts.each_mut().map(|part| IoSliceMut::new(part));
        slice.read_vectored_at(0, &mut bufs).unwrap();
        assert_eq!((parts[0][0], parts[1][9]), (10, 29));
        let mut bufs = parts.each_mut().map(|part| IoSliceMut::new(part));
        assert!(slice.read_vectored_at(1, &mut bufs).is_err());
    }

    #[test]
    fn a_read_that_is_submitted_is_shifted_or_refused() {
        let slice = Arc::new(slice());
        Arc::clone(&slice).submit(5, vec![0; 2], Box::new(|read| assert_eq!(read.unwrap(), [15, 16])));
        slice.submit(19, vec![0; 2], Box::new(|read| assert!(read.is_err())));
    }

    #[test]
    fn a_slice_that_is_not_all_there_is_refused() {
        let disk = Arc::new(MemoryDevice::new(100));
        for (start, len) in [(0, 101), (100, 1), (u64::MAX, 2)] {
            let error = Slice::new(disk.clone(), start, len).err().unwrap();
            assert!(matches!(error, Error::OutOfRange { size: 100, .. }), "{error}");
        }
    }
}
