//! Inodes in memory.

use crate::file::Content;
use crate::inode::Snapshot;
use crate::inode::copies::{LocalCopy, SnapshotVersion};
use dentree_ext4_format::InodeNumber;
use dentree_jbd2::Tid;
use dentree_sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use dentree_vfs::FileType;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// An inode in memory.
///
/// Readers take a snapshot; a change makes the next one. What must not change between two snapshots
/// has other locks: `vfs`'s for a directory's names, the content lock for content and block map,
/// the attribute lock for extended attributes. Most inodes are only read: a node is just the first
/// snapshot until a lock is taken. Clones are the same inode.
#[derive(Clone, Debug)]
pub struct Node(Arc<State>);

#[derive(Debug)]
struct State {
    first: Snapshot,
    /// The last transaction that may have changed the inode before.
    tid: Option<Tid>,
    /// Allocated when the first lock is taken.
    active: OnceLock<Box<Active>>,
}

#[derive(Debug, Default)]
struct Active {
    /// `None` before the first change. A leaf lock.
    newest: RwLock<Option<Arc<Snapshot>>>,
    version: SnapshotVersion,
    /// Held from a change until it is in the inode table, for order.
    writing: Mutex<()>,
    /// The last change's transaction, or 0: [`Node::note_change`].
    changed: AtomicU64,
    attributes: RwLock<()>,
    /// Also guards the block map.
    content: RwLock<Content>,
}

pub(crate) enum SnapshotRef {
    First(Node),
    Newest(Arc<Snapshot>),
}

impl Deref for SnapshotRef {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        match self {
            SnapshotRef::First(node) => &node.0.first,
            SnapshotRef::Newest(snapshot) => snapshot,
        }
    }
}

impl Node {
    /// Size without the snapshot's tail, once a lock was taken.
    pub(crate) const CHANGED_BYTES: usize = Node::BYTES + size_of::<Active>() + size_of::<Snapshot>();
    /// Size without the snapshot's tail, before any lock.
    pub(crate) const BYTES: usize = size_of::<State>() + 2 * size_of::<usize>();

    /// `tid`: the last transaction that may have changed the inode.
    pub(crate) fn new(snapshot: Snapshot, tid: Option<Tid>) -> Node {
        Node(Arc::new(State { first: snapshot, tid, active: OnceLock::new() }))
    }

    fn active(&self) -> &Active {
        let changed = self.0.tid.map_or(0, word_of);
        let begin = || Box::new(Active { changed: AtomicU64::new(changed), ..Active::default() });
        self.0.active.get_or_init(begin)
    }

    pub(crate) fn snapshot(&self) -> SnapshotRef {
        // A concurrent change has not happened yet.
        let Some(active) = self.0.active.get() else { return SnapshotRef::First(self.clone()) };
        match active.version.get() {
            LocalCopy::Unchanged => return SnapshotRef::First(self.clone()),
            LocalCopy::Copy(copy) => return SnapshotRef::Newest(copy),
            LocalCopy::Unknown => {}
        }
        match &*active.newest.read() {
            Some(newest) => {
                // A file's one user changes it each time: a copy does not pay.
                if newest.kind == FileType::Directory {
                    active.version.note_use(newest);
                }
                SnapshotRef::Newest(Arc::clone(newest))
            }
            None => SnapshotRef::First(self.clone()),
        }
    }

    /// Takes no reference to the snapshot.
    pub(crate) fn with_snapshot<R>(&self, look: impl FnOnce(&Snapshot) -> R) -> R {
        let Some(active) = self.0.active.get() else { return look(&self.0.first) };
        match active.version.get() {
            LocalCopy::Unchanged => return look(&self.0.first),
            LocalCopy::Copy(copy) => return look(&copy),
            LocalCopy::Unknown => {}
        }
        let newest = active.newest.read();
        look(newest.as_deref().unwrap_or(&self.0.first))
    }

    pub(crate) fn ino(&self) -> InodeNumber {
        self.0.first.ino
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> R {
        self.change_and_hold(change).0
    }

    pub(crate) fn change_and_hold<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> (R, SnapshotRef) {
        let active = self.active();
        let mut newest = active.newest.write();
        active.version.note_change();
        let newest = newest.get_or_insert_with(|| Arc::new(self.0.first.clone()));
        let snapshot = Arc::make_mut(newest);
        let result = change(snapshot);
        // Else times would differ after the next mount.
        snapshot.inode.clamp_times();
        (result, SnapshotRef::Newest(Arc::clone(newest)))
    }

    /// An inode number may be reused.
    pub(crate) fn is_same(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn lock_table_write(&self) -> MutexGuard<'_, ()> {
        self.active().writing.lock()
    }

    /// Transaction `tid`, of which the caller has a handle, changes the inode or a name in the
    /// directory. Relaxed: all threads in a transaction store the same value, and the journal
    /// orders transactions. A thread that syncs has learnt of the change, and thus of this store.
    pub(crate) fn note_change(&self, tid: Tid) {
        let changed = &self.active().changed;
        if changed.load(Relaxed) != word_of(tid) {
            changed.store(word_of(tid), Relaxed);
        }
    }

    pub(crate) fn last_change(&self) -> Option<Tid> {
        let Some(active) = self.0.active.get() else { return self.0.tid };
        match active.changed.load(Relaxed) {
            0 => None,
            word => Some(Tid(u32::try_from(word & 0xFFFF_FFFF).unwrap_or(0))),
        }
    }

    pub(crate) fn attributes(&self) -> RwLockReadGuard<'_, ()> {
        self.active().attributes.read()
    }

    pub(crate) fn attributes_mut(&self) -> RwLockWriteGuard<'_, ()> {
        self.active().attributes.write()
    }

    pub(crate) fn content(&self) -> RwLockReadGuard<'_, Content> {
        self.active().content.read()
    }

    pub(crate) fn content_mut(&self) -> RwLockWriteGuard<'_, Content> {
        self.active().content.write()
    }

    /// `None` if that would wait.
    pub(crate) fn try_content_mut(&self) -> Option<RwLockWriteGuard<'_, Content>> {
        self.active().content.try_write()
    }
}

fn word_of(tid: Tid) -> u64 {
    1 << 32 | u64::from(tid.0)
}
