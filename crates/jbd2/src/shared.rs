//! State shared by handles, waiters and the committer.
//!
//! # The committer
//! The [`LogWriter`] is the right to commit and to checkpoint. A thread takes it out of the state,
//! works, and puts it back ([`Work`]). A waiter for a commit that finds the log writer idle takes
//! it and commits by itself, without a wake-up of another thread. A later waiter joins the running
//! transaction's next commit, and sleeps: the first one to wake when the log writer is back commits
//! for all.
//!
//! # Guarantees
//! - *One at a time.* The log writer is taken under the state's mutex.
//! - *No work is left.* Requests and the return of the log writer happen under the mutex, and each
//!   looks for the other: a waiter takes the log writer before it sleeps; a request without a
//!   waiter wakes the journal's thread, which takes the log writer or leaves the request to its
//!   holder; returning it wakes all waiters, and the journal's thread if the next work has no
//!   waiter. A waiter does not give up before the commit or a failure, so an awaited transaction
//!   ([`State::awaited`]) has a committer.
//! - *No lost wake-up.* A thread examines the state with the mutex held, and sleeps without
//!   releasing it in between.

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

/// What stopped handles have added to the running transaction.
#[derive(Default)]
pub(crate) struct BufferList {
    /// Changed blocks, each once, unless it was dropped from the cache in between.
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

/// So many handles can stop at once without waiting.
const LISTS: usize = 16;

pub(crate) struct Shared {
    pub(crate) cache: Arc<BufCache>,
    pub(crate) transaction: TransactionState,
    /// The running transaction. Changes only while that is locked. [transaction, state]
    running: AtomicU32,
    lists: [Padded<Mutex<BufferList>>; LISTS],
    /// Changes beyond a handle's credits.
    pub(crate) overdrafts: AtomicU64,
    pub(crate) before_commit: OnceLock<BeforeCommitHook>,
    state: Mutex<State>,
    /// Wakes the journal's thread: there is work.
    work: Condvar,
    /// Wakes waiters: work has been done.
    done: Condvar,
    interval: Option<Duration>,
}

/// Requests, and what has been done.
struct State {
    /// `None` while a thread works with it.
    writer: Option<LogWriter>,
    /// The last transaction whose commit is requested.
    wanted: Tid,
    /// The last one of these with a waiter, which commits it if the log writer is idle.
    awaited: Tid,
    /// The last committed transaction.
    committed: Tid,
    /// Without a checkpoint, later commits would have to wait for one.
    needs_checkpoint: bool,
    /// Checkpoints requested, and made.
    checkpoints: (u64, u64),
    is_closing: bool,
    failure: Option<Arc<Cause>>,
    /// The actions of the transactions that a failure ended have been called.
    is_abandoned: bool,
}

/// The next work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Commit,
    /// Write all that is committed in place; the number of the request.
    Checkpoint(u64),
    /// Checkpoint before commits have to wait for it.
    CheckpointEarly,
    /// The journal has failed: call the queued actions with the cause.
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

    /// Whether the next work is the journal's thread's: all but commits with a waiter, which makes
    /// them.
    fn is_for_thread(&self) -> bool {
        match self.job() {
            Some(Job::Commit) => !self.awaited.is_after(self.committed),
            Some(_) => true,
            None => self.is_closing,
        }
    }
}

/// Exclusive use of the log writer, until this is dropped.
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

    /// The running transaction, which does not change while the caller has a handle.
    pub(crate) fn running(&self) -> Tid {
        Tid(self.running.load(Relaxed))
    }

    /// Adds what a handle has collected to the running transaction, before the handle leaves it.
    pub(crate) fn add_buffers(&self, list: usize, buffers: &mut BufferList) {
        self.lists[list % LISTS].0.lock().append(buffers);
    }

    /// Takes the transaction's buffers, and starts the next one. [transaction locked]
    pub(crate) fn take_over(&self, mut take: impl FnMut(BufferList)) {
        for list in &self.lists {
            take(std::mem::take(&mut *list.0.lock()));
        }
        let _state = self.state.lock();
        self.running.store(self.running().next().0, Relaxed);
    }

    /// Whether a transaction after `tid` has a waiter, which will commit it.
    pub(crate) fn awaits_after(&self, tid: Tid) -> bool {
        self.state.lock().awaited.is_after(tid)
    }

    /// Requests the commit of `tid` from the journal's thread, unless it is in progress.
    pub(crate) fn request(&self, tid: Tid) {
        let mut state = self.state.lock();
        let tid = self.not_ahead(tid);
        if tid.is_after(state.wanted) {
            state.wanted = tid;
            self.work.notify_one();
        }
    }

    /// Limits `tid` to the running transaction: later ones have no changes.
    fn not_ahead(&self, tid: Tid) -> Tid {
        if tid.is_after(self.running()) { self.running() } else { tid }
    }

    /// Requests the commit of `tid`, and waits for it or for the log writer: with that, the caller
    /// must commit.
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

    /// Requests a checkpoint of all that is committed, and waits for it.
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

    /// Tells the journal's thread to end.
    pub(crate) fn close(&self) {
        self.state.lock().is_closing = true;
        self.work.notify_one();
    }

    /// Aborts the journal. The first cause stays.
    pub(crate) fn fail(&self, cause: Arc<Cause>) {
        self.state.lock().failure.get_or_insert(cause);
        self.transaction.abort();
        self.work.notify_one();
        self.done.notify_all();
    }

    pub(crate) fn failure(&self) -> Option<Arc<Cause>> {
        self.state.lock().failure.clone()
    }

    /// Waits for work for the journal's thread; `None` after the last.
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

    /// Ends the exclusive use of the log writer.
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
