//! State shared by handles, waiters and the committer.
//!
//! A thread takes the [`LogWriter`] out of the state to commit or checkpoint ([`Work`]). A waiter
//! that finds it commits by itself, which saves a wake-up. Other waiters sleep; the first to wake
//! afterwards commits for all.
//!
//! # Guarantees
//! - S1: one thread at a time commits or checkpoints: it takes the log writer under the mutex.
//! - S2: no work is left. Requests and the return of the log writer happen under the mutex. A
//!   request without a waiter wakes the journal's thread. The return wakes all waiters, and the
//!   journal's thread if the next work has no waiter.
//! - S3: no lost wake-up: a thread checks the state and sleeps without releasing the mutex between.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dentree_bufcache::BufCache;
use dentree_sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use dentree_sync::{Condvar, Mutex, Padded};

use crate::before_commit::BeforeCommitHook;
use crate::error::Cause;
use crate::log_writer::{Action, LogWriter};
use crate::tid::Tid;
use crate::transaction::TransactionState;

#[derive(Default)]
pub(crate) struct BufferList {
    /// Each once, unless dropped from the cache in between.
    pub(crate) blocks: Vec<u64>,
    /// Freed runs: first block and count.
    pub(crate) freed: Vec<(u64, u64)>,
    pub(crate) actions: Vec<Action>,
}

impl BufferList {
    pub(crate) fn append(&mut self, other: &mut BufferList) {
        if self.blocks.is_empty() {
            std::mem::swap(&mut self.blocks, &mut other.blocks);
        }
        self.blocks.append(&mut other.blocks);
        self.freed.append(&mut other.freed);
        self.actions.append(&mut other.actions);
    }
}

/// Handles that stop at once without waiting.
const LISTS: usize = 16;

pub(crate) struct Shared {
    pub(crate) cache: Arc<BufCache>,
    pub(crate) transaction: TransactionState,
    /// Changes while the transaction is locked. [transaction, state]
    running: AtomicU32,
    lists: [Padded<Mutex<BufferList>>; LISTS],
    pub(crate) overdrafts: AtomicU64,
    pub(crate) before_commit: OnceLock<BeforeCommitHook>,
    state: Mutex<State>,
    /// Wakes the journal's thread.
    work: Condvar,
    /// Wakes waiters.
    done: Condvar,
    interval: Option<Duration>,
}

struct State {
    /// `None`: a thread works with it.
    writer: Option<LogWriter>,
    /// Last transaction requested.
    wanted: Tid,
    /// Last transaction with a waiter.
    awaited: Tid,
    committed: Tid,
    needs_checkpoint: bool,
    /// Requested, and made.
    checkpoints: (u64, u64),
    is_closing: bool,
    failure: Option<Arc<Cause>>,
    /// Actions of failed transactions have been called.
    is_abandoned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Commit,
    /// The request's number.
    Checkpoint(u64),
    CheckpointEarly,
    /// After a failure.
    Abandon,
}

impl State {
    fn job(&self) -> Option<Job> {
        if self.failure.is_some() {
            (!self.is_abandoned).then_some(Job::Abandon)
        } else if self.wanted.is_after(self.committed) {
            Some(Job::Commit)
        } else if self.checkpoints.0 > self.checkpoints.1 {
            Some(Job::Checkpoint(self.checkpoints.0))
        } else {
            self.needs_checkpoint.then_some(Job::CheckpointEarly)
        }
    }

    /// All but commits with a waiter.
    fn is_for_thread(&self) -> bool {
        match self.job() {
            Some(Job::Commit) => !self.awaited.is_after(self.committed),
            Some(_) => true,
            None => self.is_closing,
        }
    }
}

/// Exclusive use of the log writer.
pub(crate) struct Work<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) writer: LogWriter,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(Arc::new(Cause::Panicked));
        }
        self.shared.release_writer(std::mem::take(&mut self.writer));
    }
}

impl Shared {
    pub(crate) fn new(
        cache: Arc<BufCache>,
        writer: LogWriter,
        first: Tid,
        most: u32,
        interval: Option<Duration>,
    ) -> Self {
        let committed = first.previous();
        Shared {
            cache,
            transaction: TransactionState::new(most),
            running: AtomicU32::new(first.0),
            lists: Default::default(),
            overdrafts: AtomicU64::new(0),
            before_commit: OnceLock::new(),
            state: Mutex::new(State {
                writer: Some(writer),
                wanted: committed,
                awaited: committed,
                committed,
                needs_checkpoint: false,
                checkpoints: (0, 0),
                is_closing: false,
                failure: None,
                is_abandoned: false,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            interval,
        }
    }

    /// Stable while the caller has a handle.
    pub(crate) fn running(&self) -> Tid {
        Tid(self.running.load(Relaxed))
    }

    /// Call it before the handle leaves.
    pub(crate) fn add_buffers(&self, list: usize, buffers: &mut BufferList) {
        self.lists[list % LISTS].0.lock().append(buffers);
    }

    /// [transaction locked]
    pub(crate) fn take_over(&self, mut take: impl FnMut(BufferList)) {
        for list in &self.lists {
            take(std::mem::take(&mut *list.0.lock()));
        }
        let _state = self.state.lock();
        self.running.store(self.running().next().0, Relaxed);
    }

    pub(crate) fn awaits_after(&self, tid: Tid) -> bool {
        self.state.lock().awaited.is_after(tid)
    }

    /// Requests a commit from the journal's thread.
    pub(crate) fn request(&self, tid: Tid) {
        let mut state = self.state.lock();
        let tid = self.not_ahead(tid);
        if tid.is_after(state.wanted) {
            state.wanted = tid;
            self.work.notify_one();
        }
    }

    /// Later transactions are empty.
    fn not_ahead(&self, tid: Tid) -> Tid {
        if tid.is_after(self.running()) { self.running() } else { tid }
    }

    /// `None`: `tid` is committed. Otherwise the caller must commit.
    pub(crate) fn work_towards(&self, tid: Tid) -> Result<Option<Work<'_>>, Arc<Cause>> {
        let mut state = self.state.lock();
        let wanted = self.not_ahead(tid);
        state.wanted = state.wanted.later(wanted);
        state.awaited = state.awaited.later(wanted);
        loop {
            if !tid.is_after(state.committed) {
                return Ok(None);
            }
            if let Some(cause) = &state.failure {
                return Err(Arc::clone(cause));
            }
            state = match state.writer.take() {
                Some(writer) => return Ok(Some(Work { shared: self, writer })),
                None => self.done.wait(state),
            };
        }
    }

    /// Waits for the log writer: until it is given back, nothing is committed or checkpointed.
    pub(crate) fn hold_writer(&self) -> Result<Work<'_>, Arc<Cause>> {
        let mut state = self.state.lock();
        loop {
            if let Some(cause) = &state.failure {
                return Err(Arc::clone(cause));
            }
            state = match state.writer.take() {
                Some(writer) => return Ok(Work { shared: self, writer }),
                None => self.done.wait(state),
            };
        }
    }

    pub(crate) fn checkpoint(&self) -> Result<(), Arc<Cause>> {
        let mut state = self.state.lock();
        state.checkpoints.0 += 1;
        let mine = state.checkpoints.0;
        self.work.notify_one();
        loop {
            if let Some(cause) = &state.failure {
                return Err(Arc::clone(cause));
            }
            if state.checkpoints.1 >= mine {
                return Ok(());
            }
            state = self.done.wait(state);
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().is_closing = true;
        self.work.notify_one();
    }

    /// The first cause stays.
    pub(crate) fn fail(&self, cause: Arc<Cause>) {
        self.state.lock().failure.get_or_insert(cause);
        self.transaction.abort();
        self.work.notify_one();
        self.done.notify_all();
    }

    pub(crate) fn failure(&self) -> Option<Arc<Cause>> {
        self.state.lock().failure.clone()
    }

    /// `None`: the journal is closed.
    pub(crate) fn next_job(&self) -> Option<(Job, Work<'_>)> {
        let mut state = self.state.lock();
        loop {
            if let Some(writer) = state.writer.take() {
                if let Some(job) = state.job() {
                    state.is_abandoned |= job == Job::Abandon;
                    state.needs_checkpoint &= job != Job::CheckpointEarly;
                    return Some((job, Work { shared: self, writer }));
                }
                state.writer = Some(writer);
                if state.is_closing {
                    return None;
                }
            }
            let is_late;
            (state, is_late) = self.work.wait_for(state, self.interval);
            if is_late && self.transaction.credits() > 0 {
                state.wanted = self.running();
            }
        }
    }

    fn release_writer(&self, writer: LogWriter) {
        let mut state = self.state.lock();
        state.writer = Some(writer);
        if state.is_for_thread() {
            self.work.notify_one();
        }
        self.done.notify_all();
    }

    pub(crate) fn committed(&self, tid: Tid, needs_checkpoint: bool) {
        let mut state = self.state.lock();
        state.committed = tid;
        state.needs_checkpoint = needs_checkpoint;
    }

    pub(crate) fn checkpointed(&self, request: u64) {
        self.state.lock().checkpoints.1 = request;
    }
}
