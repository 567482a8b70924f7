use std::io;
use std::sync::Arc;

use dentree_sync::atomic::Ordering::Relaxed;

use crate::error::{Cause, Error};
use crate::shared::{BufferList, Shared};
use crate::tid::Tid;
use crate::write_back;

/// One operation's part of a transaction ([`Journal::start`](crate::Journal::start)). After a crash
/// all of its changes are there, or none.
///
/// The commit waits for it: its thread must not wait for a commit, nor start a second handle. If a
/// panic drops it, the journal is aborted, because its changes are incomplete.
pub struct Handle<'a> {
    shared: &'a Shared,
    tid: Tid,
    list: usize,
    credits: u32,
    buffers: BufferList,
}

impl<'a> Handle<'a> {
    pub(crate) fn start(shared: &'a Shared, credits: u32) -> Result<Handle<'a>, Error> {
        let most = shared.transaction.most();
        if credits > most {
            return Err(Error::TooLarge { credits, most });
        }
        let Some(list) = shared.transaction.join_or_wait(credits, || shared.request(shared.running())) else {
            return Err(shared.failure().unwrap_or_else(|| Arc::new(Cause::Closed)).into());
        };
        Ok(Handle { shared, tid: shared.running(), list, credits, buffers: BufferList::default() })
    }

    /// The transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Blocks that this handle may still add to the transaction.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Changes a block. `change` may run under a lock of the cache: it must be short and must not
    /// use the cache.
    ///
    /// A block new to the transaction costs a credit. Without credits it is changed all the same,
    /// and counted ([`Journal::overdrafts`](crate::Journal::overdrafts)).
    ///
    /// # Errors
    /// The block cannot be read; nothing is changed.
    #[inline]
    pub fn update<R>(&mut self, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let changed = self.shared.cache.update(block, write_back::pin(self.tid), change)?;
        if changed.is_first {
            self.add(block);
        }
        Ok(changed.value)
    }

    /// As [`update`](Handle::update), from zeros: for a new block.
    ///
    /// # Errors
    /// The block is beyond the device.
    pub fn create<R>(&mut self, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let changed = self.shared.cache.create(block, write_back::pin(self.tid), change)?;
        if changed.is_first {
            self.add(block);
        }
        Ok(changed.value)
    }

    fn add(&mut self, block: u64) {
        self.buffers.blocks.push(block);
        match self.credits.checked_sub(1) {
            Some(left) => self.credits = left,
            None => {
                self.shared.transaction.overdraw();
                self.shared.overdrafts.fetch_add(1, Relaxed);
            }
        }
    }

    /// Drops freed metadata blocks from the cache, and revokes their copies. They must not be
    /// reallocated, even for data, before [`after_commit`](Handle::after_commit). Costs no credits.
    pub fn forget(&mut self, first: u64, count: u64) {
        self.shared.cache.discard(first, count);
        self.buffers.freed.push((first, count));
    }

    /// Calls `action` when the transaction is on stable storage, before its waiters return; with
    /// the cause if the journal was aborted.
    ///
    /// It runs on the committing thread: it must be short, must not use the journal, and must take
    /// no lock that a thread holds while it waits for a commit.
    pub fn after_commit(&mut self, action: impl FnOnce(Result<(), Arc<Cause>>) + Send + 'static) {
        self.buffers.actions.push(Box::new(action));
    }

    /// Takes more credits. `false`: too few; use [`restart`](Handle::restart).
    pub fn extend(&mut self, credits: u32) -> bool {
        let extended = self.shared.transaction.extend(credits);
        if extended {
            self.credits += credits;
        }
        extended
    }

    /// Stops, and starts another handle. A commit may come between: the file system must be
    /// consistent.
    ///
    /// # Errors
    /// As [`Journal::start`](crate::Journal::start).
    pub fn restart(self, credits: u32) -> Result<Handle<'a>, Error> {
        let shared = self.shared;
        self.stop();
        Handle::start(shared, credits)
    }

    /// Returns the transaction, for [`Journal::wait_commit`](crate::Journal::wait_commit).
    pub fn stop(self) -> Tid {
        self.tid
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(Arc::new(Cause::Panicked));
        }
        let BufferList { blocks, freed, actions } = &self.buffers;
        if !(blocks.is_empty() && freed.is_empty() && actions.is_empty()) {
            self.shared.add_buffers(self.list, &mut self.buffers);
        }
        let used = self.shared.transaction.leave(self.credits);
        if used > self.shared.transaction.most() / 2 {
            self.shared.request(self.tid);
        }
    }
}
