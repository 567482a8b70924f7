//! How names lead to entries: the table's chains, or a map in their place.

use std::fmt::Debug;

use super::entry::{Dentry, Layout};
use super::table::{Table, Wanted};

/// Finds entries by name. Who changes it holds the scheme's lock; who reads it may hold nothing but a read side of RCU, and
/// must look at the entry again before believing it.
pub trait Index: Debug + Default + Send + Sync + 'static {
    /// An entry of this name that `is` the wanted one.
    fn find<L: Layout>(
        &self,
        table: &Table<L>,
        wanted: &Wanted<'_>,
        is: impl Fn(Dentry) -> bool,
    ) -> Option<Dentry>;

    /// Makes the entry's name, which is `wanted`, lead to it.
    fn enter<L: Layout>(&self, table: &Table<L>, dentry: Dentry, wanted: &Wanted<'_>);

    /// Ends that, if it was so.
    fn leave<L: Layout>(&self, table: &Table<L>, dentry: Dentry);
}

/// The hash chains of the text: see [`Table`].
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
