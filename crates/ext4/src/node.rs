//! Inodes in memory.

use crate::Snapshot;
use crate::content::Content;
use dentree_jbd2::Tid;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// An inode in memory: the newest snapshot of it, and what of its content is not on the device yet.
///
/// Who reads takes a snapshot and keeps it as long as it likes; who changes makes the next one. The lock is held for
/// no longer than that, and nothing is taken inside. What must not change between two snapshots is guarded by other
/// locks: names in a directory by `vfs`'s, content and block map by the content lock, extended attributes by the attribute lock.
///
/// A clone is the same inode: the list of inodes with unstored content has some.
#[derive(Clone, Debug)]
pub struct Node(Arc<State>);

#[derive(Debug)]
struct State {
    /// [the lock itself; the snapshot behind it is immutable once shared]
    newest: RwLock<Arc<Snapshot>>,
    /// Held from a change to its being in the inode table, so that snapshots reach it in their order. The transaction that the last one is
    /// part of.
    writing: Mutex<Option<Tid>>,
    /// The attribute lock: guards the extended attributes.
    attributes: RwLock<()>,
    /// The content lock: guards the bytes and the block map of a file.
    content: RwLock<Content>,
}

impl Node {
    /// `tid`: the last transaction that may have changed the inode.
    pub(crate) fn new(snapshot: Snapshot, tid: Option<Tid>) -> Node {
        let newest = RwLock::new(Arc::new(snapshot));
        Node(Arc::new(State {
            newest,
            writing: Mutex::new(tid),
            attributes: RwLock::default(),
            content: RwLock::default(),
        }))
    }

    /// The inode as it is now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.newest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the next snapshot by `change`, and returns what it answers.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> R {
        let mut newest = self.0.newest.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut newest))
    }

    /// Whether both are clones of one node. Of an inode number that was freed and used again there may be an old one.
    pub(crate) fn is_same(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Who has the lock writes the inode table, and notes the transaction.
    pub(crate) fn lock_writing(&self) -> MutexGuard<'_, Option<Tid>> {
        self.0.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extended attributes are read.
    pub(crate) fn attributes(&self) -> RwLockReadGuard<'_, ()> {
        self.0.attributes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extended attributes are changed.
    pub(crate) fn attributes_mut(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.attributes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content, to be read.
    pub(crate) fn content(&self) -> RwLockReadGuard<'_, Content> {
        self.0.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content, to be changed.
    pub(crate) fn content_mut(&self) -> RwLockWriteGuard<'_, Content> {
        self.0.content.write().unwrap_or_else(PoisonError::into_inner)
    }
}
