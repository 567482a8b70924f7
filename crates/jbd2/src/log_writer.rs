//! The log writer: writes committed transactions to the log, or in place on an image without one.

use std::sync::Arc;

use dentree_bufcache::BufCache;

use crate::error::Cause;
use crate::log::{LockedTransaction, Log, Stage};
use crate::tid::Tid;
use crate::write_back;

/// Runs at the end of a transaction.
pub(crate) type Action = Box<dyn FnOnce(Result<(), Arc<Cause>>) + Send>;

/// The target of commits, and the commit in progress.
#[derive(Default)]
pub(crate) struct LogWriter {
    pub(crate) target: Target,
    pub(crate) begun: Option<CommittingTransaction>,
}

#[derive(Default)]
pub(crate) enum Target {
    /// An image without a journal.
    #[default]
    InPlace,
    /// A journal.
    Log(Box<Log>),
}

/// A transaction whose commit is in progress.
pub(crate) struct CommittingTransaction {
    pub(crate) tid: Tid,
    pub(crate) actions: Vec<Action>,
    pub(crate) stage: Result<Stage, Arc<Cause>>,
}

impl LogWriter {
    pub(crate) fn in_log(log: Log) -> LogWriter {
        LogWriter { target: Target::Log(Box::new(log)), begun: None }
    }
}

impl Target {
    /// Writes a transaction except its commit record.
    pub(crate) fn begin_commit(
        &mut self,
        cache: &BufCache,
        locked: LockedTransaction,
    ) -> Result<Stage, Cause> {
        match self {
            Target::InPlace => write_in_place(cache, &locked).map(|()| Stage::Done),
            Target::Log(log) => log.begin_commit(locked),
        }
    }

    /// Writes the commit record. One flush is left to do.
    pub(crate) fn write_commit_record(&mut self, stage: Stage) -> Result<(), Cause> {
        match self {
            Target::InPlace => Ok(()),
            Target::Log(log) => log.write_commit_record(stage),
        }
    }

    /// Whether [`checkpoint_early`](Target::checkpoint_early) has something to do.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        match self {
            Target::InPlace => false,
            Target::Log(log) => log.needs_checkpoint(),
        }
    }

    /// Checkpoints before a commit has to wait for it.
    pub(crate) fn checkpoint_early(&mut self) -> Result<(), Cause> {
        match self {
            Target::InPlace => Ok(()),
            Target::Log(log) => log.checkpoint_early(),
        }
    }

    /// Writes all committed blocks in place.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Cause> {
        match self {
            Target::InPlace => Ok(()),
            Target::Log(log) => log.checkpoint(),
        }
    }

    /// Records on the device that the journal was aborted.
    pub(crate) fn record_abort(&mut self) {
        if let Target::Log(log) = self {
            log.record_abort();
        }
    }
}

fn write_in_place(cache: &BufCache, locked: &LockedTransaction) -> Result<(), Cause> {
    write_back::write(&**cache.device(), cache.block_size(), &locked.blocks)
        .map_err(Cause::during("writing changed blocks"))?;
    // A later read finds them on the device, flushed or not.
    let pin = write_back::pin(locked.tid);
    locked.blocks.iter().for_each(|&(block, _)| cache.unpin(block, pin));
    Ok(())
}
