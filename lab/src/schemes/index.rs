//! How names lead to entries: the table's chains, or a map in their place.

use std::fmt::Debug;

use super::entry::{Dentry, Layout};
use super::table::{Table, Wanted};

/// Finds entries by name. Writers hold the scheme's lock. Readers need only an RCU read-side
/// critical section, and must verify the entry.
pub trait Index: Debug + Default + Send + Sync + 'static {
    /// An entry of this name for which `is` holds.
    fn find<L: Layout>(
        &self,
        table: &Table<L>,
        wanted: &Wanted<'_>,
        is: impl Fn(Dentry) -> bool,
    ) -> Option<Dentry>;

    /// Adds the entry under its name, which is `wanted`.
    fn enter<L: Layout>(&self, table: &Table<L>, dentry: Dentry, wanted: &Wanted<'_>);

    /// Removes the entry, if it is in the index.
    fn leave<L: Layout>(&self, table: &Table<L>, dentry: Dentry);
}

/// The hash chains: see [`Table`].
#[derive(Debug, Default)]
pub struct Chains;

impl Index for Chains {
    #[inline]
    fn find<L: Layout>(
        &self,
        table: &Table<L>,
        wanted: &Wanted<'_>,
        is: impl Fn(Dentry) -> bool,
    ) -> Option<Dentry> {
        table.find_by(wanted, |dentry| table.next_or_saved(dentry), is)
    }

    fn enter<L: Layout>(&self, table: &Table<L>, dentry: Dentry, _wanted: &Wanted<'_>) {
        table.rehash(dentry);
    }

    fn leave<L: Layout>(&self, table: &Table<L>, dentry: Dentry) {
        table.unhash_saving_next(dentry);
    }
}
