//! The duty to read a block.

use std::io;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::buffer::Buffer;
use crate::error::ReadError;
use crate::pending::{Outcome, Pending};
use crate::shard::{Stamp, Vacancy};

/// A block that its holder is to read. Dropped before that, it fails those who wait; or, where nobody has asked for the block
/// yet, lets them look again.
pub(crate) struct Claim {
    blocks: Arc<Blocks>,
    pub(crate) block: u64,
    is_ahead: bool,
    place: Option<(u32, Arc<Pending>)>,
    /// Where the bytes are to be; until they come maybe nowhere.
    memory: Option<Arc<[u8]>>,
}

impl Claim {
    pub(crate) fn new(blocks: &Arc<Blocks>, block: u64, vacancy: Vacancy) -> Self {
        let Vacancy { slot, pending, memory, is_ahead } = vacancy;
        Claim { blocks: Arc::clone(blocks), block, is_ahead, place: Some((slot, pending)), memory }
    }

    /// What to read into. Nobody shares the memory yet, so that nothing is copied.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let block_size = self.blocks.block_size;
        Arc::make_mut(self.memory.get_or_insert_with(|| Buffer::zeros(block_size).into_memory()))
    }

    /// Takes the bytes that were read elsewhere. New memory is asked for by the thread that has them: to bring it in takes longer than to
    /// copy, and who reads ahead has other things to do.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        match &mut self.memory {
            Some(memory) => Arc::make_mut(memory).copy_from_slice(bytes),
            None => self.memory = Some(Arc::from(bytes)),
        }
    }

    /// Publishes the bytes, and wakes those who wait for them. `stamp` is who has changed them since they were read.
    pub(crate) fn succeed(mut self, stamp: Option<Stamp>) -> Buffer {
        self.bytes();
        let buffer = Buffer::new(self.memory.take().unwrap_or_default());
        if let Some((slot, pending)) = self.place.take() {
            self.blocks.shard_of(self.block).publish(slot, buffer.clone(), stamp);
            pending.end(Outcome::Read(buffer.clone()));
        }
        buffer
    }

    /// Vacates the slot, and fails those who wait for it.
    pub(crate) fn fail(mut self, source: io::Error) -> ReadError {
        let error = ReadError::new(self.block, self.blocks.block_size, source);
        self.end_badly(&error);
        error
    }

    fn end_badly(&mut self, error: &ReadError) {
        if let Some((slot, pending)) = self.place.take() {
            self.blocks.shard_of(self.block).give_up(slot);
            pending.end(if self.is_ahead { Outcome::Forgotten } else { Outcome::Failed(error.clone()) });
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.place.is_some() {
            let source = io::Error::other("the thread that was reading it has panicked");
            let error = ReadError::new(self.block, self.blocks.block_size, source);
            self.end_badly(&error);
        }
    }
}
