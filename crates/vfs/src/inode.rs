//! Inodes in memory, within a budget.
//!
//! # Data
//! Inodes with references are pinned. An *unhashed* inode is outside of the cache: it has no name,
//! is being evicted, or is held exclusively.
//!
//! | what                                             | guard                                   |
//! |--------------------------------------------------|-----------------------------------------|
//! | cached inodes                                    | the cache's own locks, one per shard    |
//! | unhashed inodes                                  | [`Superblock::unhashed`]: sharded mutex |
//! | names of a directory, link count of a file       | the inode lock, [`Inode::lock`]         |
//! | owner, permissions and ACL, from check to change | the attribute lock, `Inode::attr_lock`  |
//! | [`Inode::life`]                                  | written with the inode lock exclusive   |
//!
//! The inode lock is the kernel's `i_rwsem`; below a directory's are its group lock and name locks
//! (`name_lock.rs`). The mutexes of unhashed inodes are leaves.
//!
//! # Guarantees
//! - **I1** There is at most one `Inode` of a number, cached or unhashed. It is loaded by the
//!   thread with the cache's placeholder, if it is not unhashed.
//! - **I2** [`FileSystem::evict`] is called once for each `Inode`, when the last reference is
//!   dropped. Until it returns, the number stays unhashed, and is neither loaded nor adopted.
//!   [`FileSystem::unlink_and_free`] counts as an eviction.
//! - **I3** A number found under a name is loaded only while it has the name: `get_named` checks
//!   that with the placeholder held. A removed name leaves the name cache before its inode is
//!   dropped, so a reused number is not mistaken for its former inode.
//! - **I4** An inode from [`InodeCache::take_exclusive`] has no other reference and gets none:
//!   threads that ask for its number wait until it is dropped or [shared](InodeCache::share).
//!
//! # Why I4 holds
//! References come from the cache, the unhashed map, and clones. Under the shard's exclusive lock,
//! `take_exclusive` counts the cache and the caller only: no clone is under way. In the same
//! critical section the inode leaves the cache, and its number becomes unhashed with a dead
//! reference:
//!
//! - A thread that asked the cache before has a reference: the count shows it, and the inode stays.
//! - A thread that asks later, or adopts the number, finds it unhashed and sleeps, as during an
//!   eviction.
//!
//! [`Arc::try_unwrap`] checks it. The sleep ends: the owner takes no lock of `vfs`, and sleepers
//! hold none of the file system or name cache.
//!
//! `evict` runs in the thread that drops the last reference, under no lock of a cache.

use crate::name_lock::{Group, GroupGuard, GroupLock};
use crate::{Attr, FileSystem, FileType, Ino, Result};
use dentree_sync::{
    BiasedReader, Condvar, Mutex, MutexGuard, ReaderBias, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

const UNHASHED_SHARDS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Life {
    Named,
    /// Created without a name; may be linked.
    Unnamed,
    /// The last name was removed.
    Removed,
    /// Not to be evicted.
    Freed,
}

/// An inode in memory.
pub struct Inode<F: FileSystem> {
    ino: Ino,
    kind: FileType,
    node: F::Node,
    bytes: u64,
    sb: Arc<Superblock<F>>,
    life: AtomicU8,
    /// Id of a directory's dentry, or 0. A hint.
    pub(crate) dentry: AtomicU64,
    lock: InodeLock,
    /// Misses since the directory was last listed into the name cache.
    pub(crate) negative_lookups: AtomicU32,
    /// From check to change.
    pub(crate) attr_lock: Mutex<()>,
}

/// The kernel's `i_rwsem`.
enum InodeLock {
    /// Exclusive to change the link count.
    File(RwLock<()>),
    Directory(Box<DirLocks>),
}

/// On a cache line of their own: the inode is otherwise only read.
#[derive(Default)]
#[repr(align(64))]
struct DirLocks {
    /// Shared for lookups, listings and changes of one name.
    lock: RwLock<()>,
    /// Separates changers from listers. Lookups do not take it.
    group_lock: GroupLock,
    /// Takes the place of both for biased changes.
    bias: ReaderBias,
}

/// Of a change of one name, or a listing.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum SharedGuard<'a> {
    Biased(BiasedReader<'a>),
    Locked(RwLockReadGuard<'a, ()>, Option<GroupGuard<'a>>),
}

// Apple's locks are larger.
#[cfg(not(any(loom, target_vendor = "apple")))]
const _: () = assert!(size_of::<DirLocks>() == 64);

impl<F: FileSystem> Inode<F> {
    fn new(sb: &Arc<Superblock<F>>, node: F::Node, life: Life) -> Arc<Self> {
        let attr = sb.fs.attr(&node);
        let (lock, outside) = match attr.kind {
            FileType::Directory => (InodeLock::Directory(Box::default()), size_of::<DirLocks>()),
            _ => (InodeLock::File(RwLock::new(())), 0),
        };
        Arc::new(Inode {
            ino: attr.ino,
            kind: attr.kind,
            bytes: (size_of::<Self>() + outside + sb.fs.node_bytes(&node)) as u64,
            node,
            sb: sb.clone(),
            life: AtomicU8::new(life as u8),
            dentry: AtomicU64::new(0),
            lock,
            negative_lookups: AtomicU32::new(0),
            attr_lock: Mutex::new(()),
        })
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Type; constant.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Attributes.
    pub fn attr(&self) -> Attr {
        self.sb.fs.attr(&self.node)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether its last name was removed.
    pub fn is_removed(&self) -> bool {
        matches!(self.life(), Life::Removed | Life::Freed)
    }

    /// The file system's node.
    pub fn node(&self) -> &F::Node {
        &self.node
    }

    /// For lookups.
    pub(crate) fn lock_shared(&self) -> RwLockReadGuard<'_, ()> {
        let lock = match &self.lock {
            InodeLock::File(lock) => lock,
            InodeLock::Directory(locks) => &locks.lock,
        };
        lock.read()
    }

    /// The caller then locks one name.
    pub(crate) fn lock_for_change(&self) -> SharedGuard<'_> {
        if let InodeLock::Directory(locks) = &self.lock
            && let Some(reader) = locks.bias.try_read()
        {
            return SharedGuard::Biased(reader);
        }
        self.lock_in_group(Group::Change)
    }

    /// As a lister.
    pub(crate) fn lock_for_listing(&self) -> SharedGuard<'_> {
        self.lock_in_group(Group::List)
    }

    fn lock_in_group(&self, group: Group) -> SharedGuard<'_> {
        let shared = self.lock_shared();
        let inside = match &self.lock {
            InodeLock::File(_) => None,
            InodeLock::Directory(locks) => Some(locks.group_lock.enter(group, &locks.bias)),
        };
        SharedGuard::Locked(shared, inside)
    }

    pub(crate) fn lock_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        match &self.lock {
            InodeLock::File(lock) => lock.write(),
            InodeLock::Directory(locks) => {
                let alone = locks.lock.write();
                locks.bias.revoke();
                alone
            }
        }
    }

    pub(crate) fn life(&self) -> Life {
        // Relaxed: decisions hold the inode lock; other readers may see an old value.
        match self.life.load(Ordering::Relaxed) {
            life if life == Life::Named as u8 => Life::Named,
            life if life == Life::Unnamed as u8 => Life::Unnamed,
            life if life == Life::Removed as u8 => Life::Removed,
            _ => Life::Freed,
        }
    }

    pub(crate) fn set_life(&self, life: Life) {
        self.life.store(life as u8, Ordering::Relaxed);
    }
}

impl<F: FileSystem> Drop for Inode<F> {
    fn drop(&mut self) {
        if self.life() != Life::Freed {
            self.sb.fs.evict(&self.node);
        }
        self.sb.remove_unhashed(self.ino);
    }
}

pub(crate) struct Superblock<F: FileSystem> {
    pub(crate) fs: F,
    unhashed: [UnhashedShard<F>; UNHASHED_SHARDS],
}

type InodeMap<F> = HashMap<Ino, Weak<Inode<F>>>;

struct UnhashedShard<F: FileSystem> {
    /// Dead references: evicted, or held exclusively.
    inodes: Mutex<InodeMap<F>>,
    /// An inode is gone, or shared again.
    gone: Condvar,
    /// Waiters; at 0, notifications are skipped. [inodes]
    waiting: AtomicUsize,
    /// Length of `inodes`. [inodes to write]
    count: AtomicUsize,
}

impl<F: FileSystem> UnhashedShard<F> {
    /// [inodes]
    fn publish_count(&self, inodes: &InodeMap<F>) {
        // Release: partner of `Superblock::unhashed`.
        self.count.store(inodes.len(), Ordering::Release);
    }

    /// [inodes]
    fn wake(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.gone.notify_all();
        }
    }
}

impl<F: FileSystem> Superblock<F> {
    fn new(fs: F) -> Arc<Self> {
        let unhashed = std::array::from_fn(|_| UnhashedShard {
            inodes: Mutex::default(),
            gone: Condvar::new(),
            waiting: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
        });
        Arc::new(Superblock { fs, unhashed })
    }

    fn place(ino: Ino) -> usize {
        ino.0 as usize % UNHASHED_SHARDS
    }

    fn shard(&self, ino: Ino) -> (&UnhashedShard<F>, MutexGuard<'_, InodeMap<F>>) {
        let shard = &self.unhashed[Self::place(ino)];
        (shard, shard.inodes.lock())
    }

    fn insert_unhashed(&self, inode: &Arc<Inode<F>>) {
        let (shard, mut inodes) = self.shard(inode.ino);
        if inodes.insert(inode.ino, Arc::downgrade(inode)).is_some() {
            shard.wake();
        } else {
            shard.publish_count(&inodes);
        }
    }

    fn insert_exclusive(&self, ino: Ino) {
        let (shard, mut inodes) = self.shard(ino);
        inodes.insert(ino, Weak::new());
        shard.publish_count(&inodes);
    }

    fn remove_unhashed(&self, ino: Ino) {
        let (shard, mut inodes) = self.shard(ino);
        if inodes.remove(&ino).is_some() {
            shard.publish_count(&inodes);
            shard.wake();
        }
    }

    /// Waits while the inode is being evicted or held exclusively.
    fn unhashed(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        // Acquire: partner of `UnhashedShard::publish_count`. A caller that must find the number is
        // ordered after its insertion: it missed the number in the cache, which the inode left
        // after the insertion, under the shard's lock; or the file system has allocated the number,
        // which was freed after the insertion. So it sees that count or a later one. A later 0
        // means that the number was removed, and all before is visible.
        if self.unhashed[Self::place(ino)].count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (shard, mut inodes) = self.shard(ino);
        loop {
            if let Some(inode) = inodes.get(&ino)?.upgrade() {
                return Some(inode);
            }
            shard.waiting.fetch_add(1, Ordering::Relaxed);
            inodes = shard.gone.wait(inodes);
            shard.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InodeCacheStats {
    /// Inodes in memory.
    pub cached: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Lookups that hit.
    pub hits: u64,
    /// Lookups that loaded the inode.
    pub misses: u64,
    /// Inodes outside of the cache: mostly open files without a name.
    pub unhashed: u64,
}

/// The cache needs constant weights.
#[derive(Clone)]
struct InitialBytes;

impl<F: FileSystem> Weighter<Ino, Arc<Inode<F>>> for InitialBytes {
    fn weight(&self, _: &Ino, inode: &Arc<Inode<F>>) -> u64 {
        inode.bytes
    }
}

#[derive(Clone)]
struct PinReferenced;

impl<F: FileSystem> Lifecycle<Ino, Arc<Inode<F>>> for PinReferenced {
    /// Dropped after the cache's lock is released.
    type RequestState = Vec<Arc<Inode<F>>>;

    fn is_pinned(&self, _: &Ino, inode: &Arc<Inode<F>>) -> bool {
        Arc::strong_count(inode) > 1
    }

    /// Under the shard's lock: a miss of the inode finds it unhashed (I1).
    fn on_evict(&self, evicted: &mut Self::RequestState, _: Ino, inode: Arc<Inode<F>>) {
        inode.sb.insert_unhashed(&inode);
        evicted.push(inode);
    }
}

pub(crate) struct InodeCache<F: FileSystem> {
    sb: Arc<Superblock<F>>,
    cache: Cache<Ino, Arc<Inode<F>>, InitialBytes, DefaultHashBuilder, PinReferenced>,
    /// The cache's own misses include the second check before a load.
    loads: AtomicU64,
}

enum NotCached<F: FileSystem> {
    Unhashed(Arc<Inode<F>>),
    Failed(crate::Error),
}

impl<F: FileSystem> InodeCache<F> {
    pub(crate) fn new(fs: F, budget_bytes: u64) -> Self {
        let typical = (size_of::<Inode<F>>() as u64).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((budget_bytes / typical) as usize)
            .weight_capacity(budget_bytes)
            .build()
            .expect("both capacities are given");
        let cache = Cache::with_options(options, InitialBytes, DefaultHashBuilder::default(), PinReferenced);
        InodeCache { sb: Superblock::new(fs), cache, loads: AtomicU64::new(0) }
    }

    pub(crate) fn fs(&self) -> &F {
        &self.sb.fs
    }

    /// Loaded once for all threads. The inode has a name or a reference.
    pub(crate) fn get(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.get_named(ino, || true)
    }

    /// `ino` was found under a name. [`Error::Stale`](crate::Error::Stale): it is not cached, and
    /// not `still_linked` (I3).
    pub(crate) fn get_named(&self, ino: Ino, still_linked: impl FnOnce() -> bool) -> Result<Arc<Inode<F>>> {
        let found = self.cache.get_or_insert_with(&ino, || {
            if let Some(inode) = self.sb.unhashed(ino) {
                return Err(NotCached::Unhashed(inode));
            }
            if !still_linked() {
                return Err(NotCached::Failed(crate::Error::Stale));
            }
            self.loads.fetch_add(1, Ordering::Relaxed);
            let node = self.sb.fs.load(ino).map_err(NotCached::Failed)?;
            Ok(Inode::new(&self.sb, node, Life::Named))
        });
        found.or_else(|why| match why {
            NotCached::Unhashed(inode) => Ok(inode),
            NotCached::Failed(error) => Err(error),
        })
    }

    /// The inode of a new node.
    pub(crate) fn adopt(&self, node: F::Node, life: Life) -> Result<Arc<Inode<F>>> {
        let ino = self.sb.fs.attr(&node).ino;
        // `unhashed` waits for an eviction that freed the number.
        if self.sb.unhashed(ino).is_some() || self.cache.peek(&ino).is_some() {
            let what =
                format!("inode {ino} was allocated for a new file while in use; run e2fsck on the image");
            return Err(crate::Error::Corrupt(what.into()));
        }
        let inode = Inode::new(&self.sb, node, life);
        match life {
            Life::Named => self.cache.insert(ino, inode.clone()),
            Life::Unnamed | Life::Removed | Life::Freed => self.sb.insert_unhashed(&inode),
        }
        Ok(inode)
    }

    /// The last reference frees it.
    pub(crate) fn unhash(&self, inode: &Arc<Inode<F>>) {
        inode.set_life(Life::Removed);
        // Always in one of both (I1).
        self.sb.insert_unhashed(inode);
        self.cache.remove(&inode.ino);
    }

    /// If there is no other reference (I4).
    pub(crate) fn take_exclusive(
        &self,
        inode: Arc<Inode<F>>,
    ) -> std::result::Result<Inode<F>, Arc<Inode<F>>> {
        let taken = self.cache.remove_if(&inode.ino, |cached| {
            let is_unshared = Arc::strong_count(cached) == 2 && Arc::ptr_eq(cached, &inode);
            if is_unshared {
                self.sb.insert_exclusive(inode.ino);
            }
            is_unshared
        });
        if taken.is_none() {
            return Err(inode);
        }
        drop(taken);
        Arc::try_unwrap(inode).inspect_err(|inode| self.sb.insert_unhashed(inode))
    }

    /// The inode stays unhashed.
    pub(crate) fn share(&self, owned: Inode<F>) -> Arc<Inode<F>> {
        let inode = Arc::new(owned);
        self.sb.insert_unhashed(&inode);
        inode
    }

    /// Freed with its last name, which the name cache no longer has.
    pub(crate) fn drop_freed(&self, owned: Inode<F>) {
        owned.set_life(Life::Freed);
    }

    /// The inode if cached.
    pub(crate) fn cached(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        self.cache.get(&ino)
    }

    /// Not a use.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.cache.peek(&ino).is_some()
    }

    /// Evicts until about `percent` of the bytes are left.
    pub(crate) fn shrink(&self, percent: u64) {
        let budget = self.cache.capacity();
        // The cache scales its list of evicted numbers by the quotient, rounded down each time.
        let step = (budget / 256).max(1);
        let kept = (self.cache.weight() * percent / 100 / step).max(1) * step;
        self.cache.set_capacity(kept);
        self.cache.set_capacity(budget);
    }

    pub(crate) fn stats(&self) -> InodeCacheStats {
        InodeCacheStats {
            cached: self.cache.len() as u64,
            bytes: self.cache.weight(),
            hits: self.cache.hits(),
            misses: self.loads.load(Ordering::Relaxed),
            unhashed: self.sb.unhashed.iter().map(|shard| shard.inodes.lock().len() as u64).sum(),
        }
    }

    /// `None`: an inode is referenced.
    pub(crate) fn into_fs(self) -> Option<F> {
        let InodeCache { sb, cache, .. } = self;
        drop(cache);
        Arc::into_inner(sb).map(|sb| sb.fs)
    }
}
