//! Scheme 10: fastwalk with a lazy LRU, which the authors had on their list ("add lazy_lru to fastwalk").
//!
//! As scheme 4, but a look-up leaves an unused entry on the LRU list: it holds the lock already, so what it saves is the list's
//! cache lines, not an acquisition. Pruning takes used entries off the list as it meets them.

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
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        Self { table: Table::new(config), dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()) }
    }
}

impl<L: Layout> Listed for FastWalkLazy<L> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _held = self.dcache_lock.lock();
        let dentry = self.table.find(&wanted)?;
        self.table.get(dentry);
        self.table.set_referenced(dentry);
        Some(dentry)
    }

    fn walk(&self, path: Path<'_>) -> Walked {
        let _held = self.dcache_lock.lock();
        let walked = self.table.walk(path);
        self.table.get(walked.dentry);
        self.table.set_referenced(walked.dentry);
        walked
    }

    /// Without a grace period: nobody reads without the lock.
    fn release(&self, dentry: Dentry) {
        self.table.release(dentry);
    }
}
