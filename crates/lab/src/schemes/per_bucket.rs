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

use super::entry::{Dentry, Layout};
use super::lists::Freed;
use super::table::{Table, Wanted};
use super::{Config, Inode, Scheme, Usage, make_room};

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

    /// As [`Table::prune_one`], but for the list's lies; under `dcache_lock`.
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

    /// The entry is in no list: nobody can reach it.
    fn free(&self, freed: Freed) {
        self.table.release(freed.dentry);
        self.dput(freed.parent);
    }
}

impl<L: Layout> Scheme for PerBucket<L> {
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

    fn dget(&self, dentry: Dentry) {
        self.table.get(dentry);
    }

    fn dput(&self, dentry: Dentry) {
        let mut at = dentry;
        while !self.table.put_unless_last(at) {
            let held = self.dcache_lock.lock();
            let Some(freed) = self.table.put_last(at) else { return };
            drop(held);
            self.table.release(freed.dentry);
            at = freed.parent;
        }
    }

    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let dentry = make_room(self, || self.table.alloc(&wanted))?;
        self.dget(parent);
        {
            let _d_alloc = self.dcache_lock.lock();
            self.table.add_child(dentry);
        }
        if let Some(inode) = inode {
            self.instantiate(dentry, inode);
        }
        let _d_rehash = self.bucket(wanted.hash).lock();
        self.table.rehash(dentry);
        Some(dentry)
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        let _held = self.dcache_lock.lock();
        self.table.add_alias(dentry, inode);
    }

    fn delete(&self, dentry: Dentry) {
        let _held = self.dcache_lock.lock();
        let _bucket = self.bucket(self.table.hash(dentry)).lock();
        self.table.delete_or_unhash(dentry);
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        let held = self.dcache_lock.lock();
        let wanted = Wanted::new(new_parent, name);
        let buckets = self.lock_two(self.table.hash(dentry), wanted.hash);
        let moved = self.table.move_to(dentry, &wanted);
        drop((buckets, held));
        self.dput(moved.old_parent);
        moved.freed.into_iter().for_each(|freed| self.free(freed));
    }

    fn prune(&self, wanted: usize) -> usize {
        for pruned in 0..wanted {
            let held = self.dcache_lock.lock();
            let Some(freed) = self.prune_one() else { return pruned };
            drop(held);
            self.free(freed);
        }
        wanted
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let mut pruned = 0;
        loop {
            let held = self.dcache_lock.lock();
            let found = self.table.select_unused_below(parent);
            drop(held);
            let now = self.prune(found);
            pruned += now;
            if now == 0 {
                return pruned;
            }
        }
    }

    fn aliases(&self, inode: Inode) -> Vec<Dentry> {
        let _held = self.dcache_lock.lock();
        self.table.get_aliases(inode)
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.table.inode(dentry)
    }

    fn usage(&self) -> Usage {
        self.table.usage(self.table.lru.len())
    }
}
