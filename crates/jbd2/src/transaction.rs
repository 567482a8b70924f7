//! State of the running transaction.
//!
//! # Data
//! One word, in a cache line of its own: number of handles, their credits, locked, closed. Joining
//! and leaving change it once each. The mutex and condition variable are for waiters.
//!
//! # Guarantees
//! - T1: no handle joins a locked transaction. `join` is a compare-and-exchange from an unlocked
//!   word.
//! - T2: a locked transaction is stable. [`lock_down`](TransactionState::lock_down) waits until
//!   there is no handle; `leave` is a release, `lock_down` acquires: the commit sees all changes.
//!   [`open`](TransactionState::open) is a release, `join` acquires: a handle sees which
//!   transaction is running.
//! - T3: no lost wake-up. A waiter reads the round, tries to join, and sleeps only in that round;
//!   `open` ends it. `lock_down` reads the word with the mutex held; the last handle leaves, then
//!   takes the mutex and wakes it.

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
    /// Closed, and nothing more is committed.
    is_aborted: AtomicBool,
    most: u32,
    rounds: Mutex<u64>,
    moved: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// Handles before.
    Joined(usize),
    /// Too few credits.
    Full,
    Locked,
    /// Or aborted.
    Closed,
}

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

    #[inline]
    pub(crate) fn join(&self, wanted: u32) -> Join {
        // Usually wrong: the failed exchange returns the word, and fetches the line once for
        // writing.
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
            // Acquire: partner of `open` (T2).
            match self.word.0.compare_exchange_weak(word, joined, Acquire, Relaxed) {
                Ok(_) => return Join::Joined(((word & HANDLES) / HANDLE) as usize),
                Err(now) => word = now,
            }
        }
    }

    /// Joins, if need be after a commit. If credits are short, `when_full` must request one.
    /// `None`: closed.
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

    /// `false`: too few credits.
    pub(crate) fn extend(&self, wanted: u32) -> bool {
        let more = |word: u64| {
            let has_room = self.most.saturating_sub(credits(word)) >= wanted;
            has_room.then_some(word + CREDIT * u64::from(wanted))
        };
        self.word.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// May exceed the limit.
    pub(crate) fn overdraw(&self) {
        self.word.0.fetch_add(CREDIT, Relaxed);
    }

    /// Returns unused credits to the transaction. Returns its credits in use.
    #[inline]
    pub(crate) fn leave(&self, unused: u32) -> u32 {
        // Release: partner of `lock_down` (T2).
        let before = self.word.0.fetch_sub(HANDLE + CREDIT * u64::from(unused), Release);
        if before & LOCKED != 0 && before & HANDLES == HANDLE {
            // `lock_down` reads the word with the mutex held: either after this, or it already
            // waits.
            drop(self.rounds.lock());
            self.moved.notify_all();
        }
        credits(before) - unused
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Relaxed)
    }

    pub(crate) fn credits(&self) -> u32 {
        credits(self.word.0.load(Relaxed))
    }

    /// Waits until the transaction has no handle. One caller at a time, until
    /// [`open`](TransactionState::open).
    pub(crate) fn lock_down(&self) {
        self.word.0.fetch_or(LOCKED, Relaxed);
        let mut rounds = self.rounds.lock();
        // Acquire: partner of `leave` (T2).
        while self.word.0.load(Acquire) & HANDLES != 0 {
            rounds = self.moved.wait(rounds);
        }
    }

    /// Starts the next transaction.
    pub(crate) fn open(&self) {
        // Release: partner of `join` (T2). No handle joins meanwhile: only CLOSED may change.
        self.word.0.fetch_and(CLOSED, Release);
        self.wake();
    }

    /// Refuses new handles.
    pub(crate) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Relaxed);
        self.wake();
    }

    /// Closes, and refuses commits.
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

        /// Returns the transaction's number of handles.
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
