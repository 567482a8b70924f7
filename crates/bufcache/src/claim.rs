//! Buffers, and the duty to read one.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::error::ReadError;
use crate::pending::{Outcome, Pending};
use crate::shard::{Stamp, Vacancy};

/// The bytes of a block. Cheap to clone; the bytes stay as they are for as long as it is held.
#[derive(Clone)]
pub struct Buffer {
    bytes: Arc<[u8]>,
    mark: u64,
}

impl Buffer {
    pub(crate) fn new(bytes: Arc<[u8]>) -> Buffer {
        Buffer { bytes, mark: 0 }
    }

    /// What its users have noted on this version or one that it was made of, see [`BufCache::set_mark`](crate::BufCache::set_mark);
    /// 0 for nothing.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether both are one version.
    pub(crate) fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// Notes `mark` if the bytes are those of `version`.
    pub(crate) fn mark_as(&mut self, version: &Buffer, mark: u64) {
        if self.is_same(version) {
            self.mark = mark;
        }
    }

    /// Whether anyone but the slot has it. Final when false and asked under the shard's lock, with no seat that has it.
    pub(crate) fn is_held(&self) -> bool {
        self.holders() > 1
    }

    /// How many have it, the slot included.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.bytes)
    }

    /// A block of so many zeros.
    pub(crate) fn zeros(len: usize) -> Buffer {
        // Made by an iterator that knows its length, the bytes are allocated once, behind their count.
        Buffer::new(std::iter::repeat_n(0, len).collect())
    }

    /// The bytes of the next version: these where nobody else has them, else a copy.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.bytes)
    }

    /// The same bytes in memory of their own, with this mark.
    pub(crate) fn copied(&self, mark: u64) -> Buffer {
        Buffer { bytes: Arc::from(&self.bytes[..]), mark }
    }

    pub(crate) fn into_memory(self) -> Arc<[u8]> {
        self.bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

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
