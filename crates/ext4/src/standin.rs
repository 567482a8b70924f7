//! Until the buffer cache is here: the same interface over a map.

use dentree_blockdev::BlockDevice;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

pub(crate) type Buffer = Arc<[u8]>;

pub(crate) struct BufCache {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    blocks: Mutex<HashMap<u64, Buffer>>,
}

impl BufCache {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, block_size: usize, _budget: usize) -> BufCache {
        BufCache { device, block_size, blocks: Mutex::default() }
    }

    pub(crate) fn get(&self, block: u64) -> io::Result<Buffer> {
        let mut blocks = self.blocks.lock().map_err(|_| io::ErrorKind::Other)?;
        if let Some(buffer) = blocks.get(&block) {
            return Ok(buffer.clone());
        }
        let mut bytes = vec![0; self.block_size];
        self.device.read_at(block * self.block_size as u64, &mut bytes)?;
        let buffer: Buffer = bytes.into();
        blocks.insert(block, buffer.clone());
        Ok(buffer)
    }
}
