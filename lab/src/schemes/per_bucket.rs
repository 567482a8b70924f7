//! Scheme 2: a lock per hash bucket, given up by the authors: "nasty and hard to debug race
//! conditions".
//!
//! In this variant the bucket's lock guards the chain, and `dcache_lock` the rest.
//!
//! | field | guard |
//! |---|---|
//! | a chain, the keys in it, a count's step from zero by lookup | its bucket's lock |
//! | the LRU list, children, aliases, a count's step to zero | `dcache_lock` |
//! | counts above zero | atomic |
//!
//! Lock order: `dcache_lock`, then buckets by address.
//!
//! What makes it correct:
//! - A lookup holds the bucket and needs the LRU list, against the lock order. It counts its
//!   reference under the bucket's lock, unlocks, and takes the entry off the list afterwards. In
//!   between the list holds an entry in use.
//! - Hence pruning does not trust the list: it takes an entry off, locks its bucket, which excludes
//!   lookups, and checks the count again.
//! - `dput` to zero and a lookup from zero hold different locks. `dput` frees only entries without
//!   a name, which no lookup finds; it adds the others to the list, from which the lookup then
//!   takes them.
//! - A rename locks two buckets, by address, and changes keys under both.
//!
//! So every lookup of an unused entry still takes `dcache_lock`, and every change takes two locks.

use std::sync::Arc;

use dentree_lockmeter::{Class, SpinGuard, SpinLock};

use super::Config;
use super::entry::{Dentry, Layout};
use super::listed::{Listed, listed_in};
use super::lists::{Freed, Moved};
use super::table::{Table, Wanted};

/// See the module.
#[derive(Debug)]
pub struct PerBucket<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
    buckets: Box<[SpinLock<()>]>,
}

impl<L: Layout> PerBucket<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        let table = Table::new(config);
        let class = Class::named("bucket");
        let buckets = (0..table.heads()).map(|_| SpinLock::new(class, ())).collect();
        Self { table, dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()), buckets }
    }

    fn bucket(&self, hash: u32) -> &SpinLock<()> {
        &self.buckets[self.table.bucket(hash)]
    }

    /// Locks the buckets of two hashes, the lower one first; only one if they are the same.
    fn lock_two(&self, one: u32, other: u32) -> (SpinGuard<'_, ()>, Option<SpinGuard<'_, ()>>) {
        let (one, other) = (self.table.bucket(one), self.table.bucket(other));
        let low = self.buckets[one.min(other)].lock();
        let high = (one != other).then(|| self.buckets[one.max(other)].lock());
        (low, high)
    }
}

impl<L: Layout> Listed for PerBucket<L> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let bucket = self.bucket(wanted.hash).lock();
        let dentry = self.table.find(&wanted)?;
        let was_unused = self.table.count(dentry) == 0;
        self.table.get(dentry);
        self.table.set_referenced(dentry);
        drop(bucket);
        if was_unused {
            let _held = self.dcache_lock.lock();
            self.table.lru_remove(&self.table.lru, dentry);
        }
        Some(dentry)
    }

    fn rehash(&self, dentry: Dentry, wanted: &Wanted<'_>) {
        let _held = self.bucket(wanted.hash).lock();
        self.table.rehash(dentry);
    }

    fn delete(&self, dentry: Dentry) {
        let _held = self.dcache_lock.lock();
        let _bucket = self.bucket(self.table.hash(dentry)).lock();
        self.table.delete_or_unhash(dentry);
    }

    fn move_to(&self, dentry: Dentry, wanted: &Wanted<'_>) -> Moved {
        let _buckets = self.lock_two(self.table.hash(dentry), wanted.hash);
        self.table.move_to(dentry, wanted)
    }

    /// Checks the count under the bucket's lock: see the module.
    fn prune_one(&self) -> Option<Freed> {
        let bucket = |dentry| self.bucket(self.table.hash(dentry)).lock();
        let (dentry, _bucket) = self.table.take_oldest_unused(bucket)?;
        Some(self.table.kill(dentry))
    }

    /// No grace period: every reader holds a lock.
    fn release(&self, dentry: Dentry) {
        self.table.release(dentry);
    }
}
