//! The hook that changes blocks of a locked transaction.

use std::io;

use dentree_bufcache::BufCache;

use crate::tid::Tid;
use crate::write_back;

pub(crate) type BeforeCommitHook = Box<dyn Fn(&mut BeforeCommit<'_>) -> io::Result<()> + Send + Sync>;

/// Changes blocks of a locked transaction. See
/// [`Journal::before_commit`](crate::Journal::before_commit).
pub struct BeforeCommit<'a> {
    cache: &'a BufCache,
    tid: Tid,
    /// New to the transaction.
    blocks: Vec<u64>,
}

impl<'a> BeforeCommit<'a> {
    pub(crate) fn new(cache: &'a BufCache, tid: Tid) -> Self {
        BeforeCommit { cache, tid, blocks: Vec::new() }
    }

    pub(crate) fn into_blocks(self) -> Vec<u64> {
        self.blocks
    }

    /// The locked transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// As [`Handle::update`](crate::Handle::update); a block new to the transaction is an
    /// overdraft.
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
