//! Dentree's cache and its rivals, one file each behind one small trait.
//!
//! Each rival has its best honest form: one good hasher for all ([`Hasher`]), keys looked up by
//! reference without allocation, short names inline, guards and locks entered once per path if the
//! crate allows it. What they lack is part of the comparison: no map can overlap the misses of a
//! path, and a map's rename is a removal and an insertion between which a reader finds neither name
//! (weaker than G1 and G2).

mod chained;
mod dashmap;
mod dentree;
mod kernel;
pub(crate) mod key;
mod moka;
mod papaya;
mod rwlock;
mod scc;
mod split;

use std::ops::Range;

use dentree_dcache::PrefetchMode;

pub use self::chained::Chained;
pub use self::dashmap::DashMap;
pub use self::dentree::{Batch, Dentree, Held};
pub(crate) use self::kernel::create_in;
pub use self::kernel::{KernelStat, create_below};
pub use self::moka::Moka;
pub use self::papaya::Papaya;
pub use self::rwlock::LockedMap;
pub use self::scc::SccIndex;
pub use self::split::SplitOnly;
use crate::paths::{Path, PathSet, Rename};
use crate::tree::{NodeId, Tree};

/// The hasher of every rival, with a fixed seed: the default of the fastest maps, and good on short
/// strings.
pub type Hasher = foldhash::fast::FixedState;

pub(crate) fn hasher() -> Hasher {
    Hasher::with_seed(0x5eed)
}

/// Walks per rename in a load with renames: one operation in a hundred.
pub const WALKS_PER_RENAME: usize = 99;

/// A slice of work: walks, and renames between them.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// All paths.
    pub paths: &'a PathSet,
    /// The paths to walk, in order.
    pub range: &'a Range<usize>,
    /// One rename follows every [`WALKS_PER_RENAME`] walks, in order.
    pub renames: &'a [Rename],
}

/// The results of a slice of work, for comparison with the expected ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Wrapping sum of the tokens of all entries found.
    pub tokens: u64,
    /// Walks without a result.
    pub misses: u64,
}

impl Tally {
    /// Counts a walk's result.
    pub fn count(&mut self, result: Option<u64>) {
        match result {
            Some(token) => self.tokens = self.tokens.wrapping_add(token),
            None => self.misses += 1,
        }
    }
}

/// A cache that walks paths: Dentree's or a rival's.
pub trait NameCache: Sync {
    /// Walks a path from the root, component by component. Returns the token of the entry, or
    /// `None` if a component is missing.
    fn walk(&self, path: Path<'_>) -> Option<u64>;

    /// The result of a walk to a node: the node's number, unless the cache has its own numbers.
    fn token(&self, node: NodeId) -> u64 {
        u64::from(node.0)
    }

    /// Renames an entry; a directory with everything below it.
    fn rename(&self, rename: &Rename);

    /// Does a slice of work. The loop is inside: a virtual call per slice, not per path.
    fn run(&self, work: Work<'_>) -> Tally {
        let mut tally = Tally::default();
        let mut renames = work.renames.iter();
        let mut until_rename = WALKS_PER_RENAME;
        for at in work.range.clone() {
            tally.count(self.walk(work.paths.path(at)));
            until_rename -= 1;
            if until_rename == 0 {
                until_rename = WALKS_PER_RENAME;
                if let Some(rename) = renames.next() {
                    self.rename(rename);
                }
            }
        }
        tally
    }

    /// Bytes by the cache's own count, if an allocator does not see its memory.
    fn own_bytes(&self) -> Option<usize> {
        None
    }

    /// Locks acquired by lookups since the start, if the cache counts them.
    fn lock_acquisitions(&self) -> Option<u64> {
        None
    }
}

/// A rival that any machine can build: all but the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Name in rows.
    pub name: &'static str,
    /// Builds the cache of all entries of a tree. The mode applies to Dentree's own unless the name
    /// says one.
    pub build: fn(&Tree, PrefetchMode) -> Box<dyn NameCache>,
}

/// Dentree's cache: by default, with references to results, in batches, and with prefetch switched
/// by hand.
pub const DENTREE: [Variant; 5] = [
    Variant { name: "dentree", build: |tree, mode| Box::new(Dentree::build(tree, mode)) },
    Variant { name: "dentree-held", build: |tree, mode| Box::new(Held(Dentree::build(tree, mode))) },
    Variant { name: "dentree-batch", build: |tree, mode| Box::new(Batch(Dentree::build(tree, mode))) },
    Variant { name: "dentree-prefetch", build: |tree, _| Box::new(Dentree::build(tree, PrefetchMode::On)) },
    Variant {
        name: "dentree-no-prefetch",
        build: |tree, _| Box::new(Dentree::build(tree, PrefetchMode::Off)),
    },
];

/// The best concurrent maps of crates, keyed by (parent, name).
pub const MAPS: [Variant; 5] = [
    Variant { name: "rwlock-hashmap", build: |tree, _| Box::new(LockedMap::build(tree)) },
    Variant { name: "dashmap", build: |tree, _| Box::new(DashMap::build(tree)) },
    Variant { name: "papaya", build: |tree, _| Box::new(Papaya::build(tree)) },
    Variant { name: "scc", build: |tree, _| Box::new(SccIndex::build(tree)) },
    Variant { name: "moka", build: |tree, _| Box::new(Moka::build(tree)) },
];

/// The chained table.
pub const CHAINED: Variant = Variant { name: "chained", build: |tree, _| Box::new(Chained::build(tree)) };

/// Splits paths without lookups: the base that valgrind's figures are reduced by.
pub const SPLIT_ONLY: Variant = Variant { name: "split-only", build: |_, _| Box::new(SplitOnly) };
