//! The locking schemes of the study, reimplemented from its text behind one small trait.
//!
//! | | scheme | lookup | LRU | from |
//! |---|---|---|---|---|
//! | 1 | [`Global`] | `dcache_lock` | `dcache_lock` | the kernels measured (2.4.16) |
//! | 2 | [`PerBucket`] | a lock per hash bucket | `dcache_lock` | 3.1, given up by the authors |
//! | 3 | [`BigReader`] | a big-reader lock, reading | the same, writing; lazy | 3.2 |
//! | 4 | [`FastWalk`] | `dcache_lock`, once per path | `dcache_lock` | 3.3 |
//! | 5 | [`RcuGlobalLru`] | RCU | `dcache_lock` | 3.4 |
//! | 6 | [`RcuLruLock`] | RCU | a lock of its own | 3.4.1 |
//! | 7 | [`RcuPerBucket`] | RCU | a lock and a list per bucket | 3.4.2, given up by the authors |
//! | 8 | [`LazyLru`] | RCU, then the entry's `d_lock` | `dcache_lock`; lazy | 3.4.3, chosen |
//! | 9 | [`LazyLruTimer`] | as 8 | as 8, tidied by a timer | 3.4.3.2 |
//! | 10 | [`FastWalkLazy`] | as 4 | as 4; lazy | the authors' TODO |
//! | 11 | [`SeqCount`] | sequence counts; one reference | its own lock; lazy | today's kernel |
//! | 12 | [`Dentree`] | sequence counts; one reference | a clock | `dentree_dcache` |
//! | | [`LazyLru`] over [`Mapped`] | RCU, a map, `d_lock` | as 8 | dashmap, papaya, scc, moka |
//!
//! Schemes 1 to 11 keep the kernel's lists: hash chains, children, aliases, LRU. `listed.rs` holds
//! the steps that most have in common; a scheme's own file holds its lookup, its locks and the
//! steps that differ. "Lazy": a lookup leaves an unused entry on the LRU list, and a later walk of
//! the list takes it off.
//!
//! # Memory, and why there is no `unsafe`
//! Entries lie in an arena and are named by number; all their fields are atomics. A race can yield
//! a wrong value, never an invalid one, and the right lock excludes it (relaxed loads and stores
//! are plain moves). RCU is crossbeam-epoch: a read-side critical section is a pin, and an entry's
//! number returns to the arena after a grace period.
//!
//! # Caller's obligations
//! As in the VFS: additions, deletions and renames hold a lock of the directories concerned, and
//! directories are renamed one at a time. Lookups, references, pruning and aliases need nothing.

mod big_reader;
mod dentree;
mod entry;
mod fastwalk;
mod fastwalk_lazy;
mod functions;
mod global;
mod index;
mod interleave;
mod lazy_lru;
mod lazy_lru_timer;
mod listed;
mod lists;
mod mapped;
mod per_bucket;
mod rcu_global_lru;
mod rcu_lru_lock;
mod rcu_per_bucket;
mod seq_count;
mod sequence;
mod table;

pub use big_reader::BigReader;
pub use dentree::Dentree;
pub use entry::{Aligned, Apart, Dense, Dentry, Layout, Split, Standard, Together};
pub use fastwalk::FastWalk;
pub use fastwalk_lazy::FastWalkLazy;
pub use functions::function_at;
pub use global::Global;
pub use lazy_lru::LazyLru;
pub use lazy_lru_timer::LazyLruTimer;
pub use mapped::Mapped;
pub use per_bucket::PerBucket;
pub use rcu_global_lru::RcuGlobalLru;
pub use rcu_lru_lock::RcuLruLock;
pub use rcu_per_bucket::RcuPerBucket;
pub use seq_count::SeqCount;

use std::num::NonZeroU64;

use crate::rivals::{DashMap, Moka, Papaya, SccIndex};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// An inode number. An entry without one is negative: the name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub NonZeroU64);

impl Inode {
    /// Set by the load for anything but a directory. Schemes may ignore it.
    pub const FILE: u64 = 1 << 63;

    /// Whether the load says that this is no directory.
    pub fn is_file(self) -> bool {
        self.0.get() & Self::FILE != 0
    }
}

/// Parameters of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The most entries.
    pub entries: usize,
    /// Hash chains (`dhash_entries`); rounded up to a power of two.
    pub heads: usize,
    /// Whether chain walks prefetch the next entry while they compare one.
    pub prefetch: bool,
}

/// The use of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Entries in use, with the root and those that wait for a grace period.
    pub entries: usize,
    /// Entries on LRU lists. On a lazy list some of them may be referenced.
    pub on_lru: usize,
    /// Bytes of one entry, without long names.
    pub entry_bytes: usize,
}

/// The end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The last entry found, with a reference for the caller.
    pub dentry: Dentry,
    /// Components found. If fewer than asked for, `dentry` is negative or has no entry of the next
    /// name.
    pub depth: usize,
}

/// A path from the root, both as text and as components: no scheme has to split or join for
/// another.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    components: &'a [&'a [u8]],
    text: &'a [u8],
}

impl<'a> Path<'a> {
    /// A path of these components; `text` is the same, joined by slashes.
    pub fn new(components: &'a [&'a [u8]], text: &'a [u8]) -> Self {
        debug_assert_eq!(components.join(&b'/'), text);
        Self { components, text }
    }

    /// The text, without a leading slash.
    pub fn text(self) -> &'a [u8] {
        self.text
    }
}

impl<'a> std::ops::Deref for Path<'a> {
    type Target = [&'a [u8]];

    fn deref(&self) -> &Self::Target {
        self.components
    }
}

/// The result of a path, without a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Components found; see [`Walked::depth`].
    pub depth: usize,
    /// The inode of the last one; `None` if it is negative.
    pub inode: Option<Inode>,
}

/// Lock acquisitions that a scheme counted itself since it was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnLocks {
    /// By lookups that missed the lock-free path.
    pub lookups: u64,
    /// By creations, deletions and renames: one per directory.
    pub changes: u64,
}

/// A directory entry cache. Entries returned carry a reference, which the caller drops by
/// [`dput`](Self::dput); entries passed in must be referenced.
pub trait Scheme: Send + Sync {
    /// `d_lookup`: the cached entry of this name in this directory, positive or negative.
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry>;

    /// `link_path_walk` within the cache: from the root up to the first component that is missing
    /// or negative.
    fn walk(&self, path: Path<'_>) -> Walked {
        self.dget(Dentry::ROOT);
        walk_on(self, path, Walked { dentry: Dentry::ROOT, depth: 0 })
    }

    /// `stat(2)`: a walk, the inode found, and `dput`.
    fn resolve(&self, path: Path<'_>) -> Resolved {
        let Walked { dentry, depth } = self.walk(path);
        let inode = self.inode(dentry);
        self.dput(dentry);
        Resolved { depth, inode }
    }

    /// Takes another reference to a referenced entry.
    fn dget(&self, dentry: Dentry);

    /// Drops a reference. With the last one the entry becomes unused, and is freed if it has no
    /// name.
    fn dput(&self, dentry: Dentry);

    /// `d_alloc`, `d_instantiate`, `d_rehash`: a new entry for a name that has none. `None` if the
    /// cache is full and nothing can be pruned.
    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry>;

    /// `d_instantiate`: gives a negative entry an inode.
    fn instantiate(&self, dentry: Dentry, inode: Inode);

    /// The entry of this name; a missing or negative one is made to have `inode`.
    fn create(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        let Some(known) = self.lookup(parent, name) else {
            return self.add(parent, name, inode);
        };
        if let (None, Some(inode)) = (self.inode(known), inode) {
            self.instantiate(known, inode);
        }
        Some(known)
    }

    /// `d_delete`: the name ceases to exist. The entry becomes negative if the caller is its only
    /// user, nameless otherwise.
    fn delete(&self, dentry: Dentry);

    /// `d_move`: renames the entry. An entry that has the new name loses it.
    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]);

    /// Entries that pruning frees at once: it may free up to a batch less one too many.
    fn prune_batch(&self) -> usize {
        1
    }

    /// `prune_dcache`: frees up to `wanted` unused entries, least recently used first. Returns
    /// their number.
    fn prune(&self, wanted: usize) -> usize;

    /// `shrink_dcache_parent` over `select_parent`: frees all unused entries below a directory.
    /// Returns their number.
    fn select_parent(&self, parent: Dentry) -> usize;

    /// All entries of an inode that have a name, each with a reference.
    fn aliases(&self, inode: Inode) -> Vec<Dentry>;

    /// Whether there are alias lists. If not, [`aliases`](Self::aliases) finds none.
    fn keeps_aliases(&self) -> bool {
        true
    }

    /// Acquisitions of locks that lockmeter does not count; `None` if it counts all.
    fn own_locks(&self) -> Option<OwnLocks> {
        None
    }

    /// The entry's inode; `None` if it is negative.
    fn inode(&self, dentry: Dentry) -> Option<Inode>;

    /// The use of the cache.
    fn usage(&self) -> Usage;
}

/// A scheme that can be built.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in rows and tables.
    pub name: &'static str,
    /// Builds it, empty but for the root.
    pub build: fn(Config) -> Box<dyn Scheme>,
}

/// The schemes in the order of the table above, with today's layout, and the rivals.
pub const SCHEMES: [Variant; 16] = [
    Variant { name: "1 global lock", build: |config| Box::new(Global::<Standard>::new(config)) },
    Variant { name: "2 bucket locks", build: |config| Box::new(PerBucket::<Standard>::new(config)) },
    Variant { name: "3 big-reader lock", build: |config| Box::new(BigReader::<Standard>::new(config)) },
    Variant { name: "4 fastwalk", build: |config| Box::new(FastWalk::<Standard>::new(config)) },
    Variant {
        name: "5 rcu, lru under global lock",
        build: |config| Box::new(RcuGlobalLru::<Standard>::new(config)),
    },
    Variant { name: "6 rcu, lru lock", build: |config| Box::new(RcuLruLock::<Standard>::new(config)) },
    Variant { name: "7 rcu, bucket locks", build: |config| Box::new(RcuPerBucket::<Standard>::new(config)) },
    Variant { name: "8 lazy lru", build: |config| Box::new(LazyLru::<Standard>::new(config)) },
    Variant { name: "9 lazy lru, timer", build: |config| Box::new(LazyLruTimer::<Standard>::new(config)) },
    Variant {
        name: "10 fastwalk, lazy lru",
        build: |config| Box::new(FastWalkLazy::<Standard>::new(config)),
    },
    Variant { name: "11 sequence counts", build: |config| Box::new(SeqCount::<Standard>::new(config)) },
    Variant { name: "12 dentree", build: |config| Box::new(Dentree::new(config)) },
    Variant { name: "dashmap", build: |config| Box::new(OverMap::<DashMap>::new(config)) },
    Variant { name: "papaya", build: |config| Box::new(OverMap::<Papaya>::new(config)) },
    Variant { name: "scc", build: |config| Box::new(OverMap::<SccIndex>::new(config)) },
    Variant { name: "moka", build: |config| Box::new(OverMap::<Moka>::new(config)) },
];

/// A crate's map in place of scheme 8's chains.
type OverMap<M> = LazyLru<Standard, Mapped<M>>;

macro_rules! layouts {
    ($($placement:ident $alignment:ident $words:literal),* $(,)?) => {
        [$(Variant {
            name: concat!(stringify!($placement), ", ", stringify!($alignment), ", ", stringify!($words), " words"),
            build: |config| Box::new(LazyLru::<$placement<$words, $alignment>>::new(config)),
        }),*]
    };
}

/// Scheme 8 with every placement of fields, alignment of entries and length of inline names: the
/// comparison of the mail of 2005, and the question at its end.
pub const LAYOUTS: [Variant; 18] = layouts![
    Apart Aligned 2, Apart Aligned 4, Apart Aligned 8,
    Apart Dense 2, Apart Dense 4, Apart Dense 8,
    Together Aligned 2, Together Aligned 4, Together Aligned 8,
    Together Dense 2, Together Dense 4, Together Dense 8,
    Split Aligned 2, Split Aligned 4, Split Aligned 8,
    Split Dense 2, Split Dense 4, Split Dense 8,
];

/// Calls `alloc`, and prunes until it succeeds. Where freed entries wait for a grace period, this
/// gives the period time.
fn make_room(scheme: &(impl Scheme + ?Sized), alloc: impl Fn() -> Option<Dentry>) -> Option<Dentry> {
    const PRUNED_AT_ONCE: usize = 32;
    const ATTEMPTS: usize = 500;
    /// After this many attempts the thread sleeps between two: a grace period may wait for a
    /// preempted thread.
    const HASTY: usize = 100;
    for attempt in 0..ATTEMPTS {
        if let Some(dentry) = alloc() {
            return Some(dentry);
        }
        scheme.prune(PRUNED_AT_ONCE);
        crossbeam_epoch::pin().flush();
        if attempt < HASTY {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
    None
}

/// Completes a walk from `at`, lookup by lookup.
fn walk_on(scheme: &(impl Scheme + ?Sized), path: Path<'_>, mut at: Walked) -> Walked {
    for name in path.iter().skip(at.depth) {
        if scheme.inode(at.dentry).is_none() {
            break;
        }
        let Some(next) = scheme.lookup(at.dentry, name) else { break };
        scheme.dput(at.dentry);
        at = Walked { dentry: next, depth: at.depth + 1 };
    }
    at
}
