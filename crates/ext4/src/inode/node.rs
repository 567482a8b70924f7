//! Inodes in memory.

use crate::file::Content;
use crate::inode::Snapshot;
use crate::inode::copies::{Known, Stamp};
use dentree_ext4_format::InodeNumber;
use dentree_jbd2::Tid;
use dentree_vfs::FileType;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// An inode in memory: the newest snapshot of it, and what of its content is not on the device yet.
///
/// Who reads takes a snapshot and keeps it as long as it likes; who changes makes the next one. What must not change between
/// two snapshots is guarded by other locks: names in a directory by `vfs`'s, content and block map by the content lock, extended
/// attributes by the attribute lock.
///
/// Most inodes are only looked at: until one of its locks is taken, a node is the snapshot that was read and nothing else.
///
/// A clone is the same inode: the list of inodes with unstored content has some.
#[derive(Clone, Debug)]
pub struct Node(Arc<State>);

#[derive(Debug)]
struct State {
    /// As it was when the node was made.
    first: Snapshot,
    /// The last transaction that may have changed the inode before.
    tid: Option<Tid>,
    /// Made when the first lock is taken.
    life: OnceLock<Box<Life>>,
}

/// What a node needs that is more than looked at.
#[derive(Debug, Default)]
struct Life {
    /// `None` before the first change. Held for no longer than a snapshot takes to be taken or made, and nothing is taken inside.
    newest: RwLock<Option<Arc<Snapshot>>>,
    /// Of the newest snapshot: who has a copy need not lock it.
    stamp: Stamp,
    /// Held from a change to its being in the inode table, so that snapshots reach it in their order.
    writing: Mutex<()>,
    /// The transaction that the last change is part of, see [`Node::note_change`]; 0 where there is none.
    changed: AtomicU64,
    /// The attribute lock: guards the extended attributes.
    attributes: RwLock<()>,
    /// The content lock: guards the bytes and the block map of a file.
    content: RwLock<Content>,
}

/// A snapshot that is held. It stays as it is.
pub(crate) enum Held {
    First(Node),
    Newest(Arc<Snapshot>),
}

impl Deref for Held {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        match self {
            Held::First(node) => &node.0.first,
            Held::Newest(snapshot) => snapshot,
        }
    }
}

impl Node {
    /// What a node takes in memory beside its snapshot's tail, once a lock was taken: what is counted where it may be changed.
    pub(crate) const CHANGED_BYTES: usize = Node::BYTES + size_of::<Life>() + size_of::<Snapshot>();
    /// What it takes before.
    pub(crate) const BYTES: usize = size_of::<State>() + 2 * size_of::<usize>();

    /// `tid`: the last transaction that may have changed the inode.
    pub(crate) fn new(snapshot: Snapshot, tid: Option<Tid>) -> Node {
        Node(Arc::new(State { first: snapshot, tid, life: OnceLock::new() }))
    }

    fn life(&self) -> &Life {
        let changed = self.0.tid.map_or(0, word_of);
        let begin = || Box::new(Life { changed: AtomicU64::new(changed), ..Life::default() });
        self.0.life.get_or_init(begin)
    }

    /// The inode as it is now.
    pub(crate) fn snapshot(&self) -> Held {
        // Who begins to change it now has not changed it yet.
        let Some(life) = self.0.life.get() else { return Held::First(self.clone()) };
        match life.stamp.look() {
            Known::Unchanged => return Held::First(self.clone()),
            Known::Copy(copy) => return Held::Newest(copy),
            Known::Nothing => {}
        }
        match &*life.newest.read().unwrap_or_else(PoisonError::into_inner) {
            Some(newest) => {
                // A file has one user most of the time, who changes it each time.
                if newest.kind == FileType::Directory {
                    life.stamp.note_use(newest);
                }
                Held::Newest(Arc::clone(newest))
            }
            None => Held::First(self.clone()),
        }
    }

    /// Looks at the inode as it is now: takes no reference, but may hold the lock of the newest snapshot.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Snapshot) -> R) -> R {
        let Some(life) = self.0.life.get() else { return look(&self.0.first) };
        match life.stamp.look() {
            Known::Unchanged => return look(&self.0.first),
            Known::Copy(copy) => return look(&copy),
            Known::Nothing => {}
        }
        let newest = life.newest.read().unwrap_or_else(PoisonError::into_inner);
        look(newest.as_deref().unwrap_or(&self.0.first))
    }

    /// The inode's number, which no change changes.
    pub(crate) fn ino(&self) -> InodeNumber {
        self.0.first.ino
    }

    /// Makes the next snapshot by `change`, and returns what it answers.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> R {
        self.change_and_hold(change).0
    }

    /// The same, and holds that snapshot.
    pub(crate) fn change_and_hold<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> (R, Held) {
        let life = self.life();
        let mut newest = life.newest.write().unwrap_or_else(PoisonError::into_inner);
        life.stamp.note_change();
        let newest = newest.get_or_insert_with(|| Arc::new(self.0.first.clone()));
        let snapshot = Arc::make_mut(newest);
        let answer = change(snapshot);
        // A time that the inode cannot hold would be another after the next mount.
        snapshot.inode.clamp_times();
        (answer, Held::Newest(Arc::clone(newest)))
    }

    /// Whether both are clones of one node. Of an inode number that was freed and used again there may be an old one.
    pub(crate) fn is_same(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Who has the lock writes the inode table.
    pub(crate) fn lock_writing(&self) -> MutexGuard<'_, ()> {
        self.life().writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the inode, or of a directory a name in it, is changed in transaction `tid`, by who has a handle of that.
    ///
    /// Relaxed, and by a plain store: those who are inside a transaction note the same, and it begins when all of the one before have left, which
    /// the journal orders. Who syncs has heard of the change, so of this.
    pub(crate) fn note_change(&self, tid: Tid) {
        let changed = &self.life().changed;
        if changed.load(Relaxed) != word_of(tid) {
            changed.store(word_of(tid), Relaxed);
        }
    }

    /// The transaction that the last change is part of.
    pub(crate) fn last_change(&self) -> Option<Tid> {
        let Some(life) = self.0.life.get() else { return self.0.tid };
        match life.changed.load(Relaxed) {
            0 => None,
            word => Some(Tid(u32::try_from(word & 0xFFFF_FFFF).unwrap_or(0))),
        }
    }

    /// Extended attributes are read.
    pub(crate) fn attributes(&self) -> RwLockReadGuard<'_, ()> {
        self.life().attributes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extended attributes are changed.
    pub(crate) fn attributes_mut(&self) -> RwLockWriteGuard<'_, ()> {
        self.life().attributes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content, to be read.
    pub(crate) fn content(&self) -> RwLockReadGuard<'_, Content> {
        self.life().content.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content, to be changed.
    pub(crate) fn content_mut(&self) -> RwLockWriteGuard<'_, Content> {
        self.life().content.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, if nobody has it.
    pub(crate) fn try_content_mut(&self) -> Option<RwLockWriteGuard<'_, Content>> {
        match self.life().content.try_write() {
            Ok(content) => Some(content),
            Err(TryLockError::Poisoned(content)) => Some(content.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A transaction as a word that is not 0.
fn word_of(tid: Tid) -> u64 {
    1 << 32 | u64::from(tid.0)
}
