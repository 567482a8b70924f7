//! Scheme 1: one lock for everything, as in the kernels that the study measured.
//!
//! `dcache_lock` guards all lists and every count that leaves or reaches zero; other counts change
//! without it (`atomic_dec_and_lock`). A lookup takes it for the chain and the LRU list: 84% of all
//! acquisitions under dbench.

use std::sync::Arc;

use dentree_lockmeter::{Class, SpinLock};

use super::Config;
use super::entry::{Dentry, Layout};
use super::listed::{Listed, listed_in};
use super::table::{Table, Wanted};

/// See the module.
#[derive(Debug)]
pub struct Global<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
}

impl<L: Layout> Global<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self { table: Table::new(config), dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()) }
    }
}

impl<L: Layout> Listed for Global<L> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _held = self.dcache_lock.lock();
        let dentry = self.table.find(&wanted)?;
        self.table.get_from_lru(dentry);
        self.table.set_referenced(dentry);
        Some(dentry)
    }

    /// No grace period: every reader holds the lock.
    fn release(&self, dentry: Dentry) {
        self.table.release(dentry);
    }
}
