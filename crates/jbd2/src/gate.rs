//! Who may change the running transaction: the door that handles come in by, and that a commit shuts.
//!
//! # Data
//! One word: how many handles are inside, how many blocks they and those before them may yet change or have changed (the
//! credits), whether the door is shut for a commit, and whether it is shut for good. Whoever enters or leaves changes it
//! once. It has cache lines of its own: what stands beside it is read by all who are inside. That the door is shut for good is noted
//! beside it, too, for those who only ask that. The mutex and its condition variable are for those who wait.
//!
//! # Guarantees
//! - *Nobody enters a shut transaction.* To enter is a compare-and-exchange from a word that is not shut.
//! - *A drained transaction is still.* [`shut`](Gate::shut) returns when nobody is inside. A handle leaves by a release; the commit
//!   sees that by an acquire, and with it all that the handle did. [`open`](Gate::open) is a release, entering an
//!   acquire: whoever enters sees which transaction is running now.
//! - *No wake-up is lost.* Who wants to enter notes the round, tries, and sleeps only while the round is the same; a door that
//!   opens ends the round. Who shuts looks at the word with the mutex held; the last to leave takes the mutex
//!   after that, and then wakes it.

use dentree_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use dentree_sync::atomic::{AtomicBool, AtomicU64};
use dentree_sync::{Condvar, Mutex};

const CREDIT: u64 = 1;
const HANDLE: u64 = 1 << 32;
const HANDLES: u64 = SHUT - HANDLE;
const SHUT: u64 = 1 << 62;
const CLOSED: u64 = 1 << 63;

/// On cache lines of its own.
#[repr(align(128))]
struct Word(AtomicU64);

pub(crate) struct Gate {
    word: Word,
    /// [`CLOSED`], for who does not enter.
    is_closed: AtomicBool,
    /// Most credits of one transaction.
    most: u32,
    /// How often the door was opened, or shut for good.
    rounds: Mutex<u64>,
    moved: Condvar,
}

/// What came of the wish to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Inside; so many were there before.
    Inside(usize),
    /// There is no room in this transaction.
    Full,
    /// A commit is taking it over.
    Shut,
    /// For good.
    Closed,
}

/// The credits of a word.
fn credits(word: u64) -> u32 {
    (word & (HANDLE - 1)) as u32
}

impl Gate {
    pub(crate) fn new(most: u32) -> Self {
        Gate {
            word: Word(AtomicU64::new(0)),
            is_closed: AtomicBool::new(false),
            most,
            rounds: Mutex::new(0),
            moved: Condvar::new(),
        }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Tries to enter with credits for so many blocks.
    #[inline]
    pub(crate) fn enter(&self, wanted: u32) -> Entry {
        // A guess, which is seldom right: to try it answers what the word is, on a line that may then be written. Read first, the line would have to
        // come from another thread, and then be taken from it.
        let mut word = 0;
        loop {
            if word & CLOSED != 0 {
                return Entry::Closed;
            }
            if word & SHUT != 0 {
                return Entry::Shut;
            }
            if self.most.saturating_sub(credits(word)) < wanted {
                return Entry::Full;
            }
            let entered = word + HANDLE + CREDIT * u64::from(wanted);
            // Acquire: partner of `open`.
            match self.word.0.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => return Entry::Inside(((word & HANDLES) / HANDLE) as usize),
                Err(now) => word = now,
            }
        }
    }

    /// Enters, and waits for that while a commit is taking the transaction over. `when_full` is called where there is no
    /// room: it is to ask for a commit. `None` where the door is shut for good.
    #[inline]
    pub(crate) fn enter_or_wait(&self, wanted: u32, when_full: impl Fn()) -> Option<usize> {
        match self.enter(wanted) {
            Entry::Inside(before) => Some(before),
            Entry::Closed => None,
            Entry::Full | Entry::Shut => self.enter_next(wanted, when_full),
        }
    }

    #[cold]
    fn enter_next(&self, wanted: u32, when_full: impl Fn()) -> Option<usize> {
        loop {
            let round = *self.rounds.lock();
            match self.enter(wanted) {
                Entry::Inside(before) => return Some(before),
                Entry::Closed => return None,
                Entry::Full => when_full(),
                Entry::Shut => {}
            }
            let mut rounds = self.rounds.lock();
            while *rounds == round {
                rounds = self.moved.wait(rounds);
            }
        }
    }

    /// More credits for who is inside. `false` where there is no room.
    pub(crate) fn extend(&self, wanted: u32) -> bool {
        let more = |word: u64| {
            let has_room = self.most.saturating_sub(credits(word)) >= wanted;
            has_room.then_some(word + CREDIT * u64::from(wanted))
        };
        self.word.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// One more credit for who is inside, room or not.
    pub(crate) fn overdraw(&self) {
        self.word.0.fetch_add(CREDIT, Relaxed);
    }

    /// Leaves, and gives credits back. Returns what the transaction has used or may yet use.
    #[inline]
    pub(crate) fn leave(&self, unused: u32) -> u32 {
        // Release: partner of `shut`.
        let before = self.word.0.fetch_sub(HANDLE + CREDIT * u64::from(unused), Release);
        if before & SHUT != 0 && before & HANDLES == HANDLE {
            // `shut` looks with the mutex held: either it looks after this, or it waits already.
            drop(self.rounds.lock());
            self.moved.notify_all();
        }
        credits(before) - unused
    }

    /// Whether the door is shut for good.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// What the running transaction has used or may yet use.
    pub(crate) fn credits(&self) -> u32 {
        credits(self.word.0.load(Relaxed))
    }

    /// Shuts the door, and waits until nobody is inside. One thread at a time, which then calls [`open`](Gate::open).
    pub(crate) fn shut(&self) {
        self.word.0.fetch_or(SHUT, Relaxed);
        let mut rounds = self.rounds.lock();
        // Acquire: partner of `leave`.
        while self.word.0.load(Acquire) & HANDLES != 0 {
            rounds = self.moved.wait(rounds);
        }
    }

    /// Opens the door for the next transaction.
    pub(crate) fn open(&self) {
        // Release: partner of `enter`. Nobody is inside and nobody enters, so that only CLOSED may change meanwhile.
        self.word.0.fetch_and(CLOSED, Release);
        self.wake();
    }

    /// Shuts the door for good. Those inside leave when they are done.
    pub(crate) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Relaxed);
        self.is_closed.store(true, Relaxed);
        self.wake();
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

    /// A gate, the number of the transaction behind it, and how many handles each has had.
    struct Door {
        gate: Gate,
        running: AtomicU32,
        handles: [AtomicU32; 3],
        committer: Mutex<()>,
    }

    impl Door {
        fn new(most: u32) -> Arc<Door> {
            Arc::new(Door {
                gate: Gate::new(most),
                running: AtomicU32::new(0),
                handles: [0; 3].map(AtomicU32::new),
                committer: Mutex::new(()),
            })
        }

        fn work(&self, wanted: u32) {
            self.gate
                .enter_or_wait(wanted, || {
                    self.commit();
                })
                .unwrap();
            let before = self.running.load(Relaxed);
            self.handles[before as usize].fetch_add(1, Relaxed);
            thread::yield_now();
            assert_eq!(self.running.load(Relaxed), before, "it changed under a handle");
            self.gate.leave(0);
        }

        /// Returns how many handles the transaction had.
        fn commit(&self) -> u32 {
            let _one = self.committer.lock();
            self.gate.shut();
            let number = self.running.load(Relaxed);
            let handles = self.handles[number as usize].load(Relaxed);
            thread::yield_now();
            assert_eq!(self.handles[number as usize].load(Relaxed), handles, "a handle came in");
            self.running.store(number + 1, Relaxed);
            self.gate.open();
            handles
        }
    }

    fn model(check: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    #[test]
    fn a_commit_takes_a_transaction_over_when_nobody_is_inside() {
        model(|| {
            let door = Door::new(8);
            let others = [1, 2].map(|wanted| {
                let door = Arc::clone(&door);
                thread::spawn(move || door.work(wanted))
            });
            let first = door.commit();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(first + door.commit(), 2);
        });
    }

    #[test]
    fn handles_that_do_not_fit_together_all_get_in_after_commits() {
        model(|| {
            let door = Door::new(4);
            let other = Arc::clone(&door);
            let other = thread::spawn(move || other.work(3));
            door.work(3);
            other.join().unwrap();
            assert_eq!(door.commit(), 1);
        });
    }

    #[test]
    fn a_door_shut_for_good_leaves_nobody_waiting() {
        model(|| {
            let door = Door::new(4);
            let other = Arc::clone(&door);
            let other = thread::spawn(move || {
                if other.gate.enter_or_wait(1, || ()).is_some() {
                    other.gate.leave(1);
                }
            });
            let closer = Arc::clone(&door);
            let closer = thread::spawn(move || closer.gate.close());
            door.gate.shut();
            door.gate.open();
            other.join().unwrap();
            closer.join().unwrap();
            assert_eq!(door.gate.enter(1), Entry::Closed);
        });
    }
}
