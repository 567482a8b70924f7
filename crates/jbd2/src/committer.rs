//! Commits and checkpoints, one after the other.
//!
//! There is one [`Store`](crate::store::Store). The thread that takes it works with it alone: a
//! thread that waits for a commit, or the journal's own thread ([`run`]) for work that nobody waits
//! for. So a checkpoint never writes a block home while a commit frees it.

use std::sync::Arc;

use dentree_sync::atomic::Ordering::Relaxed;

use crate::error::Cause;
use crate::home;
use crate::last::LastChanges;
use crate::log::Batch;
use crate::shared::{Job, Pieces, Shared, Work};
use crate::store::{Action, Begun};
use crate::tid::Tid;

/// Does what nobody waits for, or who waits cannot do, until the journal is closed: the journal's
/// own thread.
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

impl Shared {
    /// Has `tid` committed, by this thread where nobody works, and waits for that.
    pub(crate) fn commit(&self, tid: Tid) -> Result<(), Arc<Cause>> {
        while let Some(mut work) = self.work_towards(tid)? {
            work.commit();
        }
        Ok(())
    }
}

impl Work<'_> {
    /// Brings the next transaction to stable storage: the one that the last commit has begun, or
    /// the running one.
    ///
    /// Where somebody waits for the one behind it already, that is begun before the last flush,
    /// which so serves both: of transactions in a row each costs one flush. Who waits commits it,
    /// so that nothing but its commit comes next.
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

    /// Takes the running transaction over, and writes what of it may be written before it is
    /// committed.
    fn begin(&mut self) -> Begun {
        let tid = self.shared.running();
        self.shared.gate.shut();
        let last = self.finish(tid);
        let (taken, actions) = self.take_over(tid);
        // A handle that left in a panic has said so before it left: what it has half done must not
        // be committed.
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

    /// Has the last changes of the running transaction made. The gate is shut.
    fn finish(&self, tid: Tid) -> Result<(), Cause> {
        let Some(finish) = self.shared.finish.get() else { return Ok(()) };
        let mut last = LastChanges::new(&self.shared.cache, tid);
        let finished = finish(&mut last);
        let blocks = last.into_blocks();
        if !blocks.is_empty() {
            self.shared.overdrafts.fetch_add(blocks.len() as u64, Relaxed);
            self.shared.deposit(0, &mut Pieces { blocks, ..Pieces::default() });
        }
        finished.map_err(Cause::during("making the last changes of a transaction"))
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
        let pin = home::pin(tid);
        let is_freed = |block: u64| {
            let behind = freed.partition_point(|&(first, _)| first <= block);
            freed[..behind].last().is_some_and(|&(first, count)| block - first < count)
        };
        let mut versions = Vec::with_capacity(blocks.len());
        for block in blocks {
            match (self.shared.cache.pinned(block, pin), is_freed(block)) {
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
