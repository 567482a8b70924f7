//! Commits and checkpoints, one after the other.
//!
//! There is one [`Store`], and who has taken it works with it alone: first of all a thread that waits for a commit, and for
//! what nobody waits for the journal's own thread ([`run`]). That there is one makes the rest simple: a checkpoint never writes a block home
//! while a commit frees it.

use std::io;
use std::sync::Arc;

use dentree_bufcache::{BufCache, Buffer};

use crate::error::Cause;
use crate::format::Tid;
use crate::home;
use crate::log::Log;
use crate::shared::{Action, Job, Pieces, Shared, Work};

/// What a transaction did, taken over by its commit.
pub(crate) struct Batch {
    pub(crate) tid: Tid,
    /// In ascending order, each once, without those that it freed.
    pub(crate) blocks: Vec<(u64, Buffer)>,
    /// Runs that it freed.
    pub(crate) freed: Vec<(u64, u64)>,
}

/// Where committed transactions go.
pub(crate) enum Store {
    /// An image without a journal: home, at once.
    Home,
    /// To a journal.
    Log(Box<Log>),
}

/// Makes a device's error the cause of an abort.
pub(crate) fn during(doing: &'static str) -> impl FnOnce(io::Error) -> Cause {
    move |source| Cause::Device { doing, source }
}

/// Does what nobody waits for, or who waits cannot do, until the journal is closed: the journal's own thread.
pub(crate) fn run(shared: &Shared) {
    // However this thread ends, those who wait for it are to hear of it.
    let _last_words = LastWords(shared);
    while let Some((job, mut work)) = shared.next_job() {
        match job {
            Job::Commit => work.commit(),
            Job::Checkpoint(request) => work.checkpoint(request),
            Job::Relieve => work.relieve(),
            Job::Abandon => work.abandon(),
        }
    }
}

impl Work<'_> {
    /// Commits the running transaction.
    pub(crate) fn commit(&mut self) {
        let tid = self.shared.running();
        self.shared.gate.shut();
        let (taken, actions) = self.take_over(tid);
        // A handle that left in a panic has said so before it left: what it has half done must not be committed.
        let failure = self.shared.failure();
        self.shared.gate.open();
        let outcome = match failure {
            Some(cause) => Err(cause),
            None => taken.and_then(|batch| self.store.commit(&self.shared.cache, batch)).map_err(Arc::new),
        };
        for action in actions {
            action(outcome.clone());
        }
        match outcome {
            Ok(()) => self.shared.committed(tid, self.store.needs_relief()),
            Err(cause) => self.shared.fail(cause),
        }
    }

    fn checkpoint(&mut self, request: u64) {
        match self.store.checkpoint() {
            Ok(()) => self.shared.checkpointed(request),
            Err(cause) => self.shared.fail(Arc::new(cause)),
        }
    }

    fn relieve(&mut self) {
        if let Err(cause) = self.store.relieve() {
            self.shared.fail(Arc::new(cause));
        }
    }

    /// Takes the transaction's blocks as they are now. The gate is shut.
    fn take_over(&self, tid: Tid) -> (Result<Batch, Cause>, Vec<Action>) {
        let mut all = Pieces::default();
        self.shared.take_over(|mut pieces| all.append(&mut pieces));
        let Pieces { mut blocks, mut freed, actions } = all;
        blocks.sort_unstable();
        blocks.dedup();
        freed.sort_unstable();
        let stamp = Shared::stamp(tid);
        let is_freed = |block: u64| {
            let behind = freed.partition_point(|&(first, _)| first <= block);
            freed[..behind].last().is_some_and(|&(first, count)| block - first < count)
        };
        let mut versions = Vec::with_capacity(blocks.len());
        for block in blocks {
            match (self.shared.cache.pinned(block, stamp), is_freed(block)) {
                (Some(buffer), false) => versions.push((block, buffer)),
                (None, true) => {}
                (Some(_), true) | (None, false) => return (Err(Cause::UsedAfterFree { block }), actions),
            }
        }
        (Ok(Batch { tid, blocks: versions, freed }), actions)
    }

    /// Ends the transaction that was running when the journal failed.
    fn abandon(&mut self) {
        self.store.record_abort();
        self.shared.gate.shut();
        let (_, actions) = self.take_over(self.shared.running());
        // Nobody enters: the door is shut for good.
        self.shared.gate.open();
        let cause = self.shared.failure().unwrap_or_else(|| Arc::new(Cause::Closed));
        for action in actions {
            action(Err(Arc::clone(&cause)));
        }
    }
}

struct LastWords<'a>(&'a Shared);

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        self.0.fail(Arc::new(if std::thread::panicking() { Cause::Panicked } else { Cause::Closed }));
    }
}

impl Store {
    /// Brings a transaction to stable storage, with all that was written to the device before.
    fn commit(&mut self, cache: &BufCache, batch: Batch) -> Result<(), Cause> {
        match self {
            Store::Home => commit_home(cache, &batch),
            Store::Log(log) => log.commit(batch),
        }
    }

    /// Whether [`relieve`](Store::relieve) has something to do.
    fn needs_relief(&self) -> bool {
        match self {
            Store::Home => false,
            Store::Log(log) => log.needs_relief(),
        }
    }

    /// Does early, while nobody waits for it, what the next commits would have to wait for.
    fn relieve(&mut self) -> Result<(), Cause> {
        match self {
            Store::Home => Ok(()),
            Store::Log(log) => log.relieve(),
        }
    }

    /// Brings all that is committed home.
    fn checkpoint(&mut self) -> Result<(), Cause> {
        match self {
            Store::Home => Ok(()),
            Store::Log(log) => log.checkpoint(),
        }
    }

    /// Leaves word on the device that the journal was aborted.
    fn record_abort(&mut self) {
        if let Store::Log(log) = self {
            log.record_abort();
        }
    }
}

fn commit_home(cache: &BufCache, batch: &Batch) -> Result<(), Cause> {
    home::write(&**cache.device(), cache.block_size(), &batch.blocks)
        .map_err(during("writing changed blocks"))?;
    cache.device().flush().map_err(during("flushing the device"))?;
    let stamp = Shared::stamp(batch.tid);
    batch.blocks.iter().for_each(|&(block, _)| cache.unpin(block, stamp));
    Ok(())
}
