//! The lock of a block that is being read.

use std::io;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::buffer::Buffer;
use crate::error::ReadError;
use crate::pending::{Outcome, Pending};
use crate::shard::{LockedSlot, PinId};

/// Dropped before its read has ended, it fails the waiters, or lets them retry if the block was
/// read ahead.
pub(crate) struct BufferLock {
    blocks: Arc<Blocks>,
    pub(crate) block: u64,
    is_ahead: bool,
    place: Option<(u32, Arc<Pending>)>,
    /// Memory for the bytes; may be allocated when they arrive.
    memory: Option<Arc<[u8]>>,
}

impl BufferLock {
    pub(crate) fn new(blocks: &Arc<Blocks>, block: u64, locked: LockedSlot) -> Self {
        let LockedSlot { slot, pending, memory, is_ahead } = locked;
        BufferLock { blocks: Arc::clone(blocks), block, is_ahead, place: Some((slot, pending)), memory }
    }

    /// The memory to read into. It has no other holder, so nothing is copied.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let block_size = self.blocks.block_size;
        Arc::make_mut(self.memory.get_or_insert_with(|| Buffer::zeros(block_size).into_memory()))
    }

    /// Copies bytes that were read elsewhere. The thread that has the bytes allocates the memory:
    /// page faults cost more than the copy and would delay the thread that reads ahead.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        match &mut self.memory {
            Some(memory) => Arc::make_mut(memory).copy_from_slice(bytes),
            None => self.memory = Some(Arc::from(bytes)),
        }
    }

    /// Publishes the bytes, changed with `pin` if given, and wakes the waiters.
    pub(crate) fn succeed(mut self, pin: Option<PinId>) -> Buffer {
        self.bytes();
        let buffer = Buffer::new(self.memory.take().unwrap_or_default());
        if let Some((slot, pending)) = self.place.take() {
            self.blocks.shard_of(self.block).publish(slot, buffer.clone(), pin);
            pending.end(Outcome::Read(buffer.clone()));
        }
        buffer
    }

    pub(crate) fn fail(mut self, source: io::Error) -> ReadError {
        let error = ReadError::new(self.block, self.blocks.block_size, source);
        self.end_badly(&error);
        error
    }

    fn end_badly(&mut self, error: &ReadError) {
        if let Some((slot, pending)) = self.place.take() {
            self.blocks.shard_of(self.block).fail(slot);
            pending.end(if self.is_ahead { Outcome::Retry } else { Outcome::Failed(error.clone()) });
        }
    }
}

impl Drop for BufferLock {
    fn drop(&mut self) {
        if self.place.is_some() {
            let source = io::Error::other("the thread that was reading it has panicked");
            let error = ReadError::new(self.block, self.blocks.block_size, source);
            self.end_badly(&error);
        }
    }
}
