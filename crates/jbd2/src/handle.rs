//! A handle: one operation's part of a transaction.

use std::io;
use std::sync::Arc;

use dentree_sync::atomic::Ordering::Relaxed;

use crate::error::{Cause, Error};
use crate::shared::{BufferList, Shared};
use crate::tid::Tid;
use crate::write_back;

/// One operation's part of a transaction, see [`Journal::start`](crate::Journal::start). After a
/// crash, all of its changes are there, or none.
///
/// A commit of its transaction waits for it. Its thread must not wait for a commit, or start a
/// second handle. It ends with [`stop`](Handle::stop) or when it is dropped; dropped by a panic it
/// aborts the journal, because its changes are incomplete.
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

    /// The transaction that the changes are part of.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Number of further blocks that this handle may change first in its transaction.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Makes the next version of a block with `change`, which may run under a lock of the cache: it
    /// must be short and must not use the cache.
    ///
    /// A block that the transaction has not changed before costs a credit. Without one the change
    /// is made and counted ([`Journal::overdrafts`](crate::Journal::overdrafts)).
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

    /// As [`update`](Handle::update), for a newly allocated block: from zeros, without a read.
    ///
    /// # Errors
    /// The block is not on the device.
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

    /// Drops freed blocks of metadata from the cache, and revokes their copies in the log, so that
    /// no replay writes them. They must not be allocated, even for data, before this transaction is
    /// committed; see [`after_commit`](Handle::after_commit). Costs no credits.
    pub fn forget(&mut self, first: u64, count: u64) {
        self.shared.cache.discard(first, count);
        self.buffers.freed.push((first, count));
    }

    /// Runs `action` at the end of the transaction: with `Ok` once it is on stable storage, before
    /// its waiters go on; with the cause if the journal was aborted without it.
    ///
    /// It runs on the committing thread, which may be any waiter: it must be short, must not use
    /// the journal, and must take no lock that a thread holds while it waits for a commit.
    pub fn after_commit(&mut self, action: impl FnOnce(Result<(), Arc<Cause>>) + Send + 'static) {
        self.buffers.actions.push(Box::new(action));
    }

    /// Takes more credits. `false`: the transaction has too few; [`restart`](Handle::restart) where
    /// the file system is consistent.
    pub fn extend(&mut self, credits: u32) -> bool {
        let extended = self.shared.transaction.extend(credits);
        if extended {
            self.credits += credits;
        }
        extended
    }

    /// Stops, and starts another handle, perhaps in a later transaction: the changes so far may be
    /// committed without the next ones. Waits for credits.
    ///
    /// # Errors
    /// Those of [`Journal::start`](crate::Journal::start).
    pub fn restart(self, credits: u32) -> Result<Handle<'a>, Error> {
        let shared = self.shared;
        self.stop();
        Handle::start(shared, credits)
    }

    /// Ends the operation. Returns the transaction that it is part of, for
    /// [`Journal::wait_commit`](crate::Journal::wait_commit).
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
