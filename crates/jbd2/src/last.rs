//! The last word on a transaction, before it is taken over.

use std::io;

use dentree_bufcache::BufCache;

use crate::home;
use crate::tid::Tid;

/// Called for each transaction before it is taken over.
pub(crate) type Finish = Box<dyn Fn(&mut LastChanges<'_>) -> io::Result<()> + Send + Sync>;

/// Changes of blocks that a transaction has changed already, made when no handle is inside any more: so what many handles change in
/// memory is put into its block once. See [`Journal::before_commit`](crate::Journal::before_commit).
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

    /// The transaction that is taken over.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// As [`Handle::update`](crate::Handle::update). A block that the transaction has changed before is in memory, and has its credit; another
    /// counts as changed beyond the credits that were asked for.
    ///
    /// # Errors
    /// That the block cannot be read: nothing was changed.
    pub fn update<R>(&mut self, block: u64, change: impl FnOnce(&mut [u8]) -> R) -> io::Result<R> {
        let changed = self.cache.update(block, home::pin(self.tid), change)?;
        if changed.is_first {
            self.blocks.push(block);
        }
        Ok(changed.value)
    }
}
