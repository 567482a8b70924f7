//! Everything but the lookup, once for all schemes that keep the kernel's lists and say what they
//! lock for a change.

use std::sync::Arc;

use super::entry::{Dentry, Layout};
use super::lists::{Freed, Moved};
use super::table::{Table, Wanted};
use super::{Inode, Path, Scheme, Usage, Walked, make_room, walk_on};

/// A scheme over one [`Table`] with one LRU list. It implements the lookup, names its locks, and
/// overrides only the steps that need more than these locks.
pub(super) trait Listed: Send + Sync + Sized {
    type Layout: Layout;

    fn table(&self) -> &Arc<Table<Self::Layout>>;

    /// Locks children, aliases and chains.
    fn lock_names(&self) -> impl Sized;

    /// Locks these, the LRU list, and counts that leave or reach zero.
    #[track_caller]
    fn lock_all(&self) -> impl Sized {
        self.lock_names()
    }

    /// See [`Scheme::lookup`].
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry>;

    /// See [`Scheme::walk`].
    fn walk(&self, path: Path<'_>) -> Walked {
        self.dget(Dentry::ROOT);
        walk_on(self, path, Walked { dentry: Dentry::ROOT, depth: 0 })
    }

    /// See [`Scheme::dget`].
    fn dget(&self, dentry: Dentry) {
        self.table().get(dentry);
    }

    /// See [`Scheme::dput`].
    fn dput(&self, dentry: Dentry) {
        let mut at = dentry;
        while !self.table().put_unless_last(at) {
            let held = self.lock_all();
            let Some(freed) = self.table().put_last(at) else { return };
            drop(held);
            self.release(freed.dentry);
            at = freed.parent;
        }
    }

    /// Frees an entry that is in no list; readers without a lock may still use it.
    fn release(&self, dentry: Dentry) {
        self.table().release_after_grace(dentry);
    }

    /// [Releases](Self::release) an entry and its reference to its parent.
    fn free(&self, freed: Freed) {
        self.release(freed.dentry);
        self.dput(freed.parent);
    }

    /// `d_rehash`.
    fn rehash(&self, dentry: Dentry, _wanted: &Wanted<'_>) {
        let _held = self.lock_names();
        self.table().rehash(dentry);
    }

    /// See [`Scheme::delete`].
    fn delete(&self, dentry: Dentry) {
        let _held = self.lock_names();
        self.table().delete_or_unhash(dentry);
    }

    /// As [`Table::move_to`]; the caller holds [all locks](Self::lock_all).
    fn move_to(&self, dentry: Dentry, wanted: &Wanted<'_>) -> Moved {
        self.table().move_to(dentry, wanted)
    }

    /// As [`Table::prune_one`]; the caller holds [all locks](Self::lock_all).
    fn prune_one(&self) -> Option<Freed> {
        self.table().prune_one()
    }

    /// As [`Table::select_unused_below`]; the caller holds [all locks](Self::lock_all).
    fn select_unused_below(&self, parent: Dentry) -> usize {
        self.table().select_unused_below(parent)
    }

    /// As [`Table::get_aliases`]; the caller holds [all locks](Self::lock_all).
    fn get_aliases(&self, inode: Inode) -> Vec<Dentry> {
        self.table().get_aliases(inode)
    }
}

/// Implements the items that every [`Listed`] scheme has: its layout, its table and its lock for a
/// change of names.
macro_rules! listed_in {
    ($scheme:ident => $table:expr, under $lock:expr) => {
        type Layout = L;

        fn table(&$scheme) -> &Arc<Table<L>> {
            &$table
        }

        #[track_caller]
        fn lock_names(&$scheme) -> impl Sized {
            $lock
        }
    };
}
pub(super) use listed_in;

impl<S: Listed> Scheme for S {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        Listed::lookup(self, parent, name)
    }

    fn walk(&self, path: Path<'_>) -> Walked {
        Listed::walk(self, path)
    }

    fn dget(&self, dentry: Dentry) {
        Listed::dget(self, dentry);
    }

    fn dput(&self, dentry: Dentry) {
        Listed::dput(self, dentry);
    }

    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let dentry = make_room(self, || self.table().alloc(&wanted))?;
        Listed::dget(self, parent);
        {
            let _d_alloc = self.lock_names();
            self.table().add_child(dentry);
        }
        if let Some(inode) = inode {
            self.instantiate(dentry, inode);
        }
        self.rehash(dentry, &wanted);
        Some(dentry)
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        let _held = self.lock_names();
        self.table().add_alias(dentry, inode);
    }

    fn delete(&self, dentry: Dentry) {
        Listed::delete(self, dentry);
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        let wanted = Wanted::new(new_parent, name);
        let held = self.lock_all();
        let moved = self.move_to(dentry, &wanted);
        drop(held);
        Listed::dput(self, moved.old_parent);
        moved.freed.into_iter().for_each(|freed| self.free(freed));
    }

    fn prune(&self, wanted: usize) -> usize {
        for pruned in 0..wanted {
            let held = self.lock_all();
            let Some(freed) = self.prune_one() else { return pruned };
            drop(held);
            self.free(freed);
        }
        wanted
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let mut pruned = 0;
        loop {
            let held = self.lock_all();
            let found = self.select_unused_below(parent);
            drop(held);
            let now = self.prune(found);
            pruned += now;
            if now == 0 {
                return pruned;
            }
        }
    }

    fn aliases(&self, inode: Inode) -> Vec<Dentry> {
        let _held = self.lock_all();
        self.get_aliases(inode)
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.table().inode(dentry)
    }

    fn usage(&self) -> Usage {
        self.table().usage(self.table().lru.len())
    }
}
