//! The device with what was repaired of its metadata, in memory.

use dentree_blockdev::{BlockDevice, Done, check_range};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A device with other bytes in some of its blocks. It cannot be written.
pub(super) struct Repaired {
    device: Arc<dyn BlockDevice>,
    /// Bytes of a block.
    block_size: u64,
    /// By block number.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Repaired {
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_size: u32, blocks: BTreeMap<u64, Vec<u8>>) -> Self {
        Repaired { device, block_size: u64::from(block_size), blocks }
    }

    /// The end of what is repaired, in bytes: it may lie behind the end of half an image.
    fn end(&self) -> u64 {
        self.blocks.last_key_value().map_or(0, |(block, _)| (block + 1) * self.block_size)
    }

    /// Puts repaired bytes over those that were read.
    fn patch(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (block, bytes) in self.blocks.range(offset / self.block_size..end.div_ceil(self.block_size)) {
            let start = block * self.block_size;
            let skip = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
            let at = usize::try_from(start.saturating_sub(offset)).unwrap_or(usize::MAX);
            let from = bytes.get(skip..).unwrap_or_default();
            let to = buf.get_mut(at..).unwrap_or_default();
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }

    /// Whether all bytes of the range are repaired.
    fn covers(&self, offset: u64, len: u64) -> bool {
        (offset / self.block_size..(offset + len).div_ceil(self.block_size))
            .all(|block| self.blocks.contains_key(&block))
    }
}

impl BlockDevice for Repaired {
    fn size(&self) -> u64 {
        self.device.size().max(self.end())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len() as u64;
        check_range(offset, len, self.size())?;
        if !self.covers(offset, len) {
            self.device.read_at(offset, buf)?;
        }
        self.patch(offset, buf);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        let is_patched = offset.checked_add(buf.len() as u64).is_none_or(|end| {
            self.blocks.range(offset / self.block_size..end.div_ceil(self.block_size)).next().is_some()
        });
        if is_patched {
            let read = self.read_at(offset, &mut buf);
            done(read.map(|()| buf));
        } else {
            Arc::clone(&self.device).submit(offset, buf, done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_blockdev::{MappedDevice, MemoryDevice, RescueMap};

    #[test]
    fn repaired_blocks_are_read_in_place_of_the_device() {
        let memory = Arc::new(MemoryDevice::from(vec![1; 4096]));
        let broken = Arc::new(MappedDevice::new(memory, RescueMap::of(vec![1024..2048, 3072..4096])));
        let blocks = [(1, vec![2; 1024]), (5, vec![3; 1024])].into();
        let device = Repaired::new(broken, 1024, blocks);
        let mut buf = [0; 1024];
        device.read_at(1024, &mut buf).unwrap();
        assert_eq!(buf, [2; 1024]);
        device.read_at(512, &mut buf[..512]).unwrap();
        assert_eq!(buf[..512], [1; 512]);
        assert!(device.read_at(3000, &mut buf).is_err());
        device.read_at(5120, &mut buf).unwrap();
        assert_eq!((buf, device.size()), ([3; 1024], 6144));
    }
}
