//! Steps over several lists, for schemes in which one lock (or two held together) guards all of them, and no count leaves
//! zero but under it. The caller holds it.

use std::sync::atomic::AtomicU32;

use crossbeam_epoch as epoch;

use super::entry::{Dentry, Layout};
use super::table::{Lru, Table, Wanted};
use super::{Inode, Path, Walked, sequence};

/// What a rename leaves to do when the lock has been given back.
#[derive(Debug)]
pub(super) struct Moved {
    /// The parent before, whose reference the entry does not need any more.
    pub(super) old_parent: Dentry,
    /// An unused entry that had the new name: in no list any more, to be released.
    pub(super) freed: Option<Freed>,
}

/// An entry that is in no list any more.
#[derive(Debug)]
pub(super) struct Freed {
    /// It, to be released.
    pub(super) dentry: Dentry,
    /// Its parent, whose reference it does not need any more.
    pub(super) parent: Dentry,
}

impl<L: Layout> Table<L> {
    /// Takes an entry that nobody refers to out of all lists.
    pub(super) fn kill(&self, dentry: Dentry) -> Freed {
        self.lru_remove(&self.lru, dentry);
        self.unhash(dentry);
        self.remove_child(dentry);
        self.remove_alias(dentry);
        Freed { dentry, parent: self.parent(dentry) }
    }

    /// Gives back what may be the last reference; what it freed, if it was and the entry has no name any more.
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

    /// The look-up of schemes 5 to 7: the chain is walked in a read side, and only a count that leaves zero needs the lock of the list
    /// that the entry then leaves. `renames` is odd while a key changes; `dput` gives a reference back.
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
                // With a reference it cannot be freed any more; was it what it seemed to be, when it was found?
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

    /// The whole walk, without references: the lock keeps what is found.
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

    /// Frees the unused entry that was looked up least recently. Entries in use that a lazy list still has are taken off it;
    /// entries looked up since the last time get a second chance.
    pub(super) fn prune_one(&self) -> Option<Freed> {
        let mut chances = self.lru.len();
        while let Some(dentry) = self.lru.last() {
            self.lru_remove(&self.lru, dentry);
            if self.count(dentry) > 0 {
                continue;
            }
            if chances > 0 && self.take_referenced(dentry) {
                chances -= 1;
                self.lru_add(&self.lru, dentry);
                continue;
            }
            return Some(self.kill(dentry));
        }
        None
    }

    /// Makes all unused entries below a directory the next to be pruned; how many there are.
    pub(super) fn select_unused_below(&self, parent: Dentry) -> usize {
        let mut found = 0;
        for dentry in self.below(parent) {
            self.lru_remove(&self.lru, dentry);
            // Unused and without a name: somebody is about to free it (scheme 6).
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
