//! Steps over several lists. The caller holds the one lock (or the two) that guards all of them and
//! every count that leaves zero.

use std::sync::atomic::AtomicU32;

use crossbeam_epoch as epoch;

use super::entry::{Dentry, Layout};
use super::table::{Lru, Table, Wanted};
use super::{Inode, Path, Walked, sequence};

/// What remains to be done after a rename, without the lock.
#[derive(Debug)]
pub(super) struct Moved {
    /// The parent before, which the entry no longer references.
    pub(super) old_parent: Dentry,
    /// An unused entry that had the new name: off all lists, to be released.
    pub(super) freed: Option<Freed>,
}

/// An entry that is on no list.
#[derive(Debug)]
pub(super) struct Freed {
    /// The entry, to be released.
    pub(super) dentry: Dentry,
    /// Its parent, which it no longer references.
    pub(super) parent: Dentry,
}

impl<L: Layout> Table<L> {
    /// Takes an unreferenced entry off all lists.
    pub(super) fn kill(&self, dentry: Dentry) -> Freed {
        self.lru_remove(&self.lru, dentry);
        self.unhash(dentry);
        self.remove_child(dentry);
        self.remove_alias(dentry);
        Freed { dentry, parent: self.parent(dentry) }
    }

    /// Drops a reference. If it was the last one of an entry without a name, frees the entry.
    pub(super) fn put_last(&self, dentry: Dentry) -> Option<Freed> {
        if !self.put(dentry) {
            return None;
        }
        if !self.is_hashed(dentry) {
            return Some(self.kill(dentry));
        }
        self.lru_add(&self.lru, dentry);
        None
    }

    /// Takes a reference to an entry that may be unused, and takes it off the LRU list.
    pub(super) fn get_from_lru(&self, dentry: Dentry) {
        self.lru_remove(&self.lru, dentry);
        self.get(dentry);
    }

    /// The lookup of schemes in which its caller's lock excludes frees and the LRU list is lazy.
    pub(super) fn find_and_get(&self, wanted: &Wanted<'_>) -> Option<Dentry> {
        let dentry = self.find(wanted)?;
        self.get(dentry);
        self.set_referenced(dentry);
        Some(dentry)
    }

    /// The lookup of schemes 5 to 7. The chain is walked under RCU; only a count that leaves zero
    /// needs the lock of the LRU list. `renames` is odd while a key changes; `dput` drops a
    /// reference.
    pub(super) fn get_rcu<G>(
        &self,
        wanted: &Wanted<'_>,
        renames: &AtomicU32,
        lru: &Lru,
        lock: impl Fn() -> G,
        dput: impl Fn(Dentry),
    ) -> Option<Dentry> {
        let _rcu = epoch::pin();
        loop {
            let since = sequence::begin(renames);
            let Some(dentry) = self.find(wanted) else {
                if sequence::changed(renames, since) {
                    continue;
                }
                return None;
            };
            if self.get_unless_zero(dentry) {
                // The reference excludes a free. Check that the entry was the wanted one when it
                // was found.
                if self.is_hashed(dentry) && !sequence::changed(renames, since) {
                    self.set_referenced(dentry);
                    return Some(dentry);
                }
                dput(dentry);
            } else {
                let _held = lock();
                if self.is_hashed(dentry) && self.matches(dentry, wanted) {
                    self.lru_remove(lru, dentry);
                    self.get(dentry);
                    self.set_referenced(dentry);
                    return Some(dentry);
                }
            }
        }
    }

    /// The whole walk without references: the lock protects the entries.
    pub(super) fn walk(&self, path: Path<'_>) -> Walked {
        let mut at = Walked { dentry: Dentry::ROOT, depth: 0 };
        for name in path.iter() {
            if self.inode(at.dentry).is_none() {
                break;
            }
            let Some(next) = self.find(&Wanted::new(at.dentry, name)) else { break };
            at = Walked { dentry: next, depth: at.depth + 1 };
        }
        at
    }

    /// `d_delete`.
    pub(super) fn delete_or_unhash(&self, dentry: Dentry) {
        if self.count(dentry) == 1 {
            self.remove_alias(dentry);
        } else {
            self.unhash(dentry);
        }
    }

    /// `d_move`.
    pub(super) fn move_to(&self, dentry: Dentry, wanted: &Wanted<'_>) -> Moved {
        let mut freed = None;
        if let Some(target) = self.find(wanted).filter(|target| *target != dentry) {
            self.unhash(target);
            if self.count(target) == 0 {
                freed = Some(self.kill(target));
            }
        }
        let old_parent = self.parent(dentry);
        self.unhash(dentry);
        self.remove_child(dentry);
        self.set_key(dentry, wanted);
        self.get(wanted.parent);
        self.add_child(dentry);
        self.rehash(dentry);
        Moved { old_parent, freed }
    }

    /// Frees the least recently used entry. Used entries that a lazy list still holds are taken off
    /// it; entries looked up since the last pruning get a second chance.
    pub(super) fn prune_one(&self) -> Option<Freed> {
        let (dentry, ()) = self.take_oldest_unused(|_| ())?;
        Some(self.kill(dentry))
    }

    /// Takes the entry that [`prune_one`](Self::prune_one) frees off the LRU list. `lock` excludes
    /// lookups of an entry; the one taken stays locked.
    pub(super) fn take_oldest_unused<G>(&self, lock: impl Fn(Dentry) -> G) -> Option<(Dentry, G)> {
        let mut chances = self.lru.len();
        while let Some(dentry) = self.lru.last() {
            self.lru_remove(&self.lru, dentry);
            let held = lock(dentry);
            if self.count(dentry) > 0 {
                continue;
            }
            if chances > 0 && self.take_referenced(dentry) {
                chances -= 1;
                self.lru_add(&self.lru, dentry);
                continue;
            }
            return Some((dentry, held));
        }
        None
    }

    /// Makes all unused entries below a directory the next to be pruned; returns their number.
    pub(super) fn select_unused_below(&self, parent: Dentry) -> usize {
        let mut found = 0;
        for dentry in self.below(parent) {
            self.lru_remove(&self.lru, dentry);
            // An unused entry without a name is about to be freed by another thread (scheme 6).
            if self.count(dentry) == 0 && self.is_hashed(dentry) {
                self.take_referenced(dentry);
                self.lru_add_last(&self.lru, dentry);
                found += 1;
            }
        }
        found
    }

    /// All entries of an inode that have a name, with references.
    pub(super) fn get_aliases(&self, inode: Inode) -> Vec<Dentry> {
        let found: Vec<_> = self.aliases_of(inode).filter(|dentry| self.is_hashed(*dentry)).collect();
        found.iter().for_each(|dentry| self.get_from_lru(*dentry));
        found
    }
}
