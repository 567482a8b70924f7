//! A block's bytes, shared.

use std::ops::Deref;
use std::sync::Arc;

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

    /// Whether anyone but the slot has it. Final when false and asked under the shard's lock.
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

    /// The same in memory of its own.
    pub(crate) fn copied(&self) -> Buffer {
        Buffer { bytes: Arc::from(&self.bytes[..]), mark: self.mark }
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
