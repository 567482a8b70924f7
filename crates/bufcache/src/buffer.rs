//! Shared bytes of a block.

use std::ops::Deref;
use std::sync::Arc;

/// The bytes of a block. Cheap to clone; the bytes never change.
#[derive(Clone)]
pub struct Buffer {
    bytes: Arc<[u8]>,
    mark: u64,
}

impl Buffer {
    pub(crate) fn new(bytes: Arc<[u8]>) -> Buffer {
        Buffer { bytes, mark: 0 }
    }

    /// The users' mark on this version or one it was made from, 0 for none; see
    /// [`BufCache::set_mark`](crate::BufCache::set_mark).
    pub fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    pub(crate) fn mark_as(&mut self, version: &Buffer, mark: u64) {
        if self.is_same(version) {
            self.mark = mark;
        }
    }

    /// Whether users hold it. `false` is final under the shard's mutex.
    pub(crate) fn is_held(&self) -> bool {
        self.holders() > 1
    }

    /// Number of holders, the slot included.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.bytes)
    }

    pub(crate) fn zeros(len: usize) -> Buffer {
        // An iterator of known length allocates once, with the reference count.
        Buffer::new(std::iter::repeat_n(0, len).collect())
    }

    /// The bytes of the next version: these if not held, otherwise a copy.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.bytes)
    }

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
