//! What handles, waiters and the committer share.

use std::sync::Arc;
use std::time::Duration;

use dentree_bufcache::{BufCache, Stamp};

use crate::error::Cause;
use crate::format::Tid;
use crate::gate::Gate;
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Condvar, Mutex, lock, wait, wait_for};

/// What runs when a transaction has ended.
pub(crate) type Action = Box<dyn FnOnce(Result<(), Arc<Cause>>) + Send>;

/// What handles that have stopped leave to their transaction.
#[derive(Default)]
pub(crate) struct Pieces {
    /// Blocks that were changed, each once, unless it was dropped from the cache in between.
    pub(crate) blocks: Vec<u64>,
    /// Runs of blocks that were freed: first, and how many.
    pub(crate) freed: Vec<(u64, u64)>,
    pub(crate) actions: Vec<Action>,
}

impl Pieces {
    pub(crate) fn append(&mut self, other: &mut Pieces) {
        if self.blocks.is_empty() {
            std::mem::swap(&mut self.blocks, &mut other.blocks);
        }
        self.blocks.append(&mut other.blocks);
        self.freed.append(&mut other.freed);
        self.actions.append(&mut other.actions);
    }
}

/// So many handles can stop at once without one waiting for another.
const SEATS: usize = 16;

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Seat(pub(crate) Mutex<Pieces>);

pub(crate) struct Shared {
    pub(crate) cache: Arc<BufCache>,
    pub(crate) gate: Gate,
    /// The running transaction. Changes only while the gate is shut. [gate, state]
    running: AtomicU32,
    seats: [Seat; SEATS],
    /// Changes beyond a handle's credits.
    pub(crate) overdrafts: AtomicU64,
    state: Mutex<State>,
    /// For the committer: there is work.
    work: Condvar,
    /// For those who wait for the committer.
    done: Condvar,
    interval: Option<Duration>,
}

/// What is wanted of the committer, and what it has done.
struct State {
    /// The last transaction whose commit is wanted.
    wanted: Tid,
    /// The last transaction that has ended well.
    committed: Tid,
    /// A transaction was committed since the committer last had leisure.
    has_leftovers: bool,
    /// Checkpoints asked for, and made.
    checkpoints: (u64, u64),
    is_closing: bool,
    failure: Option<Arc<Cause>>,
    /// The transaction that was running when the journal failed has been told.
    is_abandoned: bool,
}

/// What the committer is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Commit,
    /// Bring all that is committed home; the number of the request.
    Checkpoint(u64),
    /// Nobody waits: do early what later commits would have to wait for.
    Relieve,
    /// The journal has failed: tell those who queued actions.
    Abandon,
    Close,
}

impl Shared {
    pub(crate) fn new(cache: Arc<BufCache>, first: Tid, most: u32, interval: Option<Duration>) -> Self {
        let committed = first.previous();
        Shared {
            cache,
            gate: Gate::new(most),
            running: AtomicU32::new(first.0),
            seats: Default::default(),
            overdrafts: AtomicU64::new(0),
            state: Mutex::new(State {
                wanted: committed,
                committed,
                has_leftovers: false,
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

    /// The running transaction: for who is inside the gate, it stays that.
    pub(crate) fn running(&self) -> Tid {
        Tid(self.running.load(Relaxed))
    }

    pub(crate) fn stamp(tid: Tid) -> Stamp {
        Stamp(tid.0)
    }

    /// Leaves what a handle has collected to the running transaction, which the handle must still be inside.
    pub(crate) fn deposit(&self, seat: usize, pieces: &mut Pieces) {
        lock(&self.seats[seat % SEATS].0).append(pieces);
    }

    /// Takes over what was left to the transaction, and starts the next one. The gate is shut.
    pub(crate) fn take_over(&self, mut take: impl FnMut(Pieces)) {
        for seat in &self.seats {
            take(std::mem::take(&mut *lock(&seat.0)));
        }
        let _state = lock(&self.state);
        self.running.store(self.running().next().0, Relaxed);
    }

    /// Whether the commit of `tid` has not begun. Asked under the lock that the beginning takes: if not, all of the commit
    /// comes after the question.
    pub(crate) fn is_running(&self, tid: Tid) -> bool {
        let _state = lock(&self.state);
        tid == self.running()
    }

    /// Asks for the commit of `tid`, if it is not on its way.
    pub(crate) fn request(&self, tid: Tid) {
        let mut state = lock(&self.state);
        let tid = if tid.is_after(self.running()) { self.running() } else { tid };
        if tid.is_after(state.wanted) {
            state.wanted = tid;
            self.work.notify_one();
        }
    }

    /// Waits until `tid` has been committed.
    pub(crate) fn wait_for(&self, tid: Tid) -> Result<(), Arc<Cause>> {
        let mut state = lock(&self.state);
        loop {
            if !tid.is_after(state.committed) {
                return Ok(());
            }
            if let Some(cause) = &state.failure {
                return Err(Arc::clone(cause));
            }
            state = wait(&self.done, state);
        }
    }

    /// Asks for a checkpoint of all that is committed, and waits for it.
    pub(crate) fn checkpoint(&self) -> Result<(), Arc<Cause>> {
        let mut state = lock(&self.state);
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
            state = wait(&self.done, state);
        }
    }

    /// Tells the committer to end.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.work.notify_one();
    }

    /// Ends the journal before its time. The first cause stays.
    pub(crate) fn fail(&self, cause: Arc<Cause>) {
        lock(&self.state).failure.get_or_insert(cause);
        self.gate.close();
        self.work.notify_one();
        self.done.notify_all();
    }

    pub(crate) fn failure(&self) -> Option<Arc<Cause>> {
        lock(&self.state).failure.clone()
    }

    /// Waits for the committer's next job.
    pub(crate) fn next_job(&self) -> Job {
        let mut state = lock(&self.state);
        loop {
            if state.failure.is_some() {
                if !state.is_abandoned {
                    state.is_abandoned = true;
                    return Job::Abandon;
                }
            } else if state.wanted.is_after(state.committed) {
                return Job::Commit;
            } else if state.checkpoints.0 > state.checkpoints.1 {
                return Job::Checkpoint(state.checkpoints.0);
            } else if std::mem::take(&mut state.has_leftovers) {
                return Job::Relieve;
            }
            if state.is_closing {
                return Job::Close;
            }
            let is_late;
            (state, is_late) = wait_for(&self.work, state, self.interval);
            if is_late && self.gate.credits() > 0 {
                state.wanted = self.running();
            }
        }
    }

    pub(crate) fn committed(&self, tid: Tid) {
        let mut state = lock(&self.state);
        state.committed = tid;
        state.has_leftovers = true;
        self.done.notify_all();
    }

    pub(crate) fn checkpointed(&self, request: u64) {
        lock(&self.state).checkpoints.1 = request;
        self.done.notify_all();
    }
}
