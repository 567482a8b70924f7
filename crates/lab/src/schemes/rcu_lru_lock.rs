//! Scheme 6: RCU look-up, and a lock for the LRU list alone (`dcache_rcu-lru_lock-2.4.16-02`).
//!
//! | field | guard |
//! |---|---|
//! | chains, keys, children, aliases | `dcache_lock` |
//! | the LRU list, a count's steps from and to zero, taking the name of an unused entry | `lru_lock`, inside `dcache_lock` |
//! | counts above zero | atomic |
//! | chains and keys as readers see them | grace periods; `renames` odd while a key changes (see scheme 5) |
//!
//! Pruning, `select_parent` and aliases need both. "The entire locking overhead got transferred to the LRU list lock": a look-up of
//! an unused entry takes `lru_lock` where scheme 5 takes `dcache_lock`, as often.

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
pub struct RcuLruLock<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
    lru_lock: SpinLock<()>,
    renames: AtomicU32,
}

impl<L: Layout> RcuLruLock<L> {
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()),
            lru_lock: SpinLock::new(Class::named("lru_lock"), ()),
            renames: AtomicU32::new(0),
        }
    }

    /// The entry is in no list: nobody can reach it, but readers may still stand on it.
    fn free(&self, freed: Freed) {
        self.table.release_after_grace(freed.dentry);
        self.dput(freed.parent);
    }
}

impl<L: Layout> Scheme for RcuLruLock<L> {
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
                let _held = self.lru_lock.lock();
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
            let lru = self.lru_lock.lock();
            if !self.table.put(at) {
                return;
            }
            if self.table.is_hashed(at) {
                self.table.lru_add(&self.table.lru, at);
                return;
            }
            // Without a name and a reference nobody finds it but this thread: the locks may be changed over.
            drop(lru);
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
        let lru = self.lru_lock.lock();
        sequence::start(&self.renames);
        let moved = self.table.move_to(dentry, &Wanted::new(new_parent, name));
        sequence::end(&self.renames);
        drop((lru, held));
        self.dput(moved.old_parent);
        moved.freed.into_iter().for_each(|freed| self.free(freed));
    }

    fn prune(&self, wanted: usize) -> usize {
        for pruned in 0..wanted {
            let held = self.dcache_lock.lock();
            let lru = self.lru_lock.lock();
            let Some(freed) = self.table.prune_one() else { return pruned };
            drop((lru, held));
            self.free(freed);
        }
        wanted
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let mut pruned = 0;
        loop {
            let held = self.dcache_lock.lock();
            let lru = self.lru_lock.lock();
            let found = self.table.select_unused_below(parent);
            drop((lru, held));
            let now = self.prune(found);
            pruned += now;
            if now == 0 {
                return pruned;
            }
        }
    }

    fn aliases(&self, inode: Inode) -> Vec<Dentry> {
        let _held = self.dcache_lock.lock();
        let _lru = self.lru_lock.lock();
        self.table.get_aliases(inode)
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.table.inode(dentry)
    }

    fn usage(&self) -> Usage {
        self.table.usage(self.table.lru.len())
    }
}
