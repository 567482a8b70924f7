//! Scheme 8: lazy LRU, `dcache_rcu`, the scheme that the authors chose.
//!
//! A lookup takes no lock but the `d_lock` of the entry found, and leaves the entry on the LRU
//! list. `prune_dcache`, `select_parent` and `dput`, which hold `dcache_lock` anyway, bring the
//! list up to date. In the study this removed 87% of the acquisitions.
//!
//! | field | guard |
//! |---|---|
//! | chains for writing, children, aliases, the LRU list | `dcache_lock` |
//! | a key, membership in a chain, a count's step from zero | `d_lock`, inside `dcache_lock` |
//! | a count's last step to zero | both |
//! | chains for readers | grace periods; an `UNLINKED` entry keeps its saved next |
//!
//! `d_lock` is a bit in the word of the count. Every lookup and `dget` sets `DCACHE_REFERENCED`,
//! which gives an entry a second chance.
//!
//! An [`Index`] leads from names to entries: the chains, or a crate's map in their place (see
//! `mapped`).
//!
//! Not in the study's text: a lookup that misses during a rename retries (`renames`, see scheme 5).
//! A hit needs no retry: it is compared under `d_lock`.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crossbeam_epoch as epoch;
use dentree_lockmeter::{BitGuard, BitLock, Class, SpinLock};

use super::entry::{COUNT_LOCK_BIT, Dentry, Layout};
use super::index::{Chains, Index};
use super::listed::{Listed, listed_in};
use super::lists::{Freed, Moved};
use super::table::{Table, Wanted};
use super::{Config, Inode, sequence};

/// See the module.
#[derive(Debug)]
pub struct LazyLru<L, I = Chains> {
    table: Arc<Table<L>>,
    index: I,
    dcache_lock: SpinLock<()>,
    d_lock: BitLock,
    renames: AtomicU32,
}

impl<L: Layout, I: Index> LazyLru<L, I> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            index: I::default(),
            dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()),
            d_lock: BitLock::new(Class::named("d_lock"), COUNT_LOCK_BIT),
            renames: AtomicU32::new(0),
        }
    }

    #[track_caller]
    fn d_lock(&self, dentry: Dentry) -> BitGuard<'_> {
        self.d_lock.lock(&self.table.layout.written(dentry).count)
    }

    /// Takes a reference if the entry is the wanted one.
    fn get_if(&self, dentry: Dentry, wanted: &Wanted<'_>) -> bool {
        if !self.table.matches(dentry, wanted) {
            return false; // `renames` reveals a concurrent rename to it
        }
        let _d_lock = self.d_lock(dentry);
        let same = self.table.is_hashed(dentry) && self.table.matches(dentry, wanted);
        if same {
            self.table.get(dentry);
            self.table.set_referenced(dentry);
        }
        same
    }

    /// Takes all entries in use off the LRU list, for [`LazyLruTimer`](super::LazyLruTimer).
    pub(super) fn tidy(&self) {
        let _held = self.dcache_lock.lock();
        let used: Vec<_> =
            self.table.lru_entries(&self.table.lru).filter(|dentry| self.table.count(*dentry) > 0).collect();
        used.into_iter().for_each(|dentry| self.table.lru_remove(&self.table.lru, dentry));
    }
}

impl<L: Layout, I: Index> Listed for LazyLru<L, I> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _rcu = epoch::pin();
        sequence::find(&self.renames, || {
            self.index.find(&self.table, &wanted, |dentry| self.get_if(dentry, &wanted))
        })
    }

    fn dget(&self, dentry: Dentry) {
        let _d_lock = self.d_lock(dentry);
        self.table.get(dentry);
        self.table.set_referenced(dentry);
    }

    fn dput(&self, dentry: Dentry) {
        let mut at = dentry;
        while !self.table.put_unless_last(at) {
            let held = self.dcache_lock.lock();
            let d_lock = self.d_lock(at);
            // Lookups do not take dcache_lock: only `d_lock` settles whether this is the last
            // reference.
            if !self.table.put(at) {
                return;
            }
            if self.table.is_hashed(at) {
                self.table.lru_add(&self.table.lru, at);
                return;
            }
            drop(d_lock);
            let freed = self.table.kill(at);
            drop(held);
            self.release(freed.dentry);
            at = freed.parent;
        }
    }

    fn rehash(&self, dentry: Dentry, wanted: &Wanted<'_>) {
        let _held = self.dcache_lock.lock();
        self.index.enter(&self.table, dentry, wanted);
    }

    fn delete(&self, dentry: Dentry) {
        let _held = self.dcache_lock.lock();
        let _d_lock = self.d_lock(dentry);
        if self.table.count(dentry) == 1 {
            self.table.remove_alias(dentry);
        } else {
            self.index.leave(&self.table, dentry);
        }
    }

    fn move_to(&self, dentry: Dentry, wanted: &Wanted<'_>) -> Moved {
        sequence::start(&self.renames);
        let mut freed = None;
        if let Some(target) =
            self.index.find(&self.table, wanted, |at| at != dentry && self.table.matches(at, wanted))
        {
            let d_lock = self.d_lock(target);
            self.index.leave(&self.table, target);
            let unused = self.table.count(target) == 0;
            drop(d_lock);
            freed = unused.then(|| self.table.kill(target));
        }
        let old_parent = self.table.parent(dentry);
        self.dget(wanted.parent);
        let d_lock = self.d_lock(dentry);
        self.index.leave(&self.table, dentry);
        self.table.remove_child(dentry);
        self.table.set_key(dentry, wanted);
        self.table.add_child(dentry);
        self.index.enter(&self.table, dentry, wanted);
        drop(d_lock);
        sequence::end(&self.renames);
        Moved { old_parent, freed }
    }

    /// The entry's `d_lock` excludes lookups that take a reference.
    fn prune_one(&self) -> Option<Freed> {
        let (dentry, d_lock) = self.table.take_oldest_unused(|dentry| self.d_lock(dentry))?;
        self.index.leave(&self.table, dentry);
        drop(d_lock);
        Some(self.table.kill(dentry))
    }

    fn select_unused_below(&self, parent: Dentry) -> usize {
        let mut found = 0;
        for dentry in self.table.below(parent) {
            self.table.lru_remove(&self.table.lru, dentry);
            let _d_lock = self.d_lock(dentry);
            if self.table.count(dentry) == 0 {
                self.table.take_referenced(dentry);
                self.table.lru_add_last(&self.table.lru, dentry);
                found += 1;
            }
        }
        found
    }

    fn get_aliases(&self, inode: Inode) -> Vec<Dentry> {
        let found: Vec<_> =
            self.table.aliases_of(inode).filter(|dentry| self.table.is_hashed(*dentry)).collect();
        found.iter().for_each(|dentry| self.dget(*dentry));
        found
    }
}
