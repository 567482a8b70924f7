//! Snapshots of directories that threads use again and again: copies of their own.
//!
//! Each operation on a name looks at its directory several times, and to take a snapshot writes a lock and the number of its users: lines that go
//! from processor to processor where many threads work in one directory. A copy that is still good is used without writing anything that
//! another thread reads.
//!
//! # Data
//! A node that is changed has a word: [`UNCHANGED`], then [`CHANGED`] from each change on; [`ASKED`] once it was asked for; and when it is asked
//! for again a *stamp*, which no other snapshot of any node ever has. Each thread keeps a few copies with their stamps.
//!
//! # The promise
//! *A copy whose stamp the node has is the newest snapshot.* The stamp is given under the node's lock, shared, with the snapshot in sight; a change holds
//! the lock alone, and takes the stamp away. Who loads the word just before that has the snapshot from before the change, as if it had
//! taken the lock first. Relaxed: no memory is read on account of the word but the copy, which is the thread's own, or what a node was made with; and
//! who has learnt of a change by whatever the changer did after it finds the stamp gone.

use crate::inode::Snapshot;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const UNCHANGED: u64 = 0;
const CHANGED: u64 = 1;
const ASKED: u64 = 2;

/// So many copies a thread has.
const COPIES: usize = 4;

/// The word of a node.
#[derive(Debug, Default)]
pub(crate) struct Stamp(AtomicU64);

#[derive(Default)]
struct Mine {
    copies: [(u64, Option<Arc<Snapshot>>); COPIES],
    /// The one that makes room next.
    oldest: usize,
}

thread_local! {
    static MINE: RefCell<Mine> = RefCell::default();
    /// The next stamp of this thread, where that is no multiple of [`STAMPS`].
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// A thread takes so many stamps at a time.
const STAMPS: u64 = 1024;

fn new_stamp() -> u64 {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let mut stamp = NEXT.get();
    if stamp.is_multiple_of(STAMPS) {
        stamp = (TAKEN.fetch_add(1, Relaxed) + 1) * STAMPS;
    }
    NEXT.set(stamp + 1);
    stamp
}

/// What there is without the node's lock.
pub(crate) enum Known {
    /// The node is as it was made.
    Unchanged,
    Copy(Arc<Snapshot>),
    Nothing,
}

impl Stamp {
    /// What this thread knows of the newest snapshot.
    pub(crate) fn look(&self) -> Known {
        let stamp = self.0.load(Relaxed);
        match stamp {
            UNCHANGED => Known::Unchanged,
            CHANGED | ASKED => Known::Nothing,
            _ => {
                let find = |mine: &RefCell<Mine>| {
                    let copies = &mine.borrow().copies;
                    copies.iter().find(|(of, _)| *of == stamp).and_then(|(_, copy)| copy.clone())
                };
                MINE.try_with(find).ok().flatten().map_or(Known::Nothing, Known::Copy)
            }
        }
    }

    /// Notes a change. The caller has the node's lock alone.
    pub(crate) fn note_change(&self) {
        if self.0.load(Relaxed) != CHANGED {
            self.0.store(CHANGED, Relaxed);
        }
    }

    /// Notes that the newest snapshot was asked for, and copies it for this thread where it was before. The caller shares the node's lock.
    pub(crate) fn note_use(&self, newest: &Snapshot) {
        let stamp = match self.0.load(Relaxed) {
            UNCHANGED => return,
            CHANGED => return self.0.store(ASKED, Relaxed),
            ASKED => {
                let new = new_stamp();
                // Another thread may have come first.
                match self.0.compare_exchange(ASKED, new, Relaxed, Relaxed) {
                    Ok(_) => new,
                    Err(other) => other,
                }
            }
            stamp => stamp,
        };
        let keep = |mine: &RefCell<Mine>| {
            let mine = &mut *mine.borrow_mut();
            mine.copies[mine.oldest] = (stamp, Some(Arc::new(newest.clone())));
            mine.oldest = (mine.oldest + 1) % COPIES;
        };
        // A thread that ends keeps nothing.
        let _ = MINE.try_with(keep);
    }
}
