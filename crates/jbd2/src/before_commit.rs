//! The `before_commit` hook: changes that a commit makes in the transaction that it has locked.

use std::io;

use dentree_bufcache::BufCache;

use crate::tid::Tid;
use crate::write_back;

/// The hook; set by [`Journal::before_commit`](crate::Journal::before_commit).
pub(crate) type BeforeCommitHook = Box<dyn Fn(&mut BeforeCommit<'_>) -> io::Result<()> + Send + Sync>;

/// Changes blocks of a locked transaction: state that handles change in memory goes into its block
/// once. See [`Journal::before_commit`](crate::Journal::before_commit).
pub struct BeforeCommit<'a> {
    cache: &'a BufCache,
    tid: Tid,
    /// Blocks that the transaction had not changed before.
    blocks: Vec<u64>,
}

impl<'a> BeforeCommit<'a> {
    pub(crate) fn new(cache: &'a BufCache, tid: Tid) -> Self {
        BeforeCommit { cache, tid, blocks: Vec::new() }
    }

    /// Blocks that the transaction had not changed before.
    pub(crate) fn into_blocks(self) -> Vec<u64> {
        self.blocks
    }

    /// The locked transaction.
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
