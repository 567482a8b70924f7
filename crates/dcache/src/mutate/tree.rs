//! Link, unlink and rename, under the locks of the directories.
//!
//! Each mutation follows one of the file system. Allocating a slot and retiring an entry may evict,
//! and so lock other directories: they come before and after the directory locks.

use crate::core::Core;
use crate::hash::name::Name;
use crate::lookup::validity::Revocations;
use crate::table::dentry::LongName;
use crate::table::id::Id;
use crate::table::index::MOVES;
use crate::table::record::Flags;
use crate::{Child, Handle, Kind};
use dentree_sync::Backoff;

/// Negative entries that are evicted with their directory; the clock evicts the rest.
const AT_ONCE: usize = 1024;

pub(crate) struct Entry<H> {
    /// `None` for a negative entry.
    pub(crate) child: Option<Child<H>>,
    /// Taken before the file system was called.
    pub(crate) revocations: Revocations,
    /// A scan inserts it, not a lookup.
    pub(crate) cold: bool,
    /// The caller gets a reference.
    pub(crate) held: bool,
}

impl<H> Entry<H> {
    pub(crate) fn positive(child: Child<H>, revocations: Revocations) -> Self {
        Entry { child: Some(child), revocations, cold: false, held: true }
    }

    pub(crate) fn negative(revocations: Revocations) -> Self {
        Entry { child: None, revocations, cold: false, held: false }
    }
}

/// Work for after the directory locks are released.
#[derive(Default)]
#[must_use]
pub(crate) struct Cleanup {
    dead: Vec<Id>,
    childless: Vec<Id>,
    evict: Option<Id>,
}

impl Cleanup {
    pub(crate) fn evicting(evict: Option<Id>) -> Self {
        Cleanup { evict, ..Cleanup::default() }
    }
}

impl<H: Handle> Core<H> {
    /// Retires and evicts what a mutation left. No lock may be held.
    pub(crate) fn clean_up(&self, cleanup: Cleanup) {
        cleanup.dead.into_iter().for_each(|id| self.retire_entry(id));
        if let Some(id) = cleanup.evict {
            self.evict(id);
        }
        cleanup.childless.into_iter().for_each(|dir| self.evict_children(dir));
    }

    /// Evicts the negative entries of a removed directory, which would keep it. Harmless if the
    /// slot was reused.
    fn evict_children(&self, dir: Id) {
        let children: Vec<Id> = {
            let _dir = self.lock_dir(dir);
            self.children(dir).take(AT_ONCE).collect()
        };
        for id in children {
            self.evict(id);
        }
    }

    /// Includes negative entries. [dir lock]
    pub(crate) fn children(&self, dir: Id) -> impl Iterator<Item = Id> {
        let some = |id: Id| (id != Id::NONE).then_some(id);
        std::iter::successors(some(self.dentry(dir).first_child.get()), move |&id| {
            some(self.dentry(id).next.get())
        })
    }

    pub(crate) fn name_in<'n>(&self, dir: Id, bytes: &'n [u8]) -> Option<Name<'n>> {
        self.hasher.name(dir, bytes)
    }

    /// [dir lock]
    pub(crate) fn find_locked(&self, dir: Id, name: &Name<'_>) -> Option<Id> {
        let mut backoff = Backoff::default();
        loop {
            let found = self.index.search(self.index.extent(), name.hash(), |id| {
                // A record below this directory cannot change now; others are not below it.
                (self.record(id).flags_if_named(dir, name).is_some() && self.is_long_name(id, name))
                    .then_some(id)
            });
            match found {
                Ok(id) => return Some(id),
                Err(miss) if self.index.still_misses(miss) => return None,
                // Another directory's change holds the bucket and may have been preempted.
                Err(_) => backoff.wait(),
            }
        }
    }

    /// Whether long names are equal; short ones were compared already.
    #[inline(always)]
    pub(crate) fn is_long_name(&self, id: Id, name: &Name<'_>) -> bool {
        // SAFETY: walks are inside the epoch; mutations have the parent locked.
        !name.is_long() || unsafe { self.dentry(id).long_name() } == Some(name.bytes)
    }

    /// Links a new slot in place of `old`, which has the name, in one step for walks. Returns the
    /// negative entry to evict for it. [dir lock]
    #[must_use]
    fn link(&self, dir: Id, name: &Name<'_>, old: Option<Id>, id: Id, entry: Entry<H>) -> Option<Id> {
        let (search, dentry) = (self.may_search_all(&entry), self.dentry(id));
        let Entry { child, cold, held, .. } = entry;
        let kind = child.as_ref().map(|child| child.kind);
        let word = child.as_ref().and_then(|child| child.handle.to_word());
        // SAFETY: the slot came from `allocate` and is not linked yet.
        unsafe { dentry.fill(child.map(|child| child.handle), boxed(name)) };
        let has_users = dentry.revive(held, false);
        self.marks.occupy(id, !cold);
        let flags = search | if word.is_some() { Flags::INLINE_HANDLE } else { 0 };
        let flags = Flags::linked(kind, flags, name.bytes.len());
        let (added, freed) = self.index.insert(name.hash(), id, old, || {
            if let Some(old) = old {
                self.unlink_record(old);
            }
            let rewrite = self.rewrite(id);
            rewrite.inline_handle(word.unwrap_or(0));
            rewrite.place(dir, name);
            rewrite.flags(flags);
        });
        self.settle_overflow(added);
        self.memory.give_back(freed);
        self.dentry(dir).pin();
        self.add_child(dir, id);
        if has_users {
            self.count_held(1);
        }
        if kind.is_none() {
            self.memory.negatives.add(1);
            return self.enlist_negative(id);
        }
        if cold {
            self.enlist_cold(id);
        }
        None
    }

    /// `SEARCH` if the hint says so and is up to date. [dir lock of its parent]
    pub(crate) fn may_search_all(&self, entry: &Entry<H>) -> u32 {
        let search = entry.child.as_ref().is_some_and(|child| child.search);
        if search && self.validity.may_grant_search(entry.revocations) { Flags::SEARCH } else { 0 }
    }

    /// Makes a held entry outside of the index: an overtaken result, or one that must not be
    /// cached.
    pub(crate) fn link_detached(&self, dir: Id, id: Id, child: Child<H>) {
        let Child { handle, kind, search } = child;
        if kind == Kind::Directory {
            self.validity.begin_detached();
        }
        // SAFETY: as in `link`.
        unsafe { self.dentry(id).fill(Some(handle), None) };
        let rewrite = self.rewrite(id);
        rewrite.place(dir, &Name::NONE);
        rewrite.flags(Flags::linked(Some(kind), if search { Flags::SEARCH } else { 0 }, 0));
        rewrite.unlink();
        drop(rewrite);
        self.settle_overflow(0);
        self.dentry(dir).pin();
        if self.dentry(id).revive(true, true) {
            self.count_held(1);
        }
    }

    /// Removes an entry from index and directory, without its reference count. [dir lock]
    pub(crate) fn unhash(&self, dir: Id, id: Id) {
        let record = self.record(id);
        let freed = self.index.remove(record.hash(), id, || self.unlink_record(id));
        self.memory.give_back(freed);
        self.remove_child(dir, id);
    }

    /// [bucket seq]
    fn unlink_record(&self, id: Id) {
        if self.record(id).flags().is_directory() {
            self.validity.begin_detached();
        }
        self.rewrite(id).unlink();
    }

    /// Removes an entry from the tree; if held it is detached. [dir lock]
    pub(crate) fn detach(&self, dir: Id, id: Id, cleanup: &mut Cleanup) {
        self.unhash(dir, id);
        self.finish_detach(id, cleanup);
    }

    /// The same after another entry has taken its place in the index. [dir lock]
    fn detach_replaced(&self, dir: Id, id: Id, cleanup: &mut Cleanup) {
        self.remove_child(dir, id);
        self.finish_detach(id, cleanup);
    }

    fn finish_detach(&self, id: Id, cleanup: &mut Cleanup) {
        if self.record(id).flags().is_directory() {
            cleanup.childless.push(id);
        }
        if self.dentry(id).detach() {
            cleanup.dead.push(id);
        }
    }

    /// [dir lock]
    fn add_child(&self, dir: Id, id: Id) {
        let first = self.dentry(dir).first_child.get();
        self.dentry(id).prev.set(Id::NONE);
        self.dentry(id).next.set(first);
        if first != Id::NONE {
            self.dentry(first).prev.set(id);
        }
        self.dentry(dir).first_child.set(id);
    }

    /// [dir lock]
    fn remove_child(&self, dir: Id, id: Id) {
        let (prev, next) = (self.dentry(id).prev.get(), self.dentry(id).next.get());
        match prev {
            Id::NONE => self.dentry(dir).first_child.set(next),
            prev => self.dentry(prev).next.set(next),
        }
        if next != Id::NONE {
            self.dentry(next).prev.set(prev);
        }
    }

    /// `name` now is `child`. Returns its entry, held.
    pub(crate) fn create(&self, dir: Id, bytes: &[u8], child: Child<H>) -> Id {
        self.count_change();
        let Some(name) = self.name_in(dir, bytes) else {
            return self.make_detached(dir, child);
        };
        let child = match self.create_in_place(dir, &name, child) {
            Ok(id) => return id,
            Err(child) => child,
        };
        let id = self.allocate(bytes.len());
        let cleanup = {
            let _dir = self.lock_dir(dir);
            self.in_lookups.overtake(dir, &name);
            let old = self.find_locked(dir, &name);
            let entry = Entry::positive(child, self.validity.revocations());
            self.link_instead(dir, &name, old, id, entry)
        };
        self.clean_up(cleanup);
        id
    }

    fn create_in_place(&self, dir: Id, name: &Name<'_>, child: Child<H>) -> Result<Id, Child<H>> {
        // Without the lock first, as most names that are created are not cached.
        let is_negative = |id: Id| self.record(id).flags().is_negative();
        let hint = {
            let _pin = self.epoch.enter();
            self.find(self.index.extent(), dir, name).is_ok_and(|found| is_negative(found.id))
        };
        if !hint {
            return Err(child);
        }
        let _dir = self.lock_dir(dir);
        let Some(id) = self.find_locked(dir, name).filter(|&id| is_negative(id)) else { return Err(child) };
        let entry = Entry::positive(child, self.validity.revocations());
        match self.become_positive(id, name, entry) {
            Ok(()) => {
                self.in_lookups.overtake(dir, name);
                Ok(id)
            }
            Err(entry) => Err(entry.child.expect("made of a child")),
        }
    }

    /// Links a new slot in place of `old`. [dir lock]
    pub(crate) fn link_instead(
        &self,
        dir: Id,
        name: &Name<'_>,
        old: Option<Id>,
        id: Id,
        entry: Entry<H>,
    ) -> Cleanup {
        let evict = self.link(dir, name, old, id, entry);
        let mut cleanup = Cleanup { evict, ..Cleanup::default() };
        if let Some(old) = old {
            self.detach_replaced(dir, old, &mut cleanup);
        }
        cleanup
    }

    /// `name` was removed: leaves a negative entry, except in a complete directory.
    pub(crate) fn unlink(&self, dir: Id, bytes: &[u8]) {
        self.count_change();
        let Some(name) = self.name_in(dir, bytes) else { return };
        let done = {
            let _dir = self.lock_dir(dir);
            self.find_locked(dir, &name).and_then(|id| self.unlink_in_place(dir, &name, id, 0))
        };
        match done {
            Some(evict) => self.clean_up(Cleanup::evicting(evict)),
            None => self.unlink_entry(dir, bytes, None),
        }
    }

    /// Removes the entry of a name, or only `this` if given.
    pub(crate) fn unlink_entry(&self, dir: Id, bytes: &[u8], this: Option<Id>) {
        let Some(name) = self.name_in(dir, bytes) else { return };
        let spare = self.allocate(bytes.len());
        let mut cleanup = Cleanup::default();
        {
            let _dir = self.lock_dir(dir);
            let old = self.find_locked(dir, &name);
            if this.is_some() && this != old {
                drop(_dir);
                return self.cancel(spare, bytes.len());
            }
            self.in_lookups.overtake(dir, &name);
            self.dentry(dir).note_change();
            if let Some(old) = old {
                self.detach(dir, old, &mut cleanup);
            }
            self.leave_negative(dir, &name, spare, &mut cleanup);
        }
        self.clean_up(cleanup);
    }

    /// Makes `spare` a negative entry. [dir lock]
    fn leave_negative(&self, dir: Id, name: &Name<'_>, spare: Id, cleanup: &mut Cleanup) {
        if self.record(dir).flags().has(Flags::COMPLETE) {
            self.cancel(spare, name.bytes.len());
        } else {
            let entry = Entry::negative(self.validity.revocations());
            cleanup.evict = self.link(dir, name, None, spare, entry);
        }
    }

    pub(crate) fn invalidate(&self, dir: Id, bytes: &[u8]) {
        let Some(name) = self.name_in(dir, bytes) else { return };
        let mut cleanup = Cleanup::default();
        {
            let _dir = self.lock_dir(dir);
            self.in_lookups.overtake(dir, &name);
            self.forget(dir, self.find_locked(dir, &name), &mut cleanup);
        }
        self.clean_up(cleanup);
    }

    /// Removes an entry whose name is unknown from now on. [dir lock]
    fn forget(&self, dir: Id, id: Option<Id>, cleanup: &mut Cleanup) {
        self.lose_completeness(dir);
        id.into_iter().for_each(|id| self.detach(dir, id, cleanup));
    }

    /// `old` in `old_dir` is now `new` in `new_dir`, replacing what was there: d_move.
    pub(crate) fn rename(&self, old_dir: Id, old: &[u8], new_dir: Id, new: &[u8]) {
        self.count_change();
        let (Some(from), Some(to)) = (self.name_in(old_dir, old), self.name_in(new_dir, new)) else { return };
        if (old_dir, old) == (new_dir, new) {
            return;
        }
        let spare = self.allocate(old.len());
        let reserved = self.allocate_names(&[new.len()]);
        self.rename_locked((old_dir, &from), (new_dir, &to), |moved, target, cleanup| {
            match self.movable(moved, old_dir, new_dir) {
                Some(id) => self.relink(reserved, &[(id, old_dir, new_dir, &to)], target, cleanup),
                None => {
                    self.settle_names(reserved, 0, []);
                    self.forget(new_dir, target, cleanup);
                    moved.into_iter().for_each(|stale| self.detach(old_dir, stale, cleanup));
                }
            }
            self.leave_negative(old_dir, &from, spare, cleanup);
        });
    }

    /// The same, and `old` is now `left`, in one step for walks. It is linked under the empty name
    /// first, which no walk looks up. Returns its entry, held.
    pub(crate) fn rename_leaving(
        &self,
        old_dir: Id,
        old: &[u8],
        new_dir: Id,
        new: &[u8],
        left: Child<H>,
    ) -> Id {
        self.count_change();
        let names = (self.name_in(old_dir, old), self.name_in(new_dir, new));
        let ((Some(from), Some(to)), false) = (names, (old_dir, old) == (new_dir, new)) else {
            return self.make_detached(old_dir, left);
        };
        let id = self.allocate(0);
        let reserved = self.allocate_names(&[old.len(), new.len()]);
        self.rename_locked((old_dir, &from), (new_dir, &to), |moved, target, cleanup| {
            let entry = Entry::positive(left, self.validity.revocations());
            cleanup.evict = self.link(old_dir, &Name::NONE, None, id, entry);
            let leave = (id, old_dir, old_dir, &from);
            match self.movable(moved, old_dir, new_dir) {
                Some(moved) => {
                    self.relink(reserved, &[leave, (moved, old_dir, new_dir, &to)], target, cleanup);
                }
                None => {
                    self.forget(new_dir, target, cleanup);
                    self.relink(reserved, &[leave], moved, cleanup);
                }
            }
        });
        id
    }

    pub(crate) fn exchange(&self, dir_a: Id, a: &[u8], dir_b: Id, b: &[u8]) {
        let (Some(name_a), Some(name_b)) = (self.name_in(dir_a, a), self.name_in(dir_b, b)) else { return };
        if (dir_a, a) == (dir_b, b) {
            return;
        }
        let reserved = self.allocate_names(&[a.len(), b.len()]);
        self.rename_locked((dir_a, &name_a), (dir_b, &name_b), |a, b, cleanup| {
            match (self.movable(a, dir_a, dir_b), self.movable(b, dir_b, dir_a)) {
                (Some(id_a), Some(id_b)) => {
                    let moves = [(id_a, dir_a, dir_b, &name_b), (id_b, dir_b, dir_a, &name_a)];
                    self.relink(reserved, &moves, None, cleanup);
                }
                // The other name is unknown from now on.
                (Some(id_a), None) => {
                    self.lose_completeness(dir_a);
                    self.relink(reserved, &[(id_a, dir_a, dir_b, &name_b)], b, cleanup);
                }
                (None, Some(id_b)) => {
                    self.lose_completeness(dir_b);
                    self.relink(reserved, &[(id_b, dir_b, dir_a, &name_a)], a, cleanup);
                }
                (None, None) => {
                    self.settle_names(reserved, 0, []);
                    self.forget(dir_a, a, cleanup);
                    self.forget(dir_b, b, cleanup);
                }
            }
        });
    }

    /// Calls `rename` under all locks with the entries of both names.
    fn rename_locked(
        &self,
        (old_dir, from): (Id, &Name<'_>),
        (new_dir, to): (Id, &Name<'_>),
        rename: impl FnOnce(Option<Id>, Option<Id>, &mut Cleanup),
    ) {
        let mut cleanup = Cleanup::default();
        let renaming = (old_dir != new_dir).then(|| self.renaming.lock());
        {
            let _dirs = self.lock_dirs(old_dir, new_dir);
            for (dir, name) in [(old_dir, from), (new_dir, to)] {
                self.in_lookups.overtake(dir, name);
                self.dentry(dir).note_change();
            }
            let (old, new) = (self.find_locked(old_dir, from), self.find_locked(new_dir, to));
            rename(old, new, &mut cleanup);
        }
        drop(renaming);
        self.clean_up(cleanup);
    }

    /// The entry, if it is positive, below a directory in the tree, and may move. [dir locks]
    fn movable(&self, id: Option<Id>, from: Id, to: Id) -> Option<Id> {
        id.filter(|&id| {
            let is_positive = !self.record(id).flags().is_negative();
            is_positive && self.is_in_tree(from) && (from == to || !self.is_above(id, to))
        })
    }

    /// Whether `id` is `dir` or above it. No file system moves it there, and the cache drops it
    /// instead of making a loop. Directories' parents do not change under [renaming].
    fn is_above(&self, id: Id, mut dir: Id) -> bool {
        while dir != id && dir != Id::ROOT {
            dir = self.record(dir).parent();
        }
        dir == id
    }

    /// Gives linked entries new places, `(entry, from, to, new name)`, and removes `replaced`,
    /// which the last one's place has, in one step for walks. `reserved` comes from
    /// `allocate_names`. [dir locks]
    fn relink(
        &self,
        reserved: usize,
        moves: &[(Id, Id, Id, &Name<'_>)],
        replaced: Option<Id>,
        cleanup: &mut Cleanup,
    ) {
        let hashes: [_; MOVES] = std::array::from_fn(|i| {
            let &(id, .., to) = moves.get(i)?;
            Some((id, self.record(id).hash(), to.hash()))
        });
        let elsewhere = || moves.iter().filter(|(_, from, to, _)| from != to);
        for &(id, from, to, _) in elsewhere() {
            self.dentry(to).pin();
            self.remove_child(from, id);
        }
        let mut old_names = [const { None }; MOVES];
        let replaced = replaced.map(|id| (id, self.record(id).hash()));
        let (added, freed) = self.index.relink(hashes, replaced, || {
            if let Some((id, _)) = replaced {
                self.unlink_record(id);
            }
            // All are odd before any is even again.
            let rewrites: [_; MOVES] = std::array::from_fn(|i| Some(self.rewrite(moves.get(i)?.0)));
            for ((rewrite, &(id, _, dir, name)), old) in
                rewrites.iter().flatten().zip(moves).zip(&mut old_names)
            {
                rewrite.place(dir, name);
                rewrite.flags(self.record(id).flags().renamed(name.bytes.len()));
                *old = self.dentry(id).swap_long(boxed(name));
            }
        });
        self.settle_names(reserved, added, moves.iter().map(|(.., name)| name.bytes.len()));
        self.memory.give_back(freed);
        old_names.into_iter().flatten().for_each(|name| self.retire_name(name));
        for &(id, from, to, _) in elsewhere() {
            self.add_child(to, id);
            // The caller holds both directories, so neither dies.
            self.dentry(from).unpin();
        }
        if let (Some((id, _)), Some(&(.., dir, _))) = (replaced, moves.last()) {
            self.detach_replaced(dir, id, cleanup);
        }
    }
}

fn boxed(name: &Name<'_>) -> Option<LongName> {
    name.is_long().then(|| Box::new(name.bytes.into()))
}
