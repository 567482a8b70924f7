//! The state of the running transaction: its handles, its credits, and whether a commit has locked
//! it.
//!
//! # Data
//! One word: the number of handles, the credits (blocks that handles of this transaction have
//! changed or may change), whether the transaction is locked for a commit, and whether the journal
//! is closed. Joining and leaving change it once each. It has cache lines of its own. A second flag
//! says that the journal is aborted, for readers of that alone. The mutex and its condition
//! variable are for waiters.
//!
//! # Guarantees
//! - *No handle joins a locked transaction.* Joining is a compare-and-exchange from an unlocked
//!   word.
//! - *A locked transaction is stable.* [`lock_down`](TransactionState::lock_down) returns when
//!   there is no handle. A handle leaves with a release, which the commit acquires, and with it all
//!   that the handle did. [`open`](TransactionState::open) is a release, joining an acquire: a
//!   handle sees which transaction is running.
//! - *No lost wake-up.* A waiter reads the round, tries to join, and sleeps only while the round is
//!   the same; opening ends the round. A commit reads the word with the mutex held; the last handle
//!   takes the mutex after it leaves, then wakes the commit.

use dentree_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use dentree_sync::atomic::{AtomicBool, AtomicU64};
use dentree_sync::{Condvar, Mutex, Padded};

const CREDIT: u64 = 1;
const HANDLE: u64 = 1 << 32;
const HANDLES: u64 = LOCKED - HANDLE;
const LOCKED: u64 = 1 << 62;
const CLOSED: u64 = 1 << 63;

pub(crate) struct TransactionState {
    word: Padded<AtomicU64>,
    /// The journal is aborted: it is closed, and nothing more is committed.
    is_aborted: AtomicBool,
    /// Most credits of one transaction.
    most: u32,
    /// Number of openings and closings.
    rounds: Mutex<u64>,
    moved: Condvar,
}

/// The result of trying to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// Joined, with so many handles before.
    Joined(usize),
    /// The transaction has too few credits left.
    Full,
    /// A commit has locked it.
    Locked,
    /// The journal is closed or aborted.
    Closed,
}

/// The credits of a word.
fn credits(word: u64) -> u32 {
    (word & (HANDLE - 1)) as u32
}

impl TransactionState {
    pub(crate) fn new(most: u32) -> Self {
        TransactionState {
            word: Padded(AtomicU64::new(0)),
            is_aborted: AtomicBool::new(false),
            most,
            rounds: Mutex::new(0),
            moved: Condvar::new(),
        }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Tries to join with credits for `wanted` blocks.
    #[inline]
    pub(crate) fn join(&self, wanted: u32) -> Join {
        // A guess, seldom right: the failed exchange returns the word, and fetches its line for
        // writing. A load first would fetch the line twice.
        let mut word = 0;
        loop {
            if word & CLOSED != 0 {
                return Join::Closed;
            }
            if word & LOCKED != 0 {
                return Join::Locked;
            }
            if self.most.saturating_sub(credits(word)) < wanted {
                return Join::Full;
            }
            let joined = word + HANDLE + CREDIT * u64::from(wanted);
            // Acquire: partner of `open`.
            match self.word.0.compare_exchange_weak(word, joined, Acquire, Relaxed) {
                Ok(_) => return Join::Joined(((word & HANDLES) / HANDLE) as usize),
                Err(now) => word = now,
            }
        }
    }

    /// Joins, after any commit that has locked the transaction. Calls `when_full`, which must
    /// request a commit, if there are too few credits. `None`: the journal is closed.
    #[inline]
    pub(crate) fn join_or_wait(&self, wanted: u32, when_full: impl Fn()) -> Option<usize> {
        match self.join(wanted) {
            Join::Joined(before) => Some(before),
            Join::Closed => None,
            Join::Full | Join::Locked => self.join_next(wanted, when_full),
        }
    }

    #[cold]
    fn join_next(&self, wanted: u32, when_full: impl Fn()) -> Option<usize> {
        loop {
            let round = *self.rounds.lock();
            match self.join(wanted) {
                Join::Joined(before) => return Some(before),
                Join::Closed => return None,
                Join::Full => when_full(),
                Join::Locked => {}
            }
            let mut rounds = self.rounds.lock();
            while *rounds == round {
                rounds = self.moved.wait(rounds);
            }
        }
    }

    /// Takes more credits for a handle. `false`: there are too few.
    pub(crate) fn extend(&self, wanted: u32) -> bool {
        let more = |word: u64| {
            let has_room = self.most.saturating_sub(credits(word)) >= wanted;
            has_room.then_some(word + CREDIT * u64::from(wanted))
        };
        self.word.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Takes one more credit for a handle, beyond the limit if need be.
    pub(crate) fn overdraw(&self) {
        self.word.0.fetch_add(CREDIT, Relaxed);
    }

    /// Leaves, and returns unused credits. Returns the transaction's credits in use.
    #[inline]
    pub(crate) fn leave(&self, unused: u32) -> u32 {
        // Release: partner of `lock_down`.
        let before = self.word.0.fetch_sub(HANDLE + CREDIT * u64::from(unused), Release);
        if before & LOCKED != 0 && before & HANDLES == HANDLE {
            // `lock_down` reads the word with the mutex held: after this, or it waits already.
            drop(self.rounds.lock());
            self.moved.notify_all();
        }
        credits(before) - unused
    }

    /// Whether the journal is aborted.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Relaxed)
    }

    /// Credits in use.
    pub(crate) fn credits(&self) -> u32 {
        credits(self.word.0.load(Relaxed))
    }

    /// Locks the transaction and waits until it has no handle. For one thread at a time, which then
    /// calls [`open`](TransactionState::open).
    pub(crate) fn lock_down(&self) {
        self.word.0.fetch_or(LOCKED, Relaxed);
        let mut rounds = self.rounds.lock();
        // Acquire: partner of `leave`.
        while self.word.0.load(Acquire) & HANDLES != 0 {
            rounds = self.moved.wait(rounds);
        }
    }

    /// Opens the next transaction.
    pub(crate) fn open(&self) {
        // Release: partner of `join`. There is no handle, and none joins: only CLOSED may change.
        self.word.0.fetch_and(CLOSED, Release);
        self.wake();
    }

    /// Lets no handle join any more. Those that have joined go on.
    pub(crate) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Relaxed);
        self.wake();
    }

    /// Closes it for good: what has joined is not committed.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Relaxed);
        self.close();
    }

    fn wake(&self) {
        *self.rounds.lock() += 1;
        self.moved.notify_all();
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test --release -p dentree-jbd2 --lib models`
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use dentree_sync::atomic::AtomicU32;
    use dentree_sync::thread;
    use std::sync::Arc;

    /// The state, the number of the running transaction, and how many handles each has had.
    struct Running {
        transaction: TransactionState,
        running: AtomicU32,
        handles: [AtomicU32; 3],
        committer: Mutex<()>,
    }

    impl Running {
        fn new(most: u32) -> Arc<Running> {
            Arc::new(Running {
                transaction: TransactionState::new(most),
                running: AtomicU32::new(0),
                handles: [0; 3].map(AtomicU32::new),
                committer: Mutex::new(()),
            })
        }

        fn work(&self, wanted: u32) {
            self.transaction
                .join_or_wait(wanted, || {
                    self.commit();
                })
                .unwrap();
            let before = self.running.load(Relaxed);
            self.handles[before as usize].fetch_add(1, Relaxed);
            thread::yield_now();
            assert_eq!(self.running.load(Relaxed), before, "it changed under a handle");
            self.transaction.leave(0);
        }

        /// Returns how many handles the transaction had.
        fn commit(&self) -> u32 {
            let _one = self.committer.lock();
            self.transaction.lock_down();
            let number = self.running.load(Relaxed);
            let handles = self.handles[number as usize].load(Relaxed);
            thread::yield_now();
            assert_eq!(self.handles[number as usize].load(Relaxed), handles, "a handle came in");
            self.running.store(number + 1, Relaxed);
            self.transaction.open();
            handles
        }
    }

    fn model(check: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    #[test]
    fn a_commit_takes_a_transaction_without_handles() {
        model(|| {
            let running = Running::new(8);
            let others = [1, 2].map(|wanted| {
                let running = Arc::clone(&running);
                thread::spawn(move || running.work(wanted))
            });
            let first = running.commit();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(first + running.commit(), 2);
        });
    }

    #[test]
    fn handles_that_do_not_fit_together_all_get_in_after_commits() {
        model(|| {
            let running = Running::new(4);
            let other = Arc::clone(&running);
            let other = thread::spawn(move || other.work(3));
            running.work(3);
            other.join().unwrap();
            assert_eq!(running.commit(), 1);
        });
    }

    #[test]
    fn a_commit_after_closing_has_every_handle_that_joined() {
        model(|| {
            let running = Running::new(8);
            let other = Arc::clone(&running);
            let other = thread::spawn(move || {
                let joined = other.transaction.join_or_wait(1, || ()).is_some();
                if joined {
                    other.handles[0].fetch_add(1, Relaxed);
                    other.transaction.leave(0);
                }
                u32::from(joined)
            });
            running.transaction.close();
            let committed = running.commit();
            assert_eq!(other.join().unwrap(), committed);
        });
    }

    #[test]
    fn an_abort_leaves_no_thread_waiting() {
        model(|| {
            let running = Running::new(4);
            let other = Arc::clone(&running);
            let other = thread::spawn(move || {
                if other.transaction.join_or_wait(1, || ()).is_some() {
                    other.transaction.leave(1);
                }
            });
            let closer = Arc::clone(&running);
            let closer = thread::spawn(move || closer.transaction.abort());
            running.transaction.lock_down();
            running.transaction.open();
            other.join().unwrap();
            closer.join().unwrap();
            assert_eq!(running.transaction.join(1), Join::Closed);
        });
    }
}
