use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use crate::{BlockDevice, check_range};

/// A device in memory. Clones share the same bytes.
///
/// ```
/// use dentree_blockdev::{BlockDevice, MemoryDevice};
///
/// let device = MemoryDevice::new(4096);
/// let other = device.clone();
/// device.write_at(100, b"leaf")?;
/// assert_eq!(&other.to_vec()[100..104], b"leaf");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryDevice {
    bytes: Arc<RwLock<Vec<u8>>>,
    size: u64,
}

impl MemoryDevice {
    /// `size` zero bytes.
    pub fn new(size: usize) -> Self {
        Self::from(vec![0; size])
    }

    /// Copies the content.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<Vec<u8>> for MemoryDevice {
    fn from(bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        MemoryDevice { bytes: Arc::new(RwLock::new(bytes)), size }
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        // At most the length of a Vec.
        let start = offset as usize;
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        let start = offset as usize;
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        bytes[start..start + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Discarded bytes read as zeros.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size)?;
        let (start, end) = (offset as usize, (offset + len) as usize);
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)[start..end].fill(0);
        Ok(())
    }
}
