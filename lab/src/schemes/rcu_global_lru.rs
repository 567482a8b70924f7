//! Scheme 5: RCU lookup, the LRU list under the global lock (`dcache_rcu-2.4.10-01`).
//!
//! The chain is walked without a lock. A reference is taken without one only if the count is not
//! zero; an unused entry has to leave the LRU list, under `dcache_lock`. Under dbench that is the
//! rule, which is why this patch helped little.
//!
//! | field | guard |
//! |---|---|
//! | lists, keys, a count's steps from and to zero | `dcache_lock` |
//! | counts above zero | atomic |
//! | chains and keys for readers | grace periods; `renames` odd while a key changes |
//!
//! Not in the study's text: a reader on an entry that is renamed continues in another chain and may
//! miss its name. `renames` (the kernel's `rename_lock`, 2.6) shows such a miss, and a hit on a key
//! half changed.

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
pub struct RcuGlobalLru<L> {
    table: Arc<Table<L>>,
    dcache_lock: SpinLock<()>,
    renames: AtomicU32,
}

impl<L: Layout> RcuGlobalLru<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config),
            dcache_lock: SpinLock::new(Class::named("dcache_lock"), ()),
            renames: AtomicU32::new(0),
        }
    }
}

impl<L: Layout> Listed for RcuGlobalLru<L> {
    listed_in!(self => self.table, under self.dcache_lock.lock());

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        self.table.get_rcu(
            &wanted,
            &self.renames,
            &self.table.lru,
            || self.dcache_lock.lock(),
            |dentry| self.dput(dentry),
        )
    }

    fn move_to(&self, dentry: Dentry, wanted: &Wanted<'_>) -> Moved {
        sequence::change(&self.renames, || self.table.move_to(dentry, wanted))
    }
}
