//! A request in its entry, and where finished ones go.

use crate::memory::Memory;
use dentree_sync::{Arc, Mutex};
use std::os::fd::OwnedFd;

/// Length of a reply's header.
const OUT_HEADER: usize = 16;

/// What a ring's thread shares with the entries that it has given away.
pub(crate) struct Home {
    pub(crate) memory: Memory,
    /// The queue of each entry.
    pub(crate) queues: Vec<usize>,
    pub(crate) finished: Mutex<Finished>,
    /// An eventfd that the ring polls, to end its wait.
    pub(crate) wake: OwnedFd,
}

/// Entries with a reply that is not committed. `[Home::finished]`
#[derive(Default)]
pub(crate) struct Finished {
    pub(crate) entries: Vec<usize>,
    /// The thread waits, or will without looking again.
    pub(crate) is_asleep: bool,
}

/// A request that is to be replied to, from any thread. Dropped without a reply, it replies EIO.
pub struct RingEntry {
    home: Arc<Home>,
    index: usize,
    replied: bool,
}

impl RingEntry {
    /// The caller has U1 for `index`: the kernel has completed the entry, and this is the only
    /// `RingEntry` of that completion.
    pub(crate) fn new(home: Arc<Home>, index: usize) -> RingEntry {
        RingEntry { home, index, replied: false }
    }

    /// The number of the queue that it came by.
    pub fn queue(&self) -> usize {
        self.home.queues[self.index]
    }

    /// The request's header (`struct fuse_in_header`) and zeros.
    pub fn header(&self) -> &[u8; 128] {
        // SAFETY: this is initialised memory that the kernel does not write until the commit, and
        // only this `RingEntry` refers to it (U1).
        unsafe { &(*self.home.memory.header(self.index).as_ptr()).in_out }
    }

    /// The operation's part with a fixed length, and undefined bytes.
    pub fn fixed(&self) -> &[u8; 128] {
        // SAFETY: as in `header`.
        unsafe { &(*self.home.memory.header(self.index).as_ptr()).op_in }
    }

    /// The whole payload buffer, and how many bytes of it belong to the request.
    pub fn payload(&mut self) -> (&mut [u8], usize) {
        let (memory, size) = (&self.home.memory, self.home.memory.payload_size());
        // SAFETY: as in `header`; and `&mut self` lends it once.
        let payload = unsafe { std::slice::from_raw_parts_mut(memory.payload(self.index).as_ptr(), size) };
        // SAFETY: as in `header`. The borrow above is of another part.
        let len = unsafe { (*memory.header(self.index).as_ptr()).payload_len };
        (payload, size.min(len as usize))
    }

    /// Replies with `header` (`struct fuse_out_header`) and the first `len` bytes of the payload.
    ///
    /// # Panics
    /// If the payload is shorter.
    pub fn finish(mut self, header: &[u8; OUT_HEADER], len: usize) {
        self.set_reply(header, len);
    }

    fn set_reply(&mut self, header: &[u8; OUT_HEADER], len: usize) {
        assert!(len <= self.home.memory.payload_size());
        // SAFETY: as in `header`.
        let parts = unsafe { &mut *self.home.memory.header(self.index).as_ptr() };
        parts.in_out[..OUT_HEADER].copy_from_slice(header);
        // A payload has at most a MiB.
        parts.payload_len = len as u32;
        self.replied = true;
    }
}

/// The header of a reply that is an error and nothing else.
fn failure(in_header: &[u8; 128]) -> [u8; OUT_HEADER] {
    const EIO: i32 = 5;
    let mut header = [0; OUT_HEADER];
    header[..4].copy_from_slice(&(OUT_HEADER as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-EIO).to_ne_bytes());
    // Both headers have the request's number at the same place.
    header[8..].copy_from_slice(&in_header[8..16]);
    header
}

impl Drop for RingEntry {
    fn drop(&mut self) {
        if !self.replied {
            let failure = failure(self.header());
            self.set_reply(&failure, 0);
        }
        let mut finished = self.home.finished.lock();
        finished.entries.push(self.index);
        // The thread sets `is_asleep` under this lock before it looks at `entries` for the last
        // time. Either it sees this entry then, or this sees that it is asleep.
        let wakes = std::mem::take(&mut finished.is_asleep);
        drop(finished);
        if wakes {
            // It fails only if the counter is full, and then the thread is awake.
            let _ = rustix::io::write(&self.home.wake, &1u64.to_ne_bytes());
        }
    }
}
