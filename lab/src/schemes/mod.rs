//! The locking schemes of the study, written again as its text describes them, behind one small trait.
//!
//! | | scheme | look-up | LRU | from |
//! |---|---|---|---|---|
//! | 1 | [`Global`] | `dcache_lock` | `dcache_lock` | the kernels measured (2.4.16) |
//! | 2 | [`PerBucket`] | a lock per hash bucket | `dcache_lock` | 3.1, given up by the authors |
//! | 3 | [`BigReader`] | a big-reader lock, reading | the same, writing; lazy | 3.2 |
//! | 4 | [`FastWalk`] | `dcache_lock`, once per path | `dcache_lock` | 3.3 |
//! | 5 | [`RcuGlobalLru`] | RCU | `dcache_lock` | 3.4 |
//! | 6 | [`RcuLruLock`] | RCU | a lock of its own | 3.4.1 |
//! | 7 | [`RcuPerBucket`] | RCU | a lock and a list per bucket | 3.4.2, given up by the authors |
//! | 8 | [`LazyLru`] | RCU, then the entry's `d_lock` | `dcache_lock`; lazy | 3.4.3, the one they chose |
//! | 9 | [`LazyLruTimer`] | as 8 | as 8, tidied by a timer | 3.4.3.2 |
//! | 10 | [`FastWalkLazy`] | as 4 | as 4; lazy | the authors' TODO |
//! | 11 | [`SeqCount`] | sequence counts; one reference at the end | a lock of its own; lazy | today's kernel |
//! | 12 | [`Dentree`] | sequence counts; one reference at the end | a clock | `dentree_dcache` |
//! | | [`LazyLru`] over [`Mapped`] | RCU, then the map of a crate, then `d_lock` | as 8 | dashmap, papaya, scc, moka |
//!
//! All keep the kernel's lists: hash chains, children, aliases, LRU. What most do with them alike is written once, in
//! `listed.rs`; a scheme's own file says how it looks up, what it locks, and where that changes a step. "Lazy" means that a look-up leaves
//! an unused entry on the LRU list, and that whoever walks the list later takes it off.
//!
//! # Memory, and why there is no `unsafe`
//! Entries lie in an arena, are named by number, and all their fields are atomics: a race can give a wrong value, never an
//! invalid one, and a lock in the right place makes it right (relaxed loads and stores are plain moves). RCU is
//! crossbeam-epoch: a read side is a pin, and an entry's number returns to the arena after a grace period.
//!
//! # What callers promise
//! As the VFS does: who adds, deletes or renames holds a lock of the directories concerned, and renames of
//! directories are done one at a time; look-ups, references, pruning and aliases need nothing.

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

/// The number of an inode. An entry without one is negative: it says that the name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub NonZeroU64);

impl Inode {
    /// The type that an inode has in a file system: set for what is no directory, where the load knows. Schemes need not
    /// look at it.
    pub const FILE: u64 = 1 << 63;

    /// Whether the load says that this is no directory.
    pub fn is_file(self) -> bool {
        self.0.get() & Self::FILE != 0
    }
}

/// How a cache is built.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Entries that there is room for.
    pub entries: usize,
    /// Hash chains (`dhash_entries`); rounded up to a power of two.
    pub heads: usize,
    /// Whether chain walks prefetch the next entry while they compare one.
    pub prefetch: bool,
}

/// How full a cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Entries in use, the root among them. Those that wait for a grace period count.
    pub entries: usize,
    /// Entries on LRU lists; where the list is lazy, some of them may be referenced.
    pub on_lru: usize,
    /// Bytes of one entry, without long names.
    pub entry_bytes: usize,
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The last entry found, with a reference that is the caller's.
    pub dentry: Dentry,
    /// Components found. Fewer than asked for: `dentry` is negative, or has no entry of the next name.
    pub depth: usize,
}

/// A path from the root as its caller has it: the text, and the components that the text is cut
/// into, so that no scheme has to cut or to join on behalf of another.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    components: &'a [&'a [u8]],
    text: &'a [u8],
}

impl<'a> Path<'a> {
    /// A path of these components; `text` is the same, with one slash between two.
    pub fn new(components: &'a [&'a [u8]], text: &'a [u8]) -> Self {
        debug_assert_eq!(components.join(&b'/'), text);
        Self { components, text }
    }

    /// All of it, without a slash at its beginning.
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

/// What a path led to, when nothing is held any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Components found; see [`Walked::depth`].
    pub depth: usize,
    /// The inode of the last of them; `None` if it is negative.
    pub inode: Option<Inode>,
}

/// Acquisitions that a scheme counted by itself, since it was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnLocks {
    /// By look-ups: those that did not find their answer without a lock.
    pub look_ups: u64,
    /// By creations, deletions and renames: a directory's lock for each directory.
    pub changes: u64,
}

/// A directory entry cache. Entries that it hands out carry a reference, which the caller gives back by
/// [`dput`](Self::dput); only referenced entries may be handed in.
pub trait Scheme: Send + Sync {
    /// `d_lookup`: the entry of this name in this directory, if cached; negative ones too.
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry>;

    /// `link_path_walk`, as far as the cache goes: every component from the root, until one is missing or negative.
    fn walk(&self, path: Path<'_>) -> Walked {
        self.dget(Dentry::ROOT);
        walk_on(self, path, Walked { dentry: Dentry::ROOT, depth: 0 })
    }

    /// `stat(2)`: a walk, a look at what it found, and its reference given back.
    fn resolve(&self, path: Path<'_>) -> Resolved {
        let Walked { dentry, depth } = self.walk(path);
        let inode = self.inode(dentry);
        self.dput(dentry);
        Resolved { depth, inode }
    }

    /// Takes another reference to a referenced entry.
    fn dget(&self, dentry: Dentry);

    /// Gives a reference back. With the last one the entry becomes unused, and is freed if it has no name any more.
    fn dput(&self, dentry: Dentry);

    /// `d_alloc`, `d_instantiate`, `d_rehash`: a new entry for a name that has none. `None` if there is no room, and
    /// nothing that can be pruned.
    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry>;

    /// `d_instantiate`: gives a negative entry an inode.
    fn instantiate(&self, dentry: Dentry, inode: Inode);

    /// What is cached under this name; if nothing is, or a negative entry, made so that it has `inode`.
    fn create(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        let Some(known) = self.lookup(parent, name) else {
            return self.add(parent, name, inode);
        };
        if let (None, Some(inode)) = (self.inode(known), inode) {
            self.instantiate(known, inode);
        }
        Some(known)
    }

    /// `d_delete`: the name does not exist any more. The entry becomes negative if only the caller uses it, nameless otherwise.
    fn delete(&self, dentry: Dentry);

    /// `d_move`: gives the entry another name. An entry that has the name already loses it.
    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]);

    /// How many entries pruning frees at once: it may free a batch more than was wanted, less one.
    fn prune_batch(&self) -> usize {
        1
    }

    /// `prune_dcache`: frees up to `wanted` unused entries, those that were not looked up of late first. How many it freed.
    fn prune(&self, wanted: usize) -> usize;

    /// `shrink_dcache_parent`, whose heart is `select_parent`: frees all unused entries below a directory. How many.
    fn select_parent(&self, parent: Dentry) -> usize;

    /// All entries of an inode that have a name, each with a reference.
    fn aliases(&self, inode: Inode) -> Vec<Dentry>;

    /// Whether there are lists of an inode's entries; where not, [`aliases`](Self::aliases) finds none.
    fn keeps_aliases(&self) -> bool {
        true
    }

    /// Acquisitions of locks that are not lockmeter's; `None` where all are.
    fn own_locks(&self) -> Option<OwnLocks> {
        None
    }

    /// The entry's inode; `None` if it is negative.
    fn inode(&self, dentry: Dentry) -> Option<Inode>;

    /// How full the cache is.
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

/// The schemes, in the order of the table above, with today's entry (one line of what look-ups read), and the rivals.
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

/// Scheme 8 with every placement of fields, alignment of entries, and length of inline names: what the mail of 2005 compared,
/// on the scheme that its kernel had, and what it asked at the end.
pub const LAYOUTS: [Variant; 18] = layouts![
    Apart Aligned 2, Apart Aligned 4, Apart Aligned 8,
    Apart Dense 2, Apart Dense 4, Apart Dense 8,
    Together Aligned 2, Together Aligned 4, Together Aligned 8,
    Together Dense 2, Together Dense 4, Together Dense 8,
    Split Aligned 2, Split Aligned 4, Split Aligned 8,
    Split Dense 2, Split Dense 4, Split Dense 8,
];

/// What `alloc` makes, after pruning for it if need be. Where freed entries wait for a grace period, time passes for them here.
fn make_room(scheme: &(impl Scheme + ?Sized), alloc: impl Fn() -> Option<Dentry>) -> Option<Dentry> {
    const PRUNED_AT_ONCE: usize = 32;
    const ATTEMPTS: usize = 500;
    /// Attempts after which this thread sleeps between two: a grace period may wait for a thread that has lost its CPU to us.
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

/// The rest of a walk that got as far as `at`, look-up by look-up.
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
