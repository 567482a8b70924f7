//! Where committed transactions go: to the journal, or home at once.

use std::sync::Arc;

use dentree_bufcache::BufCache;

use crate::error::Cause;
use crate::home;
use crate::log::{Batch, Log, Stage};
use crate::tid::Tid;

/// What runs when a transaction has ended.
pub(crate) type Action = Box<dyn FnOnce(Result<(), Arc<Cause>>) + Send>;

/// Where committed transactions go, and the commit that has begun.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) place: Place,
    pub(crate) begun: Option<Begun>,
}

#[derive(Default)]
pub(crate) enum Place {
    /// An image without a journal: home, at once.
    #[default]
    Home,
    /// To a journal.
    Log(Box<Log>),
}

/// A transaction that is taken over, and on its way.
pub(crate) struct Begun {
    pub(crate) tid: Tid,
    pub(crate) actions: Vec<Action>,
    pub(crate) stage: Result<Stage, Arc<Cause>>,
}

impl Store {
    pub(crate) fn in_log(log: Log) -> Store {
        Store { place: Place::Log(Box::new(log)), begun: None }
    }
}

impl Place {
    /// Writes what may be written of a transaction before it is committed.
    pub(crate) fn begin(&mut self, cache: &BufCache, batch: Batch) -> Result<Stage, Cause> {
        match self {
            Place::Home => write_home(cache, &batch).map(|()| Stage::Done),
            Place::Log(log) => log.begin(batch),
        }
    }

    /// Does all that is left to do for a transaction but a last flush.
    pub(crate) fn seal(&mut self, stage: Stage) -> Result<(), Cause> {
        match self {
            Place::Home => Ok(()),
            Place::Log(log) => log.seal(stage),
        }
    }

    /// Whether [`relieve`](Place::relieve) has something to do.
    pub(crate) fn needs_relief(&self) -> bool {
        match self {
            Place::Home => false,
            Place::Log(log) => log.needs_relief(),
        }
    }

    /// Does early, while nobody waits for it, what the next commits would have to wait for.
    pub(crate) fn relieve(&mut self) -> Result<(), Cause> {
        match self {
            Place::Home => Ok(()),
            Place::Log(log) => log.relieve(),
        }
    }

    /// Brings all that is committed home.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Cause> {
        match self {
            Place::Home => Ok(()),
            Place::Log(log) => log.checkpoint(),
        }
    }

    /// Leaves word on the device that the journal was aborted.
    pub(crate) fn record_abort(&mut self) {
        if let Place::Log(log) = self {
            log.record_abort();
        }
    }
}

fn write_home(cache: &BufCache, batch: &Batch) -> Result<(), Cause> {
    home::write(&**cache.device(), cache.block_size(), &batch.blocks)
        .map_err(Cause::during("writing changed blocks"))?;
    // Whoever reads them again finds them on the device, flushed or not.
    let pin = home::pin(batch.tid);
    batch.blocks.iter().for_each(|&(block, _)| cache.unpin(block, pin));
    Ok(())
}
