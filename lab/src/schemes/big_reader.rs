//! Scheme 3: the global lock replaced by a big-reader lock.
//!
//! A lookup only reads: it finds the entry, counts a reference atomically and leaves the LRU list
//! alone (lazy). Everything else writes. `dput` cannot drop the last reference and take the lock in
//! one step, so it always takes the lock for writing: as the study says, that made the scheme slow.

use std::sync::Arc;

use dentree_lockmeter::{BigReaderLock, Class};

use super::Config;
use super::entry::{Dentry, Layout};
use super::listed::{Listed, listed_in};
use super::table::{Table, Wanted};

/// See the module.
#[derive(Debug)]
pub struct BigReader<L> {
    table: Arc<Table<L>>,
    brlock_dcache: BigReaderLock<()>,
}

impl<L: Layout> BigReader<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            brlock_dcache: BigReaderLock::new(Class::named("BRLOCK_DCACHE"), ()),
        }
    }
}

impl<L: Layout> Listed for BigReader<L> {
    listed_in!(self => self.table, under self.brlock_dcache.write());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _held = self.brlock_dcache.read();
        // The read lock excludes frees. Concurrent readers may raise the count from zero.
        self.table.find_and_get(&wanted)
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

    /// No grace period: every reader holds the lock.
    fn release(&self, dentry: Dentry) {
        self.table.release(dentry);
    }
}
