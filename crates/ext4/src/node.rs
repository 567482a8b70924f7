//! Inodes in memory.

use crate::Snapshot;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// An inode in memory: the newest [`Snapshot`] of it.
///
/// Who reads takes a snapshot and keeps it as long as it likes; who changes makes the next one. The lock is held for
/// no longer than that, and nothing is taken inside. What must not change between two snapshots is guarded by other
/// locks: names in a directory by `vfs`'s, content by the content lock.
#[derive(Debug)]
pub struct Node {
    /// [the lock itself; the snapshot behind it is immutable once shared]
    newest: RwLock<Arc<Snapshot>>,
    /// Held from a change to its being in the inode table, so that snapshots reach it in their order.
    writing: Mutex<()>,
}

impl Node {
    pub(crate) fn new(snapshot: Snapshot) -> Node {
        Node { newest: RwLock::new(Arc::new(snapshot)), writing: Mutex::new(()) }
    }

    /// The inode as it is now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.newest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the next snapshot by `change`, and returns what it answers.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> R {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut newest))
    }

    pub(crate) fn lock_writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
