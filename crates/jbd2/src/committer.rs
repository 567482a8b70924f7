//! Commits and checkpoints.
//!
//! A thread that holds the [`LogWriter`](crate::log_writer::LogWriter) commits: a waiter, or the
//! journal's thread ([`run`]) if there is none. There is one log writer, so no checkpoint writes a
//! block in place while a commit frees it.

use std::sync::Arc;

use dentree_sync::atomic::Ordering::Relaxed;

use crate::before_commit::BeforeCommit;
use crate::error::Cause;
use crate::log::LockedTransaction;
use crate::log_writer::{Action, CommittingTransaction};
use crate::shared::{BufferList, Job, Shared, Work};
use crate::tid::Tid;
use crate::write_back;

/// The journal's thread: does the work that has no waiter.
pub(crate) fn run(shared: &Shared) {
    // Waiters must return even if this thread panics.
    let _fail_on_exit = FailOnExit(shared);
    while let Some((job, mut work)) = shared.next_job() {
        match job {
            Job::Commit => work.commit(),
            Job::Checkpoint(request) => work.checkpoint(request),
            Job::CheckpointEarly => work.checkpoint_early(),
            Job::Abandon => work.abandon(),
        }
    }
}

impl Shared {
    /// Waits for the commit of `tid`; commits on this thread if the log writer is idle.
    pub(crate) fn commit(&self, tid: Tid) -> Result<(), Arc<Cause>> {
        while let Some(mut work) = self.work_towards(tid)? {
            work.commit();
        }
        Ok(())
    }
}

impl Work<'_> {
    /// If a thread already waits for a later transaction, its commit begins before this one's last
    /// flush, which serves both: consecutive transactions cost one flush each.
    pub(crate) fn commit(&mut self) {
        let begun = self.writer.begun.take();
        let CommittingTransaction { tid, actions, stage } = begun.unwrap_or_else(|| self.begin());
        let written = stage.and_then(|stage| self.writer.target.write_commit_record(stage).map_err(Arc::new));
        if written.is_ok() && self.shared.awaits_after(tid) {
            self.writer.begun = Some(self.begin());
        }
        let outcome = written.and_then(|()| self.flush());
        for action in actions {
            action(outcome.clone());
        }
        match outcome {
            Ok(()) => self.shared.committed(tid, self.writer.target.needs_checkpoint()),
            Err(cause) => self.shared.fail(cause),
        }
    }

    /// Locks the running transaction, starts the next, and writes all but the commit record.
    fn begin(&mut self) -> CommittingTransaction {
        let tid = self.shared.running();
        self.shared.transaction.lock_down();
        let hook = self.before_commit(tid);
        let (taken, actions) = self.take_over(tid);
        // Read before `open`: a handle that panics sets the failure before it leaves.
        let failure = self.shared.failure();
        self.shared.transaction.open();
        let stage = match failure {
            Some(cause) => Err(cause),
            None => hook
                .and(taken)
                .and_then(|locked| self.writer.target.begin_commit(&self.shared.cache, locked))
                .map_err(Arc::new),
        };
        CommittingTransaction { tid, actions, stage }
    }

    /// [transaction locked]
    fn before_commit(&self, tid: Tid) -> Result<(), Cause> {
        let Some(hook) = self.shared.before_commit.get() else { return Ok(()) };
        let mut changes = BeforeCommit::new(&self.shared.cache, tid);
        let result = hook(&mut changes);
        let blocks = changes.into_blocks();
        if !blocks.is_empty() {
            self.shared.overdrafts.fetch_add(blocks.len() as u64, Relaxed);
            self.shared.add_buffers(0, &mut BufferList { blocks, ..BufferList::default() });
        }
        result.map_err(Cause::during("running the before_commit hook"))
    }

    fn flush(&mut self) -> Result<(), Arc<Cause>> {
        write_back::flush(&**self.shared.cache.device())?;
        if let Some(CommittingTransaction { stage: Ok(stage), .. }) = &mut self.writer.begun {
            stage.flushed();
        }
        Ok(())
    }

    fn checkpoint(&mut self, request: u64) {
        match self.writer.target.checkpoint() {
            Ok(()) => self.shared.checkpointed(request),
            Err(cause) => self.shared.fail(Arc::new(cause)),
        }
    }

    fn checkpoint_early(&mut self) {
        if let Err(cause) = self.writer.target.checkpoint_early() {
            self.shared.fail(Arc::new(cause));
        }
    }

    /// [transaction locked]
    fn take_over(&self, tid: Tid) -> (Result<LockedTransaction, Cause>, Vec<Action>) {
        let mut all = BufferList::default();
        self.shared.take_over(|mut buffers| all.append(&mut buffers));
        let BufferList { mut blocks, mut freed, actions } = all;
        blocks.sort_unstable();
        blocks.dedup();
        freed.sort_unstable();
        let pin = write_back::pin(tid);
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
        (Ok(LockedTransaction { tid, blocks: versions, freed }), actions)
    }

    /// Ends transactions after a failure.
    fn abandon(&mut self) {
        self.writer.target.record_abort();
        self.shared.transaction.lock_down();
        let (_, running) = self.take_over(self.shared.running());
        // The journal is aborted: no handle joins.
        self.shared.transaction.open();
        let cause = self.shared.failure().unwrap_or_else(|| Arc::new(Cause::Closed));
        let begun = self.writer.begun.take().map(|begun| begun.actions);
        for action in begun.into_iter().flatten().chain(running) {
            action(Err(Arc::clone(&cause)));
        }
    }
}

struct FailOnExit<'a>(&'a Shared);

impl Drop for FailOnExit<'_> {
    fn drop(&mut self) {
        self.0.fail(Arc::new(if std::thread::panicking() { Cause::Panicked } else { Cause::Closed }));
    }
}
