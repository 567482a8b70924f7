//! Inodes in memory, within a budget.
//!
//! # Data
//! An [`Inode`] is what a file system parsed. [`InodeCache`] keeps inodes within a budget; inodes
//! with references are pinned. An *unhashed* inode is alive outside of the cache: it has lost its
//! last name, never had one, was just evicted and is being freed, or is held exclusively.
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
//! (`name_lock.rs`). The mutexes of unhashed inodes are leaves; a shard without such inodes is
//! skipped without taking its mutex.
//!
//! # Guarantees
//! - **I1** There is at most one `Inode` of a number. A live inode is cached or unhashed. A number
//!   is loaded only by the one thread that holds the cache's placeholder for it, and only if it is
//!   not unhashed.
//! - **I2** [`FileSystem::evict`] is called once for each `Inode`, when the last reference is
//!   dropped, and before that number is loaded or adopted again: the number stays unhashed until
//!   `evict` has returned. An inode that was freed together with its name
//!   ([`FileSystem::unlink_and_free`]) counts as evicted.
//! - **I3** A number found under a name is loaded only while it has that name: `get_named` checks
//!   the name with the placeholder held. So a number that was freed and reused is not mistaken for
//!   its former inode: removal of a name updates the name cache before it drops the inode.
//! - **I4** An inode returned by [`InodeCache::take_exclusive`] has no other reference and gets
//!   none: threads that ask for its number wait until it is dropped or
//!   [shared again](InodeCache::share).
//!
//! # Why exclusive ownership holds
//! References come from three places: the cache, under the lock of its shard; the unhashed map,
//! under its mutex; and clones of existing references. `take_exclusive` reads the count under the
//! exclusive lock of the cache's shard. If it counts the cache and the caller only, no clone can be
//! under way, and the cache gives out none meanwhile. In the same critical section the inode leaves
//! the cache, and its number becomes unhashed with a dead reference:
//!
//! - A thread that asked the cache before has a reference: the count shows it, and the inode stays.
//! - A thread that asks the cache after misses there, looks into the unhashed map, finds the number
//!   without an inode and sleeps, as for an inode that is being evicted. So does a thread that
//!   adopts that number for a new file.
//!
//! The count only keeps inodes with other references in the cache. Exclusive ownership is proved by
//! [`Arc::try_unwrap`], which returns the inode by value. No sleep is endless: an exclusive owner
//! takes no lock of `vfs`, only calls file system and name cache, and the sleepers hold none of
//! their locks.
//!
//! `evict` runs in the thread that drops the last reference, possibly under inode locks, never
//! under locks of a cache.

use crate::ino_hash::HashNumber;
use crate::name_lock::{Group, GroupGuard, GroupLock};
use crate::{Attr, FileSystem, FileType, Ino, Result};
use dentree_sync::{
    BiasedReader, Condvar, Mutex, MutexGuard, ReaderBias, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

const UNHASHED_SHARDS: usize = 16;

/// Whether an inode has names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Life {
    Named,
    /// Created without a name; may be linked.
    Unnamed,
    /// Its last name is removed, for good.
    Removed,
    /// Freed together with its last name: there is nothing to evict.
    Freed,
}

/// An inode in memory: what the file system parsed.
pub struct Inode<F: FileSystem> {
    ino: Ino,
    kind: FileType,
    node: F::Node,
    /// Size in memory.
    bytes: u64,
    sb: Arc<SuperblockRef<F>>,
    life: AtomicU8,
    /// Id of a directory's dentry in the name cache, 0 for none: a hint.
    pub(crate) dentry: AtomicU64,
    lock: InodeLock,
    /// Lookups in this directory that the file system answered with "no such name", since the
    /// directory was last listed into the name cache.
    pub(crate) negative_lookups: AtomicU32,
    /// The attribute lock: held from check to change of attributes that decide permissions.
    pub(crate) attr_lock: Mutex<()>,
}

/// The inode lock (kernel: `i_rwsem`).
enum InodeLock {
    /// Exclusive while the link count changes.
    File(RwLock<()>),
    Directory(Box<Entrance>),
}

/// The locks of a directory, which users of its names write. On a separate cache line, as the
/// inode is otherwise only read.
#[derive(Default)]
#[repr(align(64))]
struct Entrance {
    /// Shared for lookups, listings and changes of one name; exclusive for other changes.
    lock: RwLock<()>,
    /// Separates changers of names from listers. Lookups do not take it.
    group_lock: GroupLock,
    /// Changes in biased mode, which take neither of the two.
    bias: ReaderBias,
}

/// Guard of a change of one name, or of a listing.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum Sharing<'a> {
    Biased(BiasedReader<'a>),
    Locked(RwLockReadGuard<'a, ()>, Option<GroupGuard<'a>>),
}

// Apple's locks are larger.
#[cfg(not(any(loom, target_vendor = "apple")))]
const _: () = assert!(size_of::<Entrance>() == 64);

impl<F: FileSystem> Inode<F> {
    fn new(superblock: &SuperblockRefs<F>, node: F::Node, life: Life) -> Arc<Self> {
        let attr = superblock.0[0].fs.attr(&node);
        let sb = superblock.of(attr.ino);
        let (lock, outside) = match attr.kind {
            FileType::Directory => (InodeLock::Directory(Box::default()), size_of::<Entrance>()),
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

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Its type, which never changes.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Its current attributes.
    pub fn attr(&self) -> Attr {
        self.sb.fs.attr(&self.node)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether its last name is removed: it is freed when the last reference is dropped.
    pub fn is_removed(&self) -> bool {
        matches!(self.life(), Life::Removed | Life::Freed)
    }

    /// The file system's representation.
    pub fn node(&self) -> &F::Node {
        &self.node
    }

    /// Locks the inode shared, for lookups.
    pub(crate) fn lock_shared(&self) -> RwLockReadGuard<'_, ()> {
        let lock = match &self.lock {
            InodeLock::File(lock) => lock,
            InodeLock::Directory(entrance) => &entrance.lock,
        };
        lock.read()
    }

    /// Locks the inode shared, and the group of changers. The caller then locks one name.
    pub(crate) fn lock_for_change(&self) -> Sharing<'_> {
        if let InodeLock::Directory(entrance) = &self.lock
            && let Some(reader) = entrance.bias.try_read()
        {
            return Sharing::Biased(reader);
        }
        self.lock_in_group(Group::Change)
    }

    /// Locks the inode shared, and the group of listers.
    pub(crate) fn lock_for_listing(&self) -> Sharing<'_> {
        self.lock_in_group(Group::List)
    }

    fn lock_in_group(&self, group: Group) -> Sharing<'_> {
        let shared = self.lock_shared();
        let inside = match &self.lock {
            InodeLock::File(_) => None,
            InodeLock::Directory(entrance) => Some(entrance.group_lock.enter(group, &entrance.bias)),
        };
        Sharing::Locked(shared, inside)
    }

    /// Locks the inode exclusively.
    pub(crate) fn lock_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        match &self.lock {
            InodeLock::File(lock) => lock.write(),
            InodeLock::Directory(entrance) => {
                let alone = entrance.lock.write();
                entrance.bias.revoke();
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

/// Consecutive inode numbers that share a reference, as a power of two.
const REF_RANGE: u32 = 6;
const SUPERBLOCK_REFS: usize = 16;

/// One of 16 references to the superblock, sharded to avoid contention on its reference count and
/// aligned to keep the pointer off the count's cache line.
#[repr(align(128))]
struct SuperblockRef<F: FileSystem>(Arc<Superblock<F>>);

impl<F: FileSystem> Deref for SuperblockRef<F> {
    type Target = Superblock<F>;

    fn deref(&self) -> &Superblock<F> {
        &self.0
    }
}

struct SuperblockRefs<F: FileSystem>([Arc<SuperblockRef<F>>; SUPERBLOCK_REFS]);

impl<F: FileSystem> SuperblockRefs<F> {
    fn new(sb: &Arc<Superblock<F>>) -> SuperblockRefs<F> {
        SuperblockRefs(std::array::from_fn(|_| Arc::new(SuperblockRef(sb.clone()))))
    }

    fn of(&self, ino: Ino) -> &Arc<SuperblockRef<F>> {
        // Mixed, as the inode tables that threads fill begin at round numbers.
        let mixed = (ino.0 >> REF_RANGE).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(mixed >> 32) as usize % SUPERBLOCK_REFS]
    }
}

/// The file system and its unhashed inodes.
pub(crate) struct Superblock<F: FileSystem> {
    pub(crate) fs: F,
    unhashed: [UnhashedShard<F>; UNHASHED_SHARDS],
}

type InodeMap<F> = HashMap<Ino, Weak<Inode<F>>>;

struct UnhashedShard<F: FileSystem> {
    /// The reference is dead while an inode is being evicted or held exclusively.
    inodes: Mutex<InodeMap<F>>,
    /// Signalled when a waited-for inode is gone, or shared again.
    gone: Condvar,
    /// Number of waiters: without any, the notification is skipped, as it costs a system call.
    /// [inodes]
    waiting: AtomicUsize,
    /// Number of `inodes`. [inodes to write]
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

    /// The caller is about to own the inode exclusively.
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

    /// The inode if it is unhashed; waits while it is being evicted or held exclusively.
    fn unhashed(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        // Acquire: partner of `UnhashedShard::publish_count`. A caller that must find the number
        // here is ordered after its insertion: it missed the number in the cache, which the inode
        // left, under the lock of the cache's shard, after the insertion; or the file system
        // allocated the number, which was freed after the insertion. So the load sees the count of
        // the insertion or a later one. If it sees a later 0, the number has been removed again,
        // and all that happened before the removal is visible.
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

/// Statistics of the inode cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InodeCacheStats {
    /// Inodes in memory.
    pub cached: u64,
    /// Their weight in bytes.
    pub bytes: u64,
    /// Lookups that found the inode.
    pub hits: u64,
    /// Lookups that loaded it.
    pub misses: u64,
    /// Inodes alive outside of the cache, mostly open files without a name.
    pub unhashed: u64,
}

/// Weighs an inode by its size when it was loaded: the cache needs constant weights.
#[derive(Clone)]
struct InitialBytes;

impl<F: FileSystem> Weighter<Ino, Arc<Inode<F>>> for InitialBytes {
    fn weight(&self, _: &Ino, inode: &Arc<Inode<F>>) -> u64 {
        inode.bytes
    }
}

/// Pins inodes that have references outside of the cache.
#[derive(Clone)]
struct PinReferenced;

impl<F: FileSystem> Lifecycle<Ino, Arc<Inode<F>>> for PinReferenced {
    /// Evicted inodes, dropped after the cache's lock is released.
    type RequestState = Vec<Arc<Inode<F>>>;

    fn is_pinned(&self, _: &Ino, inode: &Arc<Inode<F>>) -> bool {
        Arc::strong_count(inode) > 1
    }

    /// Runs under the shard's lock: a cache miss of the inode finds it unhashed (I1).
    fn on_evict(&self, evicted: &mut Self::RequestState, _: Ino, inode: Arc<Inode<F>>) {
        inode.sb.insert_unhashed(&inode);
        evicted.push(inode);
    }
}

/// Inode number → inode.
pub(crate) struct InodeCache<F: FileSystem> {
    sb: Arc<Superblock<F>>,
    refs: SuperblockRefs<F>,
    cache: Cache<Ino, Arc<Inode<F>>, InitialBytes, HashNumber, PinReferenced>,
    /// Loads. The cache's own count of misses includes the second check before a load.
    loads: AtomicU64,
}

/// Why a number did not become a cached inode.
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
        let cache = Cache::with_options(options, InitialBytes, HashNumber::default(), PinReferenced);
        let sb = Superblock::new(fs);
        InodeCache { refs: SuperblockRefs::new(&sb), sb, cache, loads: AtomicU64::new(0) }
    }

    pub(crate) fn fs(&self) -> &F {
        &self.sb.fs
    }

    /// Inode `ino`, loaded once however many threads ask for it. The caller knows that it has a
    /// name or a reference.
    pub(crate) fn get(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.get_named(ino, || true)
    }

    /// Inode `ino`, found under a name. [`Error::Stale`](crate::Error::Stale) if it needs loading
    /// and `still_there` says that the name is gone (I3).
    pub(crate) fn get_named(&self, ino: Ino, still_there: impl FnOnce() -> bool) -> Result<Arc<Inode<F>>> {
        let found = self.cache.get_or_insert_with(&ino, || {
            if let Some(inode) = self.sb.unhashed(ino) {
                return Err(NotCached::Unhashed(inode));
            }
            if !still_there() {
                return Err(NotCached::Failed(crate::Error::Stale));
            }
            self.loads.fetch_add(1, Ordering::Relaxed);
            let node = self.sb.fs.load(ino).map_err(NotCached::Failed)?;
            Ok(Inode::new(&self.refs, node, Life::Named))
        });
        found.or_else(|why| match why {
            NotCached::Unhashed(inode) => Ok(inode),
            NotCached::Failed(error) => Err(error),
        })
    }

    /// The inode of a node that the file system has just created.
    pub(crate) fn adopt(&self, node: F::Node, life: Life) -> Result<Arc<Inode<F>>> {
        let ino = self.sb.fs.attr(&node).ino;
        // If an eviction that is still running freed the number, `unhashed` waits for its end.
        if self.sb.unhashed(ino).is_some() || self.cache.peek(&ino).is_some() {
            let what =
                format!("inode {ino} was taken for a new file while it is in use; run e2fsck on the image");
            return Err(crate::Error::Corrupt(what.into()));
        }
        let inode = Inode::new(&self.refs, node, life);
        match life {
            Life::Named => self.cache.insert(ino, inode.clone()),
            Life::Unnamed | Life::Removed | Life::Freed => self.sb.insert_unhashed(&inode),
        }
        Ok(inode)
    }

    /// Unhashes an inode whose last name is removed, so that its last reference frees it.
    pub(crate) fn unhash(&self, inode: &Arc<Inode<F>>) {
        inode.set_life(Life::Removed);
        // Unhashed before it leaves the cache: in between it is in both (I1).
        self.sb.insert_unhashed(inode);
        self.cache.remove(&inode.ino);
    }

    /// Takes the inode by value if there is no other reference (I4).
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

    /// Ends exclusive ownership. The inode is unhashed until its last reference is dropped.
    pub(crate) fn share(&self, owned: Inode<F>) -> Arc<Inode<F>> {
        let inode = Arc::new(owned);
        self.sb.insert_unhashed(&inode);
        inode
    }

    /// Drops an inode that was freed with its last name. The name cache no longer has the name.
    pub(crate) fn drop_freed(&self, owned: Inode<F>) {
        owned.set_life(Life::Freed);
    }

    /// Inode `ino` if it is in memory.
    pub(crate) fn cached(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        self.cache.get(&ino)
    }

    /// Whether inode `ino` is cached; does not count as a use.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.cache.peek(&ino).is_some()
    }

    /// Evicts until about `percent` of the bytes in use are left, in steps of a 256th of the
    /// budget. The budget stays what it is.
    pub(crate) fn shrink(&self, percent: u64) {
        let budget = self.cache.capacity();
        // In 256ths of the budget, and one at least: the cache scales its list of evicted numbers
        // by the quotient, and rounds it down each time.
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

    /// The file system, if no inode has a reference.
    pub(crate) fn into_fs(self) -> Option<F> {
        let InodeCache { sb, refs, cache, .. } = self;
        drop((cache, refs));
        Arc::into_inner(sb).map(|sb| sb.fs)
    }
}
