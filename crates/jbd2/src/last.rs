//! The last changes of a transaction, before its commit.

use std::io;

use dentree_bufcache::BufCache;

use crate::tid::Tid;
use crate::write_back;

/// Called for each transaction before its commit.
pub(crate) type Finish = Box<dyn Fn(&mut LastChanges<'_>) -> io::Result<()> + Send + Sync>;

/// Changes blocks of a locked transaction, so that what many handles change in memory is put into
/// its block once. See [`Journal::before_commit`](crate::Journal::before_commit).
pub struct LastChanges<'a> {
    cache: &'a BufCache,
    tid: Tid,
    /// Blocks that the transaction had not changed.
    blocks: Vec<u64>,
}

impl<'a> LastChanges<'a> {
    pub(crate) fn new(cache: &'a BufCache, tid: Tid) -> Self {
        LastChanges { cache, tid, blocks: Vec::new() }
    }

    /// Blocks that the transaction had not changed before.
    pub(crate) fn into_blocks(self) -> Vec<u64> {
        self.blocks
    }

    /// The transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// As [`Handle::update`](crate::Handle::update). A block that the transaction has changed
    /// before is in memory and has a credit; any other counts as an overdraft.
    ///
    /// # Errors
    /// The block cannot be read; nothing is changed.
    pub fn update<R>(&mut self, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let changed = self.cache.update(block, write_back::pin(self.tid), change)?;
        if changed.is_first {
            self.blocks.push(block);
        }
        Ok(changed.value)
    }
}
