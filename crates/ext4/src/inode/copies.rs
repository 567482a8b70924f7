//! Per-thread copies of directories' snapshots.
//!
//! An operation on a name reads its directory's snapshot several times. Taking it writes the lock
//! and the reference count: cache lines that bounce when many threads work in one directory. Using
//! a current copy writes nothing that other threads read.
//!
//! # Data
//! Each node that is changed has a word: [`UNCHANGED`], then [`CHANGED`] after each change,
//! [`USED_ONCE`] after the first use, and after the second a *version* that no other snapshot of
//! any node has. A thread keeps a few copies with their versions.
//!
//! # Guarantee
//! A copy whose version is the node's is the current snapshot. The version is assigned under the
//! node's lock, shared, while the snapshot is read; a change holds the lock exclusively and removes
//! the version. A load of the word just before that sees the snapshot from before the change, as if
//! it had taken the lock first. Relaxed suffices: the word guards no memory but the thread's own
//! copy and the node's first snapshot, and a thread that has learnt of a change through a later
//! write of the changing thread finds the version gone.

use crate::inode::Snapshot;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const UNCHANGED: u64 = 0;
const CHANGED: u64 = 1;
const USED_ONCE: u64 = 2;

/// Copies per thread.
const COPIES: usize = 4;

/// The word of a node.
#[derive(Debug, Default)]
pub(crate) struct SnapshotVersion(AtomicU64);

#[derive(Default)]
struct Local {
    copies: [(u64, Option<Arc<Snapshot>>); COPIES],
    /// Replaced next.
    oldest: usize,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::default();
    /// The next version of this thread, unless it is a multiple of [`BATCH`].
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Versions that a thread takes at a time.
const BATCH: u64 = 1024;

fn new_version() -> u64 {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let mut version = NEXT.get();
    if version.is_multiple_of(BATCH) {
        version = (TAKEN.fetch_add(1, Relaxed) + 1) * BATCH;
    }
    NEXT.set(version + 1);
    version
}

/// What is known without the node's lock.
pub(crate) enum LocalCopy {
    /// The node has not changed since it was made.
    Unchanged,
    Copy(Arc<Snapshot>),
    Unknown,
}

impl SnapshotVersion {
    /// What this thread knows of the current snapshot.
    pub(crate) fn get(&self) -> LocalCopy {
        let version = self.0.load(Relaxed);
        match version {
            UNCHANGED => LocalCopy::Unchanged,
            CHANGED | USED_ONCE => LocalCopy::Unknown,
            _ => {
                let find = |local: &RefCell<Local>| {
                    let copies = &local.borrow().copies;
                    copies.iter().find(|(of, _)| *of == version).and_then(|(_, copy)| copy.clone())
                };
                LOCAL.try_with(find).ok().flatten().map_or(LocalCopy::Unknown, LocalCopy::Copy)
            }
        }
    }

    /// Records a change. The caller holds the node's lock exclusively.
    pub(crate) fn note_change(&self) {
        if self.0.load(Relaxed) != CHANGED {
            self.0.store(CHANGED, Relaxed);
        }
    }

    /// Records a use of the current snapshot, and copies it for this thread from the second use on.
    /// The caller shares the node's lock.
    pub(crate) fn note_use(&self, newest: &Snapshot) {
        let version = match self.0.load(Relaxed) {
            UNCHANGED => return,
            CHANGED => return self.0.store(USED_ONCE, Relaxed),
            USED_ONCE => {
                let new = new_version();
                // Another thread may have been first.
                match self.0.compare_exchange(USED_ONCE, new, Relaxed, Relaxed) {
                    Ok(_) => new,
                    Err(other) => other,
                }
            }
            version => version,
        };
        let keep = |local: &RefCell<Local>| {
            let local = &mut *local.borrow_mut();
            local.copies[local.oldest] = (version, Some(Arc::new(newest.clone())));
            local.oldest = (local.oldest + 1) % COPIES;
        };
        // A thread that ends keeps no copy.
        let _ = LOCAL.try_with(keep);
    }
}
