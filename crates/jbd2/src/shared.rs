//! What handles, those who wait, and those who commit share.
//!
//! # Who works
//! The [`Store`] is the right to commit and to checkpoint. It rests in the state; who takes it
//! works, one at a time, and gives it back when done ([`Work`]). Who waits for a commit takes the
//! store if it rests, and commits by itself: no other thread needs to wake up for that, neither at
//! its beginning nor at its end. Who comes while somebody works joins the running transaction's
//! next commit, and sleeps: the first of them to wake when the store is back commits for all.
//!
//! # Guarantees
//! - *One works.* The store is taken out of the state under its mutex.
//! - *No work is left lying.* Work comes about, and the store comes back, under the mutex. Each of
//!   them looks for the other: who waits for a commit takes the store before it sleeps; who asks
//!   for something without waiting wakes the journal's thread, which takes the store or leaves the
//!   work to who has it; who gives the store back wakes all who wait for a commit, and, where the
//!   work that is left is not awaited by any of them, the journal's thread. Nobody gives up waiting
//!   for a commit before it is made or the journal fails, so that a transaction that is awaited
//!   ([`State::awaited`]) has somebody to commit it.
//! - *No wake-up is lost.* Everybody looks at the state with the mutex held, and sleeps without
//!   letting go of it in between.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dentree_bufcache::BufCache;
use dentree_sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use dentree_sync::{Condvar, Mutex};

use crate::error::Cause;
use crate::gate::Gate;
use crate::last::Finish;
use crate::store::{Action, Store};
use crate::tid::Tid;

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
    /// Makes the last changes of each transaction.
    pub(crate) finish: OnceLock<Finish>,
    state: Mutex<State>,
    /// For the journal's thread: there is work.
    work: Condvar,
    /// For those who wait for work to be done.
    done: Condvar,
    interval: Option<Duration>,
}

/// What is wanted, and what has been done.
struct State {
    /// `None` while somebody works with it.
    store: Option<Store>,
    /// The last transaction whose commit is wanted.
    wanted: Tid,
    /// The last one of these that somebody waits for, who will commit it if the store rests.
    awaited: Tid,
    /// The last transaction that has ended well.
    committed: Tid,
    /// Later commits would have to wait for something that can be done before.
    needs_relief: bool,
    /// Checkpoints asked for, and made.
    checkpoints: (u64, u64),
    is_closing: bool,
    failure: Option<Arc<Cause>>,
    /// The transaction that was running when the journal failed has been told.
    is_abandoned: bool,
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Commit,
    /// Bring all that is committed home; the number of the request.
    Checkpoint(u64),
    /// Nobody waits: do early what later commits would have to wait for.
    Relieve,
    /// The journal has failed: tell those who queued actions.
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
            self.needs_relief.then_some(Job::Relieve)
        }
    }

    /// Whether the journal's thread is to look, now that the store rests: at all but what others
    /// wait for and do.
    fn is_for_thread(&self) -> bool {
        match self.job() {
            Some(Job::Commit) => !self.awaited.is_after(self.committed),
            Some(_) => true,
            None => self.is_closing,
        }
    }
}

/// The right to work, from when the store was taken until this is dropped.
pub(crate) struct Work<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) store: Store,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(Arc::new(Cause::Panicked));
        }
        self.shared.rest(std::mem::take(&mut self.store));
    }
}

impl Shared {
    pub(crate) fn new(
        cache: Arc<BufCache>,
        store: Store,
        first: Tid,
        most: u32,
        interval: Option<Duration>,
    ) -> Self {
        let committed = first.previous();
        Shared {
            cache,
            gate: Gate::new(most),
            running: AtomicU32::new(first.0),
            seats: Default::default(),
            overdrafts: AtomicU64::new(0),
            finish: OnceLock::new(),
            state: Mutex::new(State {
                store: Some(store),
                wanted: committed,
                awaited: committed,
                committed,
                needs_relief: false,
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

    /// Leaves what a handle has collected to the running transaction, which the handle must still
    /// be inside.
    pub(crate) fn deposit(&self, seat: usize, pieces: &mut Pieces) {
        self.seats[seat % SEATS].0.lock().append(pieces);
    }

    /// Takes over what was left to the transaction, and starts the next one. The gate is shut.
    pub(crate) fn take_over(&self, mut take: impl FnMut(Pieces)) {
        for seat in &self.seats {
            take(std::mem::take(&mut *seat.0.lock()));
        }
        let _state = self.state.lock();
        self.running.store(self.running().next().0, Relaxed);
    }

    /// Whether somebody waits for a transaction behind `tid`, and so will commit it.
    pub(crate) fn awaits_behind(&self, tid: Tid) -> bool {
        self.state.lock().awaited.is_after(tid)
    }

    /// Asks for the commit of `tid`, if it is not on its way, and leaves it to the journal's
    /// thread.
    pub(crate) fn request(&self, tid: Tid) {
        let mut state = self.state.lock();
        let tid = self.not_ahead(tid);
        if tid.is_after(state.wanted) {
            state.wanted = tid;
            self.work.notify_one();
        }
    }

    /// Nobody can have changed anything in a transaction behind the running one.
    fn not_ahead(&self, tid: Tid) -> Tid {
        if tid.is_after(self.running()) { self.running() } else { tid }
    }

    /// Asks for the commit of `tid`. Waits until it is made, or until nobody works: then the caller
    /// is to commit.
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
            state = match state.store.take() {
                Some(store) => return Ok(Some(Work { shared: self, store })),
                None => self.done.wait(state),
            };
        }
    }

    /// Asks for a checkpoint of all that is committed, and waits for it.
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

    /// Ends the journal before its time. The first cause stays.
    pub(crate) fn fail(&self, cause: Arc<Cause>) {
        self.state.lock().failure.get_or_insert(cause);
        self.gate.close();
        self.work.notify_one();
        self.done.notify_all();
    }

    pub(crate) fn failure(&self) -> Option<Arc<Cause>> {
        self.state.lock().failure.clone()
    }

    /// Waits for work for the journal's thread; `None` where there will be none.
    pub(crate) fn next_job(&self) -> Option<(Job, Work<'_>)> {
        let mut state = self.state.lock();
        loop {
            if let Some(store) = state.store.take() {
                if let Some(job) = state.job() {
                    state.is_abandoned |= job == Job::Abandon;
                    state.needs_relief &= job != Job::Relieve;
                    return Some((job, Work { shared: self, store }));
                }
                state.store = Some(store);
                if state.is_closing {
                    return None;
                }
            }
            let is_late;
            (state, is_late) = self.work.wait_for(state, self.interval);
            if is_late && self.gate.credits() > 0 {
                state.wanted = self.running();
            }
        }
    }

    /// Ends somebody's work.
    fn rest(&self, store: Store) {
        let mut state = self.state.lock();
        state.store = Some(store);
        if state.is_for_thread() {
            self.work.notify_one();
        }
        self.done.notify_all();
    }

    pub(crate) fn committed(&self, tid: Tid, needs_relief: bool) {
        let mut state = self.state.lock();
        state.committed = tid;
        state.needs_relief = needs_relief;
    }

    pub(crate) fn checkpointed(&self, request: u64) {
        self.state.lock().checkpoints.1 = request;
    }
}
