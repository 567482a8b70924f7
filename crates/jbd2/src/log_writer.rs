//! Writes transactions to the log, or in place without one.

use std::sync::Arc;

use dentree_bufcache::BufCache;

use crate::error::Cause;
use crate::log::{LockedTransaction, Log, Stage};
use crate::tid::Tid;
use crate::write_back;

/// Called at the end of a transaction.
pub(crate) type Action = Box<dyn FnOnce(Result<(), Arc<Cause>>) + Send>;

#[derive(Default)]
pub(crate) struct LogWriter {
    pub(crate) target: Target,
    pub(crate) begun: Option<CommittingTransaction>,
}

#[derive(Default)]
pub(crate) enum Target {
    /// There is no journal.
    #[default]
    InPlace,
    Log(Box<Log>),
}

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

    /// The caller flushes afterwards.
    pub(crate) fn write_commit_record(&mut self, stage: Stage) -> Result<(), Cause> {
        match self {
            Target::InPlace => Ok(()),
            Target::Log(log) => log.write_commit_record(stage),
        }
    }

    pub(crate) fn needs_checkpoint(&self) -> bool {
        match self {
            Target::InPlace => false,
            Target::Log(log) => log.needs_checkpoint(),
        }
    }

    /// Before commits wait for it.
    pub(crate) fn checkpoint_early(&mut self) -> Result<(), Cause> {
        match self {
            Target::InPlace => Ok(()),
            Target::Log(log) => log.checkpoint_early(),
        }
    }

    pub(crate) fn checkpoint(&mut self) -> Result<(), Cause> {
        match self {
            Target::InPlace => Ok(()),
            Target::Log(log) => log.checkpoint(),
        }
    }

    pub(crate) fn record_abort(&mut self) {
        if let Target::Log(log) = self {
            log.record_abort();
        }
    }
}

fn write_in_place(cache: &BufCache, locked: &LockedTransaction) -> Result<(), Cause> {
    write_back::write(&**cache.device(), cache.block_size(), &locked.blocks)
        .map_err(Cause::during("writing changed blocks"))?;
    // Reads find them on the device, flushed or not.
    let pin = write_back::pin(locked.tid);
    locked.blocks.iter().for_each(|&(block, _)| cache.unpin(block, pin));
    Ok(())
}
