//! Scheme 3: the global lock replaced by a big-reader lock.
//!
//! A look-up only reads: it finds the entry and counts a reference atomically, and leaves the LRU list alone (lazy). All
//! else writes. `dput` cannot drop the last reference and take the lock in one step, so, as the study says, it always
//! takes it to write: that is what made the scheme slow.

use std::sync::Arc;

use dentree_lockmeter::{BigReaderLock, Class};

use super::entry::{Dentry, Layout};
use super::lists::Freed;
use super::table::{Table, Wanted};
use super::{Config, Inode, Scheme, Usage, make_room};

/// See the module.
#[derive(Debug)]
pub struct BigReader<L> {
    table: Arc<Table<L>>,
    brlock_dcache: BigReaderLock<()>,
}

impl<L: Layout> BigReader<L> {
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            brlock_dcache: BigReaderLock::new(Class::named("BRLOCK_DCACHE"), ()),
        }
    }

    /// The entry is in no list: nobody can reach it.
    fn free(&self, freed: Freed) {
        self.table.release(freed.dentry);
        self.dput(freed.parent);
    }
}

impl<L: Layout> Scheme for BigReader<L> {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _held = self.brlock_dcache.read();
        let dentry = self.table.find(&wanted)?;
        // Writers are out, so the entry stays; the count may leave zero here, next to other readers.
        self.table.get(dentry);
        self.table.set_referenced(dentry);
        Some(dentry)
    }

    fn dget(&self, dentry: Dentry) {
        self.table.get(dentry);
    }

    fn dput(&self, dentry: Dentry) {
        let mut at = dentry;
        loop {
            let held = self.brlock_dcache.write();
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
            let _d_alloc = self.brlock_dcache.write();
            self.table.add_child(dentry);
        }
        if let Some(inode) = inode {
            self.instantiate(dentry, inode);
        }
        let _d_rehash = self.brlock_dcache.write();
        self.table.rehash(dentry);
        Some(dentry)
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        let _held = self.brlock_dcache.write();
        self.table.add_alias(dentry, inode);
    }

    fn delete(&self, dentry: Dentry) {
        let _held = self.brlock_dcache.write();
        self.table.delete_or_unhash(dentry);
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        let held = self.brlock_dcache.write();
        let moved = self.table.move_to(dentry, &Wanted::new(new_parent, name));
        drop(held);
        self.dput(moved.old_parent);
        moved.freed.into_iter().for_each(|freed| self.free(freed));
    }

    fn prune(&self, wanted: usize) -> usize {
        for pruned in 0..wanted {
            let held = self.brlock_dcache.write();
            let Some(freed) = self.table.prune_one() else { return pruned };
            drop(held);
            self.free(freed);
        }
        wanted
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let mut pruned = 0;
        loop {
            let held = self.brlock_dcache.write();
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
        let _held = self.brlock_dcache.write();
        self.table.get_aliases(inode)
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.table.inode(dentry)
    }

    fn usage(&self) -> Usage {
        self.table.usage(self.table.lru.len())
    }
}
