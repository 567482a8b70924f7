//! Inodes in memory, within a budget.
//!
//! # Data
//! An [`Inode`] is what a file system parsed. [`InodeCache`] keeps inodes within a budget; those that somebody holds are
//! pinned. An inode that is alive outside of the cache is *away*: it lost its last name, never had one, was just
//! evicted and its memory is being given back, or one thread has it alone.
//!
//! | what | guard |
//! |---|---|
//! | cached inodes | the cache's own locks, one per shard |
//! | away inodes | [`Home::away`], one mutex per shard; a leaf. Where there are none, nobody takes it: their number is read without |
//! | names of a directory | [`Inode::names`], and below it its sides and the claims of `claims.rs` |
//! | owner, permissions and ACL, from check to change | [`Inode::rights`] |
//! | [`Inode::life`] | written with [`Inode::names`] held exclusively |
//!
//! # Guarantees
//! - **I1** At any moment there is at most one `Inode` of a number. Whoever is alive is in the cache or away; a number is loaded
//!   only by the one thread that holds the cache's place for it, and only when it is not away.
//! - **I2** [`FileSystem::evict`] is called once for each `Inode`, when the last holder is gone, and before anybody loads or adopts
//!   that number again: the number stays away until `evict` has returned.
//!   An inode that was freed together with its name ([`FileSystem::unlink_and_free`]) has been evicted by that.
//! - **I3** A number that a name led to is loaded only while it has that name: `get_named` asks whether the name is still there
//!   when the place in the cache is taken. So a number that was freed and is used again is never mistaken for its former owner:
//!   whoever removes a name tells the name cache first and lets go of the inode then.
//! - **I4** An inode that [`InodeCache::take_alone`] has answered nobody else has, and nobody gets: whoever asks for its number waits until
//!   it was dropped, or [shared again](InodeCache::share_again).
//!
//! # Why one thread can have an inode alone
//! References are given out by three: the cache, under the lock of its shard; the map of those that are away, under its mutex; and whoever
//! has one and clones it. `take_alone` looks at the count under the exclusive lock of the shard. Where it is that of the cache and the
//! caller, nobody clones one, and the cache gives none away meanwhile. In that same hold the inode leaves the cache, and its number goes away with nothing behind it:
//!
//! - Who asked the cache before has a reference: the count says so, and the inode stays where it is.
//! - Who asks the cache after misses it there, and so looks among those that are away, sees a number without an inode, and sleeps
//!   as for one on its last way; so does who adopts that number for a new file.
//!
//! The count is looked at to leave inodes in the cache that others hold; that the caller is alone is told by [`Arc::try_unwrap`], which hands the
//! inode out by value, and by nothing else. Nobody sleeps for ever: who has an inode alone asks for no lock of `vfs` before it lets go,
//! only the file system and the name cache, and who sleeps for it holds none of theirs.
//!
//! `evict` runs in whichever thread lets go last, maybe under directory locks, never under locks of a cache.

use crate::by_number::ByNumber;
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

const AWAY_SHARDS: usize = 16;

/// Whether an inode has names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Life {
    /// It has.
    Named,
    /// It was made without, and may be given one.
    Unnamed,
    /// It has lost the last one, for good.
    Removed,
    /// It was freed with the last one: there is nothing to evict.
    Freed,
}

/// An inode in memory: what the file system parsed.
pub struct Inode<F: FileSystem> {
    ino: Ino,
    kind: FileType,
    node: F::Node,
    /// What it takes in memory.
    bytes: u64,
    home: Arc<Door<F>>,
    life: AtomicU8,
    /// The id of a directory's entry in the name cache, 0 where it has none: a hint.
    pub(crate) entry: AtomicU64,
    names: Names,
    /// Names that the file system was asked for and did not have in this directory, since it was last listed for them.
    pub(crate) asked_in_vain: AtomicU32,
    /// Held while attributes that decide permissions are checked and changed.
    pub(crate) rights: Mutex<()>,
}

/// The locks of an inode's names.
enum Names {
    /// Of other inodes than directories: exclusive where their number of names changes.
    OfFile(RwLock<()>),
    OfDirectory(Box<Entrance>),
}

/// What everybody writes who comes to a directory for its names. On a cache line of its own: the inode beside it they only read.
#[derive(Default)]
#[repr(align(64))]
struct Entrance {
    /// Shared for looking names up and listing, and for changes that concern one name; exclusive for the others.
    lock: RwLock<()>,
    /// Whether those who share the lock change a name, or list. Who looks up is on neither side.
    group_lock: GroupLock,
    /// Changes that are not seen in either.
    bias: ReaderBias,
}

/// A change of one name is in a directory, or one listing.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum Sharing<'a> {
    Biased(BiasedReader<'a>),
    Locked(RwLockReadGuard<'a, ()>, Option<GroupGuard<'a>>),
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entrance>() == 64);

impl<F: FileSystem> Inode<F> {
    fn new(doors: &Doors<F>, node: F::Node, life: Life) -> Arc<Self> {
        let attr = doors.0[0].fs.attr(&node);
        let home = doors.of(attr.ino);
        let (names, outside) = match attr.kind {
            FileType::Directory => (Names::OfDirectory(Box::default()), size_of::<Entrance>()),
            _ => (Names::OfFile(RwLock::new(())), 0),
        };
        Arc::new(Inode {
            ino: attr.ino,
            kind: attr.kind,
            bytes: (size_of::<Self>() + outside + home.fs.node_bytes(&node)) as u64,
            node,
            home: home.clone(),
            life: AtomicU8::new(life as u8),
            entry: AtomicU64::new(0),
            names,
            asked_in_vain: AtomicU32::new(0),
            rights: Mutex::new(()),
        })
    }

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What kind of thing it is: that never changes.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Its attributes as of now.
    pub fn attr(&self) -> Attr {
        self.home.fs.attr(&self.node)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether it has lost its last name: it goes with its last holder.
    pub fn is_removed(&self) -> bool {
        matches!(self.life(), Life::Removed | Life::Freed)
    }

    /// The file system's own form of it.
    pub fn node(&self) -> &F::Node {
        &self.node
    }

    /// Shares its names, to look one up.
    pub(crate) fn share_names(&self) -> RwLockReadGuard<'_, ()> {
        let lock = match &self.names {
            Names::OfFile(lock) => lock,
            Names::OfDirectory(entrance) => &entrance.lock,
        };
        lock.read()
    }

    /// Shares them to change one name, which is claimed then.
    pub(crate) fn share_to_change(&self) -> Sharing<'_> {
        if let Names::OfDirectory(entrance) = &self.names
            && let Some(reader) = entrance.bias.try_read()
        {
            return Sharing::Biased(reader);
        }
        self.share_in(Group::Change)
    }

    /// Shares them to list them.
    pub(crate) fn share_to_list(&self) -> Sharing<'_> {
        self.share_in(Group::List)
    }

    fn share_in(&self, group: Group) -> Sharing<'_> {
        let shared = self.share_names();
        let inside = match &self.names {
            Names::OfFile(_) => None,
            Names::OfDirectory(entrance) => Some(entrance.group_lock.enter(group, &entrance.bias)),
        };
        Sharing::Locked(shared, inside)
    }

    /// Has its names alone.
    pub(crate) fn lock_names(&self) -> RwLockWriteGuard<'_, ()> {
        match &self.names {
            Names::OfFile(lock) => lock.write(),
            Names::OfDirectory(entrance) => {
                let alone = entrance.lock.write();
                entrance.bias.revoke();
                alone
            }
        }
    }

    pub(crate) fn life(&self) -> Life {
        // Relaxed: who decides by it holds `names`; others may see it late.
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
            self.home.fs.evict(&self.node);
        }
        self.home.has_gone(self.ino);
    }
}

/// Neighbours that have one door, as a power of two.
const DOOR_RANGE: u32 = 6;
const DOORS: usize = 16;

/// What an inode has its home by. There are several, so that threads which make inodes do not count their users on one cache line, and it
/// is not on the line of that count.
#[repr(align(128))]
struct Door<F: FileSystem>(Arc<Home<F>>);

impl<F: FileSystem> Deref for Door<F> {
    type Target = Home<F>;

    fn deref(&self) -> &Home<F> {
        &self.0
    }
}

struct Doors<F: FileSystem>([Arc<Door<F>>; DOORS]);

impl<F: FileSystem> Doors<F> {
    fn new(home: &Arc<Home<F>>) -> Doors<F> {
        Doors(std::array::from_fn(|_| Arc::new(Door(home.clone()))))
    }

    fn of(&self, ino: Ino) -> &Arc<Door<F>> {
        // Mixed: parts of the inode tables that threads fill begin at round numbers, and they would meet at the doors.
        let mixed = (ino.0 >> DOOR_RANGE).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(mixed >> 32) as usize % DOORS]
    }
}

/// The file system, and the inodes that are alive outside of the cache.
pub(crate) struct Home<F: FileSystem> {
    pub(crate) fs: F,
    away: [Away<F>; AWAY_SHARDS],
}

type Numbered<F> = HashMap<Ino, Weak<Inode<F>>>;

struct Away<F: FileSystem> {
    /// Of one on its last way, or that one thread has alone, there is nothing to be had.
    inodes: Mutex<Numbered<F>>,
    /// One of them has gone, or is to be had again.
    gone: Condvar,
    /// How many wait for that: to wake nobody is a system call, too. [inodes]
    waiting: AtomicUsize,
    /// How many they are. [inodes to write]
    count: AtomicUsize,
}

impl<F: FileSystem> Away<F> {
    /// [inodes]
    fn has_changed(&self, inodes: &Numbered<F>) {
        // Release: partner of `Home::away`.
        self.count.store(inodes.len(), Ordering::Release);
    }

    /// [inodes]
    fn wake(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.gone.notify_all();
        }
    }
}

impl<F: FileSystem> Home<F> {
    fn new(fs: F) -> Arc<Self> {
        let away = std::array::from_fn(|_| Away {
            inodes: Mutex::default(),
            gone: Condvar::new(),
            waiting: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
        });
        Arc::new(Home { fs, away })
    }

    fn place(ino: Ino) -> usize {
        ino.0 as usize % AWAY_SHARDS
    }

    fn shard(&self, ino: Ino) -> (&Away<F>, MutexGuard<'_, Numbered<F>>) {
        let shard = &self.away[Self::place(ino)];
        (shard, shard.inodes.lock())
    }

    fn goes_away(&self, inode: &Arc<Inode<F>>) {
        let (shard, mut inodes) = self.shard(inode.ino);
        if inodes.insert(inode.ino, Arc::downgrade(inode)).is_some() {
            shard.wake();
        } else {
            shard.has_changed(&inodes);
        }
    }

    /// One thread is about to have the inode alone.
    fn goes_away_alone(&self, ino: Ino) {
        let (shard, mut inodes) = self.shard(ino);
        inodes.insert(ino, Weak::new());
        shard.has_changed(&inodes);
    }

    fn has_gone(&self, ino: Ino) {
        let (shard, mut inodes) = self.shard(ino);
        if inodes.remove(&ino).is_some() {
            shard.has_changed(&inodes);
            shard.wake();
        }
    }

    /// The inode if it is away; waits where it is on its last way, or one thread has it alone.
    fn away(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        // Acquire: partner of `Away::has_changed`. Who has to find the number here knows that it went away: it has missed it in the
        // cache, which it left under the lock of its shard after it was noted here, or was given it by the file system, which had
        // it freed after that. So it sees no earlier count than the one that has it; and where it sees a later one of 0, the number has
        // come back, and all that was done before that is seen, too.
        if self.away[Self::place(ino)].count.load(Ordering::Acquire) == 0 {
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

/// The inode cache's figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InodeCacheStats {
    /// Inodes in memory.
    pub cached: u64,
    /// What they weigh, in bytes.
    pub bytes: u64,
    /// Look-ups that found the inode.
    pub hits: u64,
    /// Look-ups that had to load it.
    pub misses: u64,
    /// Inodes that are held outside of the cache: those without a name above all.
    pub away: u64,
}

/// Weighs an inode by what the file system said of its node at first: the cache's sums rest on a weight that does not change.
#[derive(Clone)]
struct ByNode;

impl<F: FileSystem> Weighter<Ino, Arc<Inode<F>>> for ByNode {
    fn weight(&self, _: &Ino, inode: &Arc<Inode<F>>) -> u64 {
        inode.bytes
    }
}

/// Keeps inodes that somebody holds.
#[derive(Clone)]
struct PinHeld;

impl<F: FileSystem> Lifecycle<Ino, Arc<Inode<F>>> for PinHeld {
    /// Evicted inodes are dropped here, after the cache's lock is released.
    type RequestState = Vec<Arc<Inode<F>>>;

    fn is_pinned(&self, _: &Ino, inode: &Arc<Inode<F>>) -> bool {
        Arc::strong_count(inode) > 1
    }

    /// Under the shard's lock, so nobody misses the inode before it is away (I1).
    fn on_evict(&self, evicted: &mut Self::RequestState, _: Ino, inode: Arc<Inode<F>>) {
        inode.home.goes_away(&inode);
        evicted.push(inode);
    }
}

/// Inode number → inode.
pub(crate) struct InodeCache<F: FileSystem> {
    home: Arc<Home<F>>,
    doors: Doors<F>,
    cache: Cache<Ino, Arc<Inode<F>>, ByNode, ByNumber, PinHeld>,
    /// Counted here: the cache looks twice before it loads, and counts both.
    loads: AtomicU64,
}

/// Why a number did not become a cached inode.
enum NotCached<F: FileSystem> {
    Away(Arc<Inode<F>>),
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
        let cache = Cache::with_options(options, ByNode, ByNumber::default(), PinHeld);
        let home = Home::new(fs);
        InodeCache { doors: Doors::new(&home), home, cache, loads: AtomicU64::new(0) }
    }

    pub(crate) fn fs(&self) -> &F {
        &self.home.fs
    }

    /// Inode `ino`, loaded once however many ask for it. The caller knows that it has a name, or holds it.
    pub(crate) fn get(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.get_named(ino, || true)
    }

    /// Inode `ino`, to which a name has led; [`Error::Stale`](crate::Error::Stale) where it has to be loaded and the
    /// name is not there any more (I3).
    pub(crate) fn get_named(&self, ino: Ino, still_there: impl FnOnce() -> bool) -> Result<Arc<Inode<F>>> {
        let found = self.cache.get_or_insert_with(&ino, || {
            if let Some(inode) = self.home.away(ino) {
                return Err(NotCached::Away(inode));
            }
            if !still_there() {
                return Err(NotCached::Failed(crate::Error::Stale));
            }
            self.loads.fetch_add(1, Ordering::Relaxed);
            let node = self.home.fs.load(ino).map_err(NotCached::Failed)?;
            Ok(Inode::new(&self.doors, node, Life::Named))
        });
        found.or_else(|why| match why {
            NotCached::Away(inode) => Ok(inode),
            NotCached::Failed(error) => Err(error),
        })
    }

    /// The inode of a node that the file system has just made.
    pub(crate) fn adopt(&self, node: F::Node, life: Life) -> Result<Arc<Inode<F>>> {
        let ino = self.home.fs.attr(&node).ino;
        // The number may have been freed by an eviction that is still on its way out: `away` waits for it.
        if self.home.away(ino).is_some() || self.cache.peek(&ino).is_some() {
            let what =
                format!("inode {ino} was taken for a new file while it is in use; run e2fsck on the image");
            return Err(crate::Error::Corrupt(what.into()));
        }
        let inode = Inode::new(&self.doors, node, life);
        match life {
            Life::Named => self.cache.insert(ino, inode.clone()),
            Life::Unnamed | Life::Removed | Life::Freed => self.home.goes_away(&inode),
        }
        Ok(inode)
    }

    /// Takes an inode that has lost its last name out of the cache, so that it goes with its last holder.
    pub(crate) fn bury(&self, inode: &Arc<Inode<F>>) {
        inode.set_life(Life::Removed);
        // Away before it leaves the cache: in between it is in both (I1).
        self.home.goes_away(inode);
        self.cache.remove(&inode.ino);
    }

    /// The inode by value, where nobody else has it (I4); else it stays what it is.
    pub(crate) fn take_alone(&self, inode: Arc<Inode<F>>) -> std::result::Result<Inode<F>, Arc<Inode<F>>> {
        let taken = self.cache.remove_if(&inode.ino, |cached| {
            let is_alone = Arc::strong_count(cached) == 2 && Arc::ptr_eq(cached, &inode);
            if is_alone {
                self.home.goes_away_alone(inode.ino);
            }
            is_alone
        });
        if taken.is_none() {
            return Err(inode);
        }
        drop(taken);
        Arc::try_unwrap(inode).inspect_err(|inode| self.home.goes_away(inode))
    }

    /// Lets others have an inode again that was taken alone. It is away until they let go.
    pub(crate) fn share_again(&self, alone: Inode<F>) -> Arc<Inode<F>> {
        let inode = Arc::new(alone);
        self.home.goes_away(&inode);
        inode
    }

    /// Lets go of an inode that was freed with its last name, which the name cache does not have any more.
    pub(crate) fn let_go_freed(&self, alone: Inode<F>) {
        alone.set_life(Life::Freed);
    }

    /// Inode `ino` if it is in memory.
    pub(crate) fn cached(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        self.cache.get(&ino)
    }

    /// Whether inode `ino` is in the cache; it does not count as used.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.cache.peek(&ino).is_some()
    }

    /// Evicts until about `percent` of the bytes in use are left, in steps of a 256th of the budget.
    /// The budget stays what it is.
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
            away: self.home.away.iter().map(|shard| shard.inodes.lock().len() as u64).sum(),
        }
    }

    /// The file system itself, if no inode is held any more.
    pub(crate) fn into_fs(self) -> Option<F> {
        let InodeCache { home, doors, cache, .. } = self;
        drop((cache, doors));
        Arc::into_inner(home).map(|home| home.fs)
    }
}
