//! Scheme 5: RCU look-up, the LRU list under the global lock (`dcache_rcu-2.4.10-01`).
//!
//! The chain is walked without a lock. A reference is taken without one only where there is one already: where the
//! count was zero the entry is on the LRU list and has to come off it, under `dcache_lock`. Under dbench that is the
//! rule, which is why this patch helped little.
//!
//! | field | guard |
//! |---|---|
//! | lists, keys, a count's steps from and to zero | `dcache_lock` |
//! | counts above zero | atomic |
//! | chains and keys as readers see them | grace periods; `renames` odd while a key changes |
//!
//! What the text does not say: a reader that stands on an entry that is being renamed goes on in another chain and may miss
//! what it looks for. Such a miss, and a hit on a key half changed, show by `renames` (the kernel's `rename_lock`, 2.6).

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crossbeam_epoch as epoch;
use dentree_lockmeter::{Class, SpinLock};

use super::entry::{Dentry, Layout};
use super::lists::Freed;
use super::table::{Table, Wanted};
use super::{Config, Inode, Scheme, Usage, make_room, sequence};

/// See the module.
#[derive(Debug)]
pub struct RcuGlobalLru<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
    renames: AtomicU32,
}

impl<L: Layout> RcuGlobalLru<L> {
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()),
            renames: AtomicU32::new(0),
        }
    }

    /// The entry is in no list: nobody can reach it, but readers may still stand on it.
    fn free(&self, freed: Freed) {
        self.table.release_after_grace(freed.dentry);
        self.dput(freed.parent);
    }
}

impl<L: Layout> Scheme for RcuGlobalLru<L> {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _rcu = epoch::pin();
        loop {
            let since = sequence::begin(&self.renames);
            let Some(dentry) = self.table.find(&wanted) else {
                if sequence::changed(&self.renames, since) {
                    continue;
                }
                return None;
            };
            if self.table.get_unless_zero(dentry) {
                // With a reference it cannot be freed any more; was it what it seemed to be, when it was found?
                if self.table.is_hashed(dentry) && !sequence::changed(&self.renames, since) {
                    self.table.set_referenced(dentry);
                    return Some(dentry);
                }
                self.dput(dentry);
            } else {
                let _held = self.dcache_lock.lock();
                if self.table.is_hashed(dentry) && self.table.matches(dentry, &wanted) {
                    self.table.get_from_lru(dentry);
                    self.table.set_referenced(dentry);
                    return Some(dentry);
                }
            }
        }
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
        sequence::start(&self.renames);
        let moved = self.table.move_to(dentry, &Wanted::new(new_parent, name));
        sequence::end(&self.renames);
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
