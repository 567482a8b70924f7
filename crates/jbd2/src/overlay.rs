use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, Done, check_range};

use crate::format::MAGIC;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// Block of the device.
    pub(crate) physical: u64,
    /// Block of the journal.
    pub(crate) block: u32,
    /// Restore the magic number in the first four bytes.
    pub(crate) escaped: bool,
}

/// A read-only device with some blocks replaced by copies in its journal.
pub(crate) struct Overlay {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    /// Ascending.
    copies: Vec<(u64, Logged)>,
}

impl Overlay {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, block_size: usize, copies: HashMap<u64, Logged>) -> Self {
        let mut copies: Vec<_> = copies.into_iter().collect();
        copies.sort_unstable_by_key(|&(block, _)| block);
        Overlay { device, block_size: block_size as u64, copies }
    }

    /// The range is on the device.
    fn touched(&self, offset: u64, len: u64) -> &[(u64, Logged)] {
        let first = offset / self.block_size;
        let end = (offset + len).div_ceil(self.block_size);
        let from = self.copies.partition_point(|&(block, _)| block < first);
        let count = self.copies[from..].partition_point(|&(block, _)| block < end);
        &self.copies[from..from + count]
    }

    /// Reads from the copy's byte `skip` on.
    fn read_copy(&self, copy: Logged, skip: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(copy.physical * self.block_size + skip, buf)?;
        if copy.escaped {
            let magic = MAGIC.to_be_bytes();
            for (at, byte) in (skip..).zip(buf).take_while(|&(at, _)| at < magic.len() as u64) {
                *byte = magic[at as usize];
            }
        }
        Ok(())
    }
}

/// `len` is at most the slice's length.
fn take<'a>(buf: &mut &'a mut [u8], len: u64) -> &'a mut [u8] {
    let (head, rest) = std::mem::take(buf).split_at_mut(len as usize);
    *buf = rest;
    head
}

impl BlockDevice for Overlay {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size())?;
        let (mut at, end) = (offset, offset + buf.len() as u64);
        for &(block, copy) in self.touched(offset, buf.len() as u64) {
            let start = (block * self.block_size).max(at);
            let stop = ((block + 1) * self.block_size).min(end);
            if at < start {
                self.device.read_at(at, take(&mut buf, start - at))?;
            }
            self.read_copy(copy, start - block * self.block_size, take(&mut buf, stop - start))?;
            at = stop;
        }
        if at < end {
            self.device.read_at(at, buf)?;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        let message = "the image is seen through a replay of its journal, which is read-only";
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, message))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_vectored_at(&self, mut offset: u64, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<()> {
        let len = bufs.iter().fold(0u64, |len, buf| len.saturating_add(buf.len() as u64));
        check_range(offset, len, self.size())?;
        if self.touched(offset, len).is_empty() {
            return self.device.read_vectored_at(offset, bufs);
        }
        for buf in bufs {
            self.read_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        let len = buf.len() as u64;
        if check_range(offset, len, self.size()).is_err() || self.touched(offset, len).is_empty() {
            return Arc::clone(&self.device).submit(offset, buf, done);
        }
        let read = self.read_at(offset, &mut buf);
        done(read.map(|()| buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_blockdev::MemoryDevice;
    use proptest::prelude::*;
    use std::sync::mpsc::channel;

    const BLOCK: usize = 16;

    proptest! {
        #[test]
        fn any_read_sees_the_blocks_as_if_they_had_been_written_back(
            copies in prop::collection::hash_map(0u64..8, (8u64..16, any::<bool>()), 0..8),
            reads in prop::collection::vec((0usize..=256, 0usize..=256), 1..20),
        ) {
            let disk: Vec<u8> = (0..=255).collect();
            let mut written = disk.clone();
            for (&target, &(physical, escaped)) in &copies {
                let (to, from) = (target as usize * BLOCK, physical as usize * BLOCK);
                written[to..to + BLOCK].copy_from_slice(&disk[from..from + BLOCK]);
                if escaped {
                    written[to..to + 4].copy_from_slice(&MAGIC.to_be_bytes());
                }
            }
            let copies = copies.into_iter().map(|(target, (physical, escaped))| (target, Logged { physical, block: 0, escaped }));
            let overlay = Arc::new(Overlay::new(Arc::new(MemoryDevice::from(disk)), BLOCK, copies.collect()));
            let (sender, receiver) = channel();
            for &(a, b) in &reads {
                let (start, end) = (a.min(b), a.max(b));
                let mut buf = vec![0; end - start];
                overlay.read_at(start as u64, &mut buf).unwrap();
                prop_assert_eq!(&buf, &written[start..end]);
                let (left, right) = buf.split_at_mut((end - start) / 3);
                let mut bufs = [io::IoSliceMut::new(left), io::IoSliceMut::new(right)];
                overlay.read_vectored_at(start as u64, &mut bufs).unwrap();
                prop_assert_eq!(&buf, &written[start..end]);
                let sender = sender.clone();
                let done = move |read: io::Result<Vec<u8>>| sender.send((start, read.unwrap())).unwrap();
                Arc::clone(&overlay).submit(start as u64, buf, Box::new(done));
            }
            for (start, buf) in receiver.iter().take(reads.len()) {
                prop_assert_eq!(&buf[..], &written[start..][..buf.len()]);
            }
            prop_assert!(overlay.read_at(250, &mut [0; 7]).is_err());
            prop_assert!(overlay.write_at(0, &[0]).is_err());
        }
    }
}
