//! Scheme 1: one lock for everything, as in the kernels that the study measured.
//!
//! `dcache_lock` guards all lists, and every count that leaves or reaches zero; other counts change without it
//! (`atomic_dec_and_lock`). A look-up takes it for the chain and the LRU list: 84% of all its acquisitions under dbench.

use std::sync::Arc;

use dentree_lockmeter::{Class, SpinLock};

use super::entry::{Dentry, Layout};
use super::lists::Freed;
use super::table::{Table, Wanted};
use super::{Config, Inode, Scheme, Usage, make_room};

/// See the module.
#[derive(Debug)]
pub struct Global<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
}

impl<L: Layout> Global<L> {
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        Self { table: Table::new(config), dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()) }
    }

    /// Without the lock, for who has to hold it longer: [`FastWalk`](super::FastWalk).
    pub(super) fn parts(&self) -> (&Table<L>, &SpinLock<()>) {
        (&self.table, &self.dcache_lock)
    }

    /// The entry is in no list: nobody can reach it.
    fn free(&self, freed: Freed) {
        self.table.release(freed.dentry);
        self.dput(freed.parent);
    }
}

impl<L: Layout> Scheme for Global<L> {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _held = self.dcache_lock.lock();
        let dentry = self.table.find(&wanted)?;
        self.table.get_from_lru(dentry);
        self.table.set_referenced(dentry);
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
        let _d_rehash = self.dcache_lock.lock();
        self.table.rehash(dentry);
        Some(dentry)
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        let _held = self.dcache_lock.lock();
        self.table.add_alias(dentry, inode);
    }

    fn delete(&self, dentry: Dentry) {
        let _held = self.dcache_lock.lock();
        self.table.delete_or_unhash(dentry);
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        let held = self.dcache_lock.lock();
        let moved = self.table.move_to(dentry, &Wanted::new(new_parent, name));
        drop(held);
        self.dput(moved.old_parent);
        moved.freed.into_iter().for_each(|freed| self.free(freed));
    }

    fn prune(&self, wanted: usize) -> usize {
        for pruned in 0..wanted {
            let held = self.dcache_lock.lock();
            let Some(freed) = self.table.prune_one() else { return pruned };
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
