//! Hash chains of slots. Readers take no lock; the table only grows, by doubling.
//!
//! A chain ends in a nulls marker that names its bucket and the table's size. A reader may be on a
//! slot that is freed and linked into another chain. It then arrives at that chain's marker and
//! starts over. After [`RESTARTS_MAX`] restarts it reports a miss, which costs one block that is
//! not shared.
//!
//! Heads of smaller tables stay allocated until the cache is dropped; together they are smaller
//! than the current ones. A reader that starts there arrives at a marker of the new size and starts
//! over.
//!
//! Writers hold their stripe's lock. A key's stripe is the low bits of its hash, whatever the
//! table's size. Growth takes all stripes in order.

use crate::entry::{Entry, Link};
use crate::slab::Slab;
use dentree_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use dentree_sync::{Mutex, MutexGuard};
use std::sync::OnceLock;

const STRIPES: usize = if cfg!(loom) { 2 } else { 64 };
/// Restarts of a reader that arrived in another chain.
const RESTARTS_MAX: usize = 16;
/// End of a chain; the other bits name the bucket.
const END: u32 = 1 << 31;

type Heads = Box<[AtomicU32]>;

pub(crate) struct Table {
    /// Level `n` has `STRIPES << n` buckets.
    levels: Box<[OnceLock<Heads>]>,
    level: AtomicUsize,
    stripes: Box<[Mutex<()>]>,
}

/// The lock of a stripe, and one key's chain in it.
pub(crate) struct Stripe<'a> {
    bucket: Bucket<'a>,
    _locked: MutexGuard<'a, ()>,
}

/// A chain: its head and its nulls marker.
#[derive(Clone, Copy)]
struct Bucket<'a> {
    head: &'a AtomicU32,
    end: u32,
}

impl Table {
    pub(crate) fn new(slots_max: usize) -> Table {
        let mut levels = 1;
        while STRIPES << levels <= slots_max {
            levels += 1;
        }
        let table = Table {
            levels: (0..levels).map(|_| OnceLock::new()).collect(),
            level: AtomicUsize::new(0),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        };
        table.heads(0);
        table
    }

    fn heads(&self, level: usize) -> &Heads {
        self.levels[level].get_or_init(|| {
            let buckets = STRIPES << level;
            (0..buckets).map(|bucket| AtomicU32::new(end_mark(buckets, bucket))).collect()
        })
    }

    fn bucket(&self, key: u32) -> Bucket<'_> {
        // Acquire, partner: the release in `grow`. A reader of the new level sees its heads filled.
        let heads = self.heads(self.level.load(Ordering::Acquire));
        let bucket = spread(key) as usize & (heads.len() - 1);
        Bucket { head: &heads[bucket], end: end_mark(heads.len(), bucket) }
    }

    /// The first entry of `key` that `wanted` accepts, held; only after `after` if given, which the
    /// caller holds. May miss an entry while the chain changes.
    pub(crate) fn find<'s>(
        &self,
        slab: &'s Slab,
        key: u32,
        after: Option<&Entry>,
        wanted: impl Fn(&Entry) -> bool,
        put: impl Fn(&Entry),
    ) -> Option<&'s Entry> {
        // A restart would return entries before `after` again.
        let tries = if after.is_some() { 1 } else { RESTARTS_MAX };
        for _ in 0..tries {
            let bucket = self.bucket(key);
            // Acquire, partner: the release in `insert`. A reader of the slot's number sees the
            // slot filled.
            let first = after.map(|entry| entry.link().next);
            let mut number = first.unwrap_or_else(|| bucket.head.load(Ordering::Acquire));
            let mut steps = slab.slots_max();
            while number & END == 0 && steps > 0 {
                steps -= 1;
                let entry = slab.slot(number)?;
                let link = entry.link();
                if link.key == key && wanted(entry) && entry.get() {
                    // The reference keeps the slot's generation; check that it is the one that was
                    // read.
                    if entry.link().key == key && wanted(entry) {
                        return Some(entry);
                    }
                    put(entry);
                }
                number = link.next;
            }
            if number == bucket.end {
                return None;
            }
        }
        None
    }

    pub(crate) fn stripe(&self, key: u32) -> Stripe<'_> {
        let locked = self.stripes[spread(key) as usize & (STRIPES - 1)].lock();
        // The level cannot change while a stripe is locked.
        Stripe { bucket: self.bucket(key), _locked: locked }
    }

    /// Doubles the table if chains average more than one entry and the budget has room for the
    /// heads.
    pub(crate) fn grow_for(&self, slab: &Slab, entries: usize) {
        let is_too_full = |level: usize| entries > STRIPES << level && level + 1 < self.levels.len();
        if !is_too_full(self.level.load(Ordering::Relaxed)) {
            return;
        }
        let _all: Vec<_> = self.stripes.iter().map(Mutex::lock).collect();
        let level = self.level.load(Ordering::Relaxed);
        if is_too_full(level) {
            self.grow(slab, level);
        }
    }

    /// Moves every chain to the heads of the next level. [all stripes]
    fn grow(&self, slab: &Slab, level: usize) {
        let heads = self.heads(level + 1);
        for old in self.heads(level) {
            let mut number = old.load(Ordering::Relaxed);
            while number & END == 0 {
                let Some(entry) = slab.slot(number) else { break };
                let link = entry.link();
                let head = &heads[spread(link.key) as usize & (heads.len() - 1)];
                // A reader on this slot continues in the new chain and arrives at the new marker.
                entry.set_link(Link { key: link.key, next: head.load(Ordering::Relaxed) });
                head.store(number, Ordering::Release);
                number = link.next;
            }
        }
        // Release, partner: the acquire in `bucket`.
        self.level.store(level + 1, Ordering::Release);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().filter_map(OnceLock::get).map(|heads| size_of_val(&**heads)).sum()
    }
}

impl Stripe<'_> {
    /// The entry of `key` with `value`.
    pub(crate) fn find<'s>(&self, slab: &'s Slab, key: u32, value: u64) -> Option<&'s Entry> {
        let mut number = self.bucket.head.load(Ordering::Relaxed);
        while let Some(entry) = slab.slot(number).filter(|_| number & END == 0) {
            let link = entry.link();
            if link.key == key && entry.value() == value {
                return Some(entry);
            }
            number = link.next;
        }
        None
    }

    /// Links a filled slot at the front of the chain.
    pub(crate) fn insert(&self, key: u32, number: u32, entry: &Entry) {
        entry.set_link(Link { key, next: self.bucket.head.load(Ordering::Relaxed) });
        // Release, partner: the acquire of the head in `find`.
        self.bucket.head.store(number, Ordering::Release);
    }

    /// Unlinks an entry and returns its slot. The entry keeps its link for readers on it.
    pub(crate) fn remove(&self, slab: &Slab, removed: &Entry) -> Option<u32> {
        let mut before: Option<&Entry> = None;
        let mut number = self.bucket.head.load(Ordering::Relaxed);
        while let Some(entry) = slab.slot(number).filter(|_| number & END == 0) {
            let next = entry.link().next;
            if std::ptr::eq(entry, removed) {
                match before {
                    Some(before) => before.set_link(Link { key: before.link().key, next }),
                    None => self.bucket.head.store(next, Ordering::Release),
                }
                return Some(number);
            }
            (before, number) = (Some(entry), next);
        }
        None
    }
}

/// The nulls marker of a chain. Sizes are powers of two, so size + bucket names both.
fn end_mark(buckets: usize, bucket: usize) -> u32 {
    END | (buckets + bucket) as u32
}

/// Spreads keys with equal low bits over the buckets (Fibonacci hashing).
fn spread(key: u32) -> u32 {
    let product = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (product >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Number of buckets after so many insertions.
    fn buckets(slots_max: usize, entries: u32) -> usize {
        let (slab, table) = (Slab::new(slots_max), Table::new(slots_max));
        for key in 0..entries {
            let (number, entry) = slab.take().unwrap();
            table.stripe(key).insert(key, number, entry);
            table.grow_for(&slab, key as usize + 1);
        }
        (0..entries).for_each(|key| assert!(table.stripe(key).find(&slab, key, 0).is_some(), "{key}"));
        table.heads(table.level.load(Ordering::Relaxed)).len()
    }

    #[test]
    fn the_table_grows_with_its_entries_and_never_beyond_what_the_budget_pays_for() {
        assert_eq!(buckets(100_000, 0), 64);
        assert_eq!(buckets(100_000, 64), 64);
        assert_eq!(buckets(100_000, 65), 128);
        // One bucket per entry.
        assert_eq!(buckets(100_000, 50_000), 65_536);
        assert_eq!(buckets(100_000, 100_000), 65_536);
        assert_eq!(buckets(1 << 17, 1 << 17), 1 << 17);
        assert_eq!(buckets(63, 63), 64);
    }
}
