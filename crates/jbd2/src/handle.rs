//! A handle: one operation's part of a transaction.

use std::io;
use std::sync::Arc;

use dentree_sync::atomic::Ordering::Relaxed;

use crate::error::{Cause, Error};
use crate::home;
use crate::shared::{Pieces, Shared};
use crate::tid::Tid;

/// One operation's part of a transaction, see [`Journal::start`](crate::Journal::start). All that is changed through it
/// happens, or nothing, should the power fail.
///
/// While it is there its transaction stays open, and so does the commit that others wait for. Its thread must not wait for a commit,
/// and must not start a second handle. It ends with [`stop`](Handle::stop), or when it is dropped; dropped by a panic it aborts
/// the journal, as nobody knows what is half done.
pub struct Handle<'a> {
    shared: &'a Shared,
    tid: Tid,
    seat: usize,
    credits: u32,
    pieces: Pieces,
}

impl<'a> Handle<'a> {
    pub(crate) fn start(shared: &'a Shared, credits: u32) -> Result<Handle<'a>, Error> {
        let most = shared.gate.most();
        if credits > most {
            return Err(Error::TooLarge { credits, most });
        }
        let Some(seat) = shared.gate.enter_or_wait(credits, || shared.request(shared.running())) else {
            return Err(shared.failure().unwrap_or_else(|| Arc::new(Cause::Closed)).into());
        };
        Ok(Handle { shared, tid: shared.running(), seat, credits, pieces: Pieces::default() })
    }

    /// The transaction that the changes are part of.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Blocks that this handle may yet change for the first time in its transaction.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Changes a block: `change` is shown its bytes, as a next version of it. It may run under a lock of the cache: it must be
    /// short and must not use the cache.
    ///
    /// The block costs a credit where the transaction has not changed it before. Where there is none left the change is
    /// made all the same, and counted ([`Journal::overdrafts`](crate::Journal::overdrafts)).
    ///
    /// # Errors
    /// That the block cannot be read: nothing was changed.
    #[inline]
    pub fn update<R>(&mut self, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let changed = self.shared.cache.update(block, home::pin(self.tid), change)?;
        if changed.is_first {
            self.add(block);
        }
        Ok(changed.value)
    }

    /// As [`update`](Handle::update), of a block that begins as zeros and is not read: one that was just allocated.
    ///
    /// # Errors
    /// That the block is not on the device.
    pub fn create<R>(&mut self, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let changed = self.shared.cache.create(block, home::pin(self.tid), change)?;
        if changed.is_first {
            self.add(block);
        }
        Ok(changed.value)
    }

    fn add(&mut self, block: u64) {
        self.pieces.blocks.push(block);
        match self.credits.checked_sub(1) {
            Some(left) => self.credits = left,
            None => {
                self.shared.gate.overdraw();
                self.shared.overdrafts.fetch_add(1, Relaxed);
            }
        }
    }

    /// Says that blocks which were changed through a journal are freed: their content is nobody's, and a replay must not bring it
    /// back. They leave the cache now. They must not be allocated, not even for data, before this transaction is
    /// committed: see [`after_commit`](Handle::after_commit).
    ///
    /// Only blocks of metadata need this. It costs no credits.
    pub fn forget(&mut self, first: u64, count: u64) {
        self.shared.cache.discard(first, count);
        self.pieces.freed.push((first, count));
    }

    /// Runs `action` when the transaction has ended: with `Ok` once it is on stable storage and before those who wait for
    /// the commit go on; with the cause if the journal was aborted, and nothing of the transaction happened.
    ///
    /// It runs on the thread that commits for everybody, which may be any that waits for a commit: it must be short, must not use the
    /// journal, and must take no lock that somebody holds who waits for a commit.
    pub fn after_commit(&mut self, action: impl FnOnce(Result<(), Arc<Cause>>) + Send + 'static) {
        self.pieces.actions.push(Box::new(action));
    }

    /// Asks for more credits. `false` where the transaction has no room: then [`restart`](Handle::restart) where the tree is
    /// sound.
    pub fn extend(&mut self, credits: u32) -> bool {
        let extended = self.shared.gate.extend(credits);
        if extended {
            self.credits += credits;
        }
        extended
    }

    /// Ends this part of the work, and begins another, maybe in a later transaction: what was changed so far may be
    /// committed without what comes. Waits where there is no room.
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
        let Pieces { blocks, freed, actions } = &self.pieces;
        if !(blocks.is_empty() && freed.is_empty() && actions.is_empty()) {
            self.shared.deposit(self.seat, &mut self.pieces);
        }
        let used = self.shared.gate.leave(self.credits);
        if used > self.shared.gate.most() / 2 {
            self.shared.request(self.tid);
        }
    }
}
