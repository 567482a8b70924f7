//! Scheme 7: RCU lookup, and per bucket a lock for its chain and its own LRU list
//! (`dcache_rcu-bucket-2.4.16-05`), which never worked "except booting".
//!
//! | field | guard |
//! |---|---|
//! | a bucket's chain and LRU list, the keys in it, counts' steps from and to zero | its lock |
//! | children, aliases | `dcache_lock` |
//! | counts above zero | atomic |
//! | chains and keys for readers | grace periods; `renames` odd while a key changes (scheme 5) |
//!
//! Lock order: `dcache_lock`, then buckets by address.
//!
//! What makes it correct:
//! - `dput` locks the bucket of an entry that may be renamed meanwhile, so it checks the hash again
//!   under the lock.
//! - `dput` drops the last reference to a nameless entry under the bucket's lock; freeing needs
//!   `dcache_lock`, against the lock order. The locks may be swapped because no other thread finds
//!   the entry: the paths through the tree and the aliases check for a name under the bucket's lock
//!   before they touch the count.
//! - The LRU has no single end: a clock hand visits the buckets and takes each list's last, which
//!   is only roughly the least recently used.
//! - `select_parent` has no list to move its entries to: it frees them at once, under
//!   `dcache_lock`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use dentree_lockmeter::{Class, SpinGuard, SpinLock};

use super::entry::{Dentry, Layout};
use super::lists::Freed;
use super::table::{Lru, Table, Wanted};
use super::{Config, Inode, Scheme, Usage, make_room, sequence};

/// See the module.
#[derive(Debug)]
pub struct RcuPerBucket<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
    buckets: Box<[Bucket]>,
    hand: AtomicUsize, // the bucket that pruning goes on at
    renames: AtomicU32,
}

#[derive(Debug)]
struct Bucket {
    lock: SpinLock<()>,
    lru: Lru, // [lock]
}

impl<L: Layout> RcuPerBucket<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        let table = Table::new(config);
        let class = Class::named("bucket");
        let bucket = |_| Bucket { lock: SpinLock::new(class, ()), lru: Lru::default() };
        Self {
            buckets: (0..table.heads()).map(bucket).collect(),
            table,
            dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()),
            hand: AtomicUsize::new(0),
            renames: AtomicU32::new(0),
        }
    }

    fn bucket(&self, hash: u32) -> &Bucket {
        &self.buckets[self.table.bucket(hash)]
    }

    /// Locks the buckets of two hashes, the lower one first; only one if they are the same.
    fn lock_two(&self, one: u32, other: u32) -> (SpinGuard<'_, ()>, Option<SpinGuard<'_, ()>>) {
        let (one, other) = (self.table.bucket(one), self.table.bucket(other));
        let low = self.buckets[one.min(other)].lock.lock();
        let high = (one != other).then(|| self.buckets[one.max(other)].lock.lock());
        (low, high)
    }

    /// Frees the bucket's least recently used entry that has no second chance.
    fn prune_one(&self, bucket: &Bucket) -> Option<Freed> {
        if bucket.lru.len() == 0 {
            return None; // most buckets, most times: not worth the locks
        }
        let _held = self.dcache_lock.lock();
        let _bucket = bucket.lock.lock();
        for _ in 0..bucket.lru.len() {
            let dentry = bucket.lru.last()?;
            self.table.lru_remove(&bucket.lru, dentry);
            if !self.table.take_referenced(dentry) {
                return Some(self.table.kill(dentry));
            }
            self.table.lru_add(&bucket.lru, dentry);
        }
        None
    }

    /// Takes all unused entries below a directory off all lists.
    fn free_unused_below(&self, parent: Dentry) -> Vec<Freed> {
        let _held = self.dcache_lock.lock();
        let unhash_unused = |dentry: &Dentry| {
            let bucket = self.bucket(self.table.hash(*dentry));
            let _bucket = bucket.lock.lock();
            let unused = self.table.count(*dentry) == 0 && self.table.is_hashed(*dentry);
            if unused {
                self.table.lru_remove(&bucket.lru, *dentry);
                self.table.unhash(*dentry);
            }
            unused
        };
        let unused: Vec<_> = self.table.below(parent).filter(unhash_unused).collect();
        unused.into_iter().map(|dentry| self.table.kill(dentry)).collect()
    }

    /// Frees an entry that is in no list; readers without a lock may still use it.
    fn free(&self, freed: Freed) {
        self.table.release_after_grace(freed.dentry);
        self.dput(freed.parent);
    }
}

impl<L: Layout> Scheme for RcuPerBucket<L> {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let bucket = self.bucket(wanted.hash);
        self.table.get_rcu(
            &wanted,
            &self.renames,
            &bucket.lru,
            || bucket.lock.lock(),
            |dentry| self.dput(dentry),
        )
    }

    fn dget(&self, dentry: Dentry) {
        self.table.get(dentry);
    }

    fn dput(&self, dentry: Dentry) {
        let mut at = dentry;
        while !self.table.put_unless_last(at) {
            let hash = self.table.hash(at);
            let bucket = self.bucket(hash);
            let held = bucket.lock.lock();
            if self.table.hash(at) != hash {
                continue; // renamed before the lock was there
            }
            if !self.table.put(at) {
                return;
            }
            if self.table.is_hashed(at) {
                self.table.lru_add(&bucket.lru, at);
                return;
            }
            // No other thread finds an entry without name and references: the locks may be swapped.
            drop(held);
            let held = self.dcache_lock.lock();
            let freed = self.table.kill(at);
            drop(held);
            self.table.release_after_grace(freed.dentry);
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
        let _d_rehash = self.bucket(wanted.hash).lock.lock();
        self.table.rehash(dentry);
        Some(dentry)
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        let _held = self.dcache_lock.lock();
        self.table.add_alias(dentry, inode);
    }

    fn delete(&self, dentry: Dentry) {
        let _held = self.dcache_lock.lock();
        let _bucket = self.bucket(self.table.hash(dentry)).lock.lock();
        self.table.delete_or_unhash(dentry);
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        let wanted = Wanted::new(new_parent, name);
        let held = self.dcache_lock.lock();
        let buckets = self.lock_two(self.table.hash(dentry), wanted.hash);
        if let Some(target) = self.table.find(&wanted).filter(|target| self.table.count(*target) == 0) {
            self.table.lru_remove(&self.bucket(wanted.hash).lru, target);
        }
        let moved = sequence::change(&self.renames, || self.table.move_to(dentry, &wanted));
        drop((buckets, held));
        self.dput(moved.old_parent);
        moved.freed.into_iter().for_each(|freed| self.free(freed));
    }

    fn prune(&self, wanted: usize) -> usize {
        let mut pruned = 0;
        // Two rounds: the first may meet only second chances.
        for _ in 0..2 * self.buckets.len() {
            while pruned < wanted {
                let at = self.hand.load(Relaxed) % self.buckets.len();
                let Some(freed) = self.prune_one(&self.buckets[at]) else { break };
                self.free(freed);
                pruned += 1;
                self.hand.fetch_add(1, Relaxed);
            }
            if pruned == wanted {
                break;
            }
            self.hand.fetch_add(1, Relaxed);
        }
        pruned
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let mut pruned = 0;
        loop {
            let freed = self.free_unused_below(parent);
            if freed.is_empty() {
                return pruned;
            }
            pruned += freed.len();
            freed.into_iter().for_each(|freed| self.free(freed));
        }
    }

    fn aliases(&self, inode: Inode) -> Vec<Dentry> {
        let _held = self.dcache_lock.lock();
        let get = |dentry: &Dentry| {
            let bucket = self.bucket(self.table.hash(*dentry));
            let _held = bucket.lock.lock();
            let named = self.table.is_hashed(*dentry);
            if named {
                self.table.lru_remove(&bucket.lru, *dentry);
                self.table.get(*dentry);
            }
            named
        };
        self.table.aliases_of(inode).filter(get).collect()
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.table.inode(dentry)
    }

    fn usage(&self) -> Usage {
        self.table.usage(self.buckets.iter().map(|bucket| bucket.lru.len()).sum())
    }
}
