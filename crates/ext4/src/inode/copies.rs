//! Per-thread copies of directories' snapshots.
//!
//! An operation reads its directory's snapshot several times. Taking it writes the lock and the
//! reference count, cache lines that bounce between threads in one directory. A copy avoids that.
//!
//! # Data
//! A node's word: [`UNCHANGED`], then [`CHANGED`] after each change, [`USED_ONCE`] after the first
//! use, and after the second a *version* that no other snapshot of any node has. A thread keeps a
//! few copies with their versions.
//!
//! # Guarantee
//! A copy with the node's version is the current snapshot. The version is assigned under the node's
//! shared lock, while the snapshot is read; a change removes it under the exclusive lock. A load
//! before that sees the old snapshot, as if it had taken the lock first. Relaxed suffices: the word
//! guards only the thread's copy and the node's immutable first snapshot. A thread that has learnt
//! of a change by a later write of the changing thread finds the version gone.

use crate::inode::Snapshot;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const UNCHANGED: u64 = 0;
const CHANGED: u64 = 1;
const USED_ONCE: u64 = 2;

const COPIES: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct SnapshotVersion(AtomicU64);

#[derive(Default)]
struct Local {
    copies: [(u64, Option<Arc<Snapshot>>); COPIES],
    oldest: usize,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::default();
    /// The thread's next version, unless it is a multiple of [`BATCH`].
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

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

/// Known without the node's lock.
pub(crate) enum LocalCopy {
    Unchanged,
    Copy(Arc<Snapshot>),
    Unknown,
}

impl SnapshotVersion {
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

    /// The caller holds the node's lock exclusively.
    pub(crate) fn note_change(&self) {
        if self.0.load(Relaxed) != CHANGED {
            self.0.store(CHANGED, Relaxed);
        }
    }

    /// Copies the snapshot for this thread from its second use on. The caller shares the node's
    /// lock.
    pub(crate) fn note_use(&self, newest: &Snapshot) {
        let version = match self.0.load(Relaxed) {
            UNCHANGED => return,
            CHANGED => return self.0.store(USED_ONCE, Relaxed),
            USED_ONCE => {
                let new = new_version();
                // Another thread may be first.
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
        // Fails as a thread ends.
        let _ = LOCAL.try_with(keep);
    }
}
