//! Scheme 2: a lock per hash bucket, which the authors gave up: "nasty and hard to debug race conditions".
//!
//! The variant in which the bucket's lock guards the chain and `dcache_lock` the rest.
//!
//! | field | guard |
//! |---|---|
//! | a chain, the keys in it, a count's step from zero by look-up | its bucket's lock |
//! | the LRU list, children, aliases, a count's step to zero | `dcache_lock` |
//! | counts above zero | atomic |
//!
//! Lock order: `dcache_lock`, then buckets by address.
//!
//! What it took to make it right:
//! * A look-up has the bucket and needs the LRU list, against the order. So it counts its reference under the bucket's lock, lets
//!   go, and takes the entry off the list afterwards. In between the list holds an entry in use.
//! * Hence who prunes must not believe the list: it takes the entry off, locks its bucket, and looks at the count again;
//!   only there can no look-up come between.
//! * `dput` to zero and a look-up from zero hold different locks. That is well as long as `dput` frees only entries that have no
//!   name, which no look-up finds, and adds all others to the list, from which the look-up then takes them.
//! * A rename needs two buckets, by address, and keys change under both.
//!
//! So `dcache_lock` is still taken by every look-up of an unused entry, and everything else takes two locks.

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
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        let table = Table::new(config);
        let class = Class::named("bucket");
        let buckets = (0..table.heads()).map(|_| SpinLock::new(class, ())).collect();
        Self { table, dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()), buckets }
    }

    fn bucket(&self, hash: u32) -> &SpinLock<()> {
        &self.buckets[self.table.bucket(hash)]
    }

    /// The buckets of two hashes, the lower one first; one of them if they are the same.
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

    /// The list lies: see the module.
    fn prune_one(&self) -> Option<Freed> {
        let mut chances = self.table.lru.len();
        while let Some(dentry) = self.table.lru.last() {
            self.table.lru_remove(&self.table.lru, dentry);
            let _bucket = self.bucket(self.table.hash(dentry)).lock();
            if self.table.count(dentry) > 0 {
                continue;
            }
            if chances > 0 && self.table.take_referenced(dentry) {
                chances -= 1;
                self.table.lru_add(&self.table.lru, dentry);
                continue;
            }
            return Some(self.table.kill(dentry));
        }
        None
    }
    /// Without a grace period: nobody reads without a lock.
    fn release(&self, dentry: Dentry) {
        self.table.release(dentry);
    }
}
