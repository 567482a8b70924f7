//! The last word on a transaction, before it is taken over.

use std::io;

use dentree_bufcache::BufCache;

use crate::error::Cause;
use crate::home;
use crate::shared::{Pieces, Shared};
use crate::sync::atomic::Ordering::Relaxed;
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

impl LastChanges<'_> {
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
        let changed = self.cache.update(block, home::stamp(self.tid), change)?;
        if changed.is_first {
            self.blocks.push(block);
        }
        Ok(changed.value)
    }
}

impl Shared {
    /// Has the last changes of the running transaction made. The gate is shut.
    pub(crate) fn finish(&self, tid: Tid) -> Result<(), Cause> {
        let Some(finish) = self.finish.get() else { return Ok(()) };
        let mut last = LastChanges { cache: &self.cache, tid, blocks: Vec::new() };
        let finished = finish(&mut last);
        if !last.blocks.is_empty() {
            self.overdrafts.fetch_add(last.blocks.len() as u64, Relaxed);
            self.deposit(0, &mut Pieces { blocks: last.blocks, ..Pieces::default() });
        }
        finished.map_err(Cause::during("making the last changes of a transaction"))
    }
}
