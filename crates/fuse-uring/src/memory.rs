//! Memory of entries, as the kernel lays it out.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};

/// `struct fuse_uring_req_header`: the request's header, which the reply's replaces; the part with
/// a fixed length of the operation; and what belongs to the ring.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) in_out: [u8; 128],
    pub(crate) op_in: [u8; 128],
    pub(crate) flags: u64,
    /// Names the request in its commit.
    pub(crate) commit_id: u64,
    /// Bytes of the payload that are used.
    pub(crate) payload_len: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Header>() == 288 && size_of::<Header>() <= PAGE);

/// Of the memory before a payload.
const PAGE: usize = 4096;

/// Headers and payloads of some entries.
pub(crate) struct Memory {
    start: NonNull<u8>,
    entries: usize,
    payload: usize,
}

// SAFETY: this is an allocation that no thread owns; only a `RingEntry` reaches into it, to which
// U1 gives its part exclusively.
unsafe impl Send for Memory {}
// SAFETY: as above: shared references give out addresses alone.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory, which takes none before it is touched.
    pub(crate) fn new(entries: usize, payload: usize) -> io::Result<Memory> {
        let len = entries * (PAGE + payload);
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, kind) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { start, entries, payload })
    }

    pub(crate) fn header(&self, entry: usize) -> NonNull<Header> {
        self.part(entry, 0).cast()
    }

    pub(crate) fn payload(&self, entry: usize) -> NonNull<u8> {
        self.part(entry, PAGE)
    }

    pub(crate) fn payload_size(&self) -> usize {
        self.payload
    }

    fn part(&self, entry: usize, at: usize) -> NonNull<u8> {
        assert!(entry < self.entries);
        // SAFETY: the entry exists, so this stays within the allocation; pages are aligned for any
        // of its parts.
        unsafe { self.start.add(entry * (PAGE + self.payload) + at) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len = self.entries * (PAGE + self.payload);
        // SAFETY: `new` mapped this, and no reference is left: `RingEntry` and the ring hold a
        // reference to what holds this (U2).
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), len) };
    }
}
