//! Scheme 10: fastwalk with a lazy LRU, from the authors' TODO ("add lazy_lru to fastwalk").
//!
//! As scheme 4, but a lookup leaves an unused entry on the LRU list. The lock is held anyway: this
//! saves the list's cache lines, not an acquisition. Pruning takes the used entries that it meets
//! off the list.

use std::sync::Arc;

use dentree_lockmeter::{Class, SpinLock};

use super::entry::{Dentry, Layout};
use super::listed::{Listed, listed_in};
use super::table::{Table, Wanted};
use super::{Config, Path, Walked};

/// See the module.
#[derive(Debug)]
pub struct FastWalkLazy<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
}

impl<L: Layout> FastWalkLazy<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self { table: Table::new(config), dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()) }
    }
}

impl<L: Layout> Listed for FastWalkLazy<L> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _held = self.dcache_lock.lock();
        self.table.find_and_get(&wanted)
    }

    fn walk(&self, path: Path<'_>) -> Walked {
        let _held = self.dcache_lock.lock();
        let walked = self.table.walk(path);
        self.table.get(walked.dentry);
        self.table.set_referenced(walked.dentry);
        walked
    }

    /// No grace period: every reader holds the lock.
    fn release(&self, dentry: Dentry) {
        self.table.release(dentry);
    }
}
