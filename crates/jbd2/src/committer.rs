//! Commits and checkpoints, one after the other.
//!
//! There is one [`Store`], and who has taken it works with it alone: first of all a thread that waits for a commit, and for
//! what nobody waits for the journal's own thread ([`run`]). That there is one makes the rest simple: a checkpoint never writes a block home
//! while a commit frees it.

use std::sync::Arc;

use dentree_bufcache::BufCache;

use crate::error::Cause;
use crate::home;
use crate::log::{Batch, Log, Stage};
use crate::shared::{Action, Job, Pieces, Shared, Work};
use crate::tid::Tid;

/// Where committed transactions go, and the commit that has begun.
#[derive(Default)]
pub(crate) struct Store {
    place: Place,
    begun: Option<Begun>,
}

#[derive(Default)]
enum Place {
    /// An image without a journal: home, at once.
    #[default]
    Home,
    /// To a journal.
    Log(Box<Log>),
}

/// A transaction that is taken over, and on its way.
struct Begun {
    tid: Tid,
    actions: Vec<Action>,
    stage: Result<Stage, Arc<Cause>>,
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
    /// Brings the next transaction to stable storage: the one that the last commit has begun, or the running one.
    ///
    /// Where somebody waits for the one behind it already, that is begun before the last flush, which so serves both: of
    /// transactions in a row each costs one flush. Who waits commits it, so that nothing but its commit comes next.
    pub(crate) fn commit(&mut self) {
        let begun = self.store.begun.take();
        let Begun { tid, actions, stage } = begun.unwrap_or_else(|| self.begin());
        let sealed = stage.and_then(|stage| self.store.place.seal(stage).map_err(Arc::new));
        if sealed.is_ok() && self.shared.awaits_behind(tid) {
            self.store.begun = Some(self.begin());
        }
        let outcome = sealed.and_then(|()| self.flush());
        for action in actions {
            action(outcome.clone());
        }
        match outcome {
            Ok(()) => self.shared.committed(tid, self.store.place.needs_relief()),
            Err(cause) => self.shared.fail(cause),
        }
    }

    /// Takes the running transaction over, and writes what of it may be written before it is committed.
    fn begin(&mut self) -> Begun {
        let tid = self.shared.running();
        self.shared.gate.shut();
        let last = self.shared.finish(tid);
        let (taken, actions) = self.take_over(tid);
        // A handle that left in a panic has said so before it left: what it has half done must not be committed.
        let failure = self.shared.failure();
        self.shared.gate.open();
        let stage = match failure {
            Some(cause) => Err(cause),
            None => last
                .and(taken)
                .and_then(|batch| self.store.place.begin(&self.shared.cache, batch))
                .map_err(Arc::new),
        };
        Begun { tid, actions, stage }
    }

    /// Brings all that was written to stable storage.
    fn flush(&mut self) -> Result<(), Arc<Cause>> {
        home::flush(&**self.shared.cache.device())?;
        if let Some(Begun { stage: Ok(stage), .. }) = &mut self.store.begun {
            stage.flushed();
        }
        Ok(())
    }

    fn checkpoint(&mut self, request: u64) {
        match self.store.place.checkpoint() {
            Ok(()) => self.shared.checkpointed(request),
            Err(cause) => self.shared.fail(Arc::new(cause)),
        }
    }

    fn relieve(&mut self) {
        if let Err(cause) = self.store.place.relieve() {
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
        let stamp = home::stamp(tid);
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

    /// Ends the transactions that were running, or begun, when the journal failed.
    fn abandon(&mut self) {
        self.store.place.record_abort();
        self.shared.gate.shut();
        let (_, running) = self.take_over(self.shared.running());
        // Nobody enters: the door is shut for good.
        self.shared.gate.open();
        let cause = self.shared.failure().unwrap_or_else(|| Arc::new(Cause::Closed));
        let begun = self.store.begun.take().map(|begun| begun.actions);
        for action in begun.into_iter().flatten().chain(running) {
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
    pub(crate) fn in_log(log: Log) -> Store {
        Store { place: Place::Log(Box::new(log)), begun: None }
    }
}

impl Place {
    /// Writes what may be written of a transaction before it is committed.
    fn begin(&mut self, cache: &BufCache, batch: Batch) -> Result<Stage, Cause> {
        match self {
            Place::Home => write_home(cache, &batch).map(|()| Stage::Done),
            Place::Log(log) => log.begin(batch),
        }
    }

    /// Does all that is left to do for a transaction but a last flush.
    fn seal(&mut self, stage: Stage) -> Result<(), Cause> {
        match self {
            Place::Home => Ok(()),
            Place::Log(log) => log.seal(stage),
        }
    }

    /// Whether [`relieve`](Place::relieve) has something to do.
    fn needs_relief(&self) -> bool {
        match self {
            Place::Home => false,
            Place::Log(log) => log.needs_relief(),
        }
    }

    /// Does early, while nobody waits for it, what the next commits would have to wait for.
    fn relieve(&mut self) -> Result<(), Cause> {
        match self {
            Place::Home => Ok(()),
            Place::Log(log) => log.relieve(),
        }
    }

    /// Brings all that is committed home.
    fn checkpoint(&mut self) -> Result<(), Cause> {
        match self {
            Place::Home => Ok(()),
            Place::Log(log) => log.checkpoint(),
        }
    }

    /// Leaves word on the device that the journal was aborted.
    fn record_abort(&mut self) {
        if let Place::Log(log) = self {
            log.record_abort();
        }
    }
}

fn write_home(cache: &BufCache, batch: &Batch) -> Result<(), Cause> {
    home::write(&**cache.device(), cache.block_size(), &batch.blocks)
        .map_err(Cause::during("writing changed blocks"))?;
    // Whoever reads them again finds them on the device, flushed or not.
    let stamp = home::stamp(batch.tid);
    batch.blocks.iter().for_each(|&(block, _)| cache.unpin(block, stamp));
    Ok(())
}
