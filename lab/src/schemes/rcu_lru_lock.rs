//! Scheme 6: RCU lookup, and a lock for the LRU list alone (`dcache_rcu-lru_lock-2.4.16-02`).
//!
//! | field | guard |
//! |---|---|
//! | chains, keys, children, aliases | `dcache_lock` |
//! | LRU list, count from and to zero, unhashing of an unused entry | `lru_lock`, inside it |
//! | counts above zero | atomic |
//! | chains and keys for readers | grace periods; `renames` odd while a key changes (scheme 5) |
//!
//! Pruning, `select_parent` and aliases need both. "The entire locking overhead got transferred to
//! the LRU list lock": a lookup of an unused entry takes `lru_lock` where scheme 5 takes
//! `dcache_lock`, as often.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use dentree_lockmeter::{Class, SpinLock};

use super::entry::{Dentry, Layout};
use super::listed::{Listed, listed_in};
use super::lists::Moved;
use super::table::{Table, Wanted};
use super::{Config, sequence};

/// See the module.
#[derive(Debug)]
pub struct RcuLruLock<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
    lru_lock: SpinLock<()>,
    renames: AtomicU32,
}

impl<L: Layout> RcuLruLock<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()),
            lru_lock: SpinLock::new(Class::named("lru_lock"), ()),
            renames: AtomicU32::new(0),
        }
    }
}

impl<L: Layout> Listed for RcuLruLock<L> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    #[track_caller]
    fn lock_all(&self) -> impl Sized {
        let names = self.dcache_lock.lock();
        (self.lru_lock.lock(), names)
    }

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        self.table.get_rcu(
            &wanted,
            &self.renames,
            &self.table.lru,
            || self.lru_lock.lock(),
            |dentry| self.dput(dentry),
        )
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
            // No other thread finds an entry without name and references: the locks may be swapped.
            drop(lru);
            let held = self.dcache_lock.lock();
            let freed = self.table.kill(at);
            drop(held);
            self.release(freed.dentry);
            at = freed.parent;
        }
    }

    fn move_to(&self, dentry: Dentry, wanted: &Wanted<'_>) -> Moved {
        sequence::change(&self.renames, || self.table.move_to(dentry, wanted))
    }
}
