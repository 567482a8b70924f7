//! Changes: of the model tree first, then of the cache, as its user has to.
//!
//! A change of a name holds the name's lock, and the directory's shared. A directory gets and loses
//! names with the structure locked. A change is reported through the entry that a walk from the
//! root leads to. If that is detached meanwhile by another thread's invalidation, it is reported
//! again, before the window closes.

use crate::client::Client;
use crate::truth::{Dir, Node, Slot, name};
use crate::world::Inode;
use dentree_dcache::DentryRef;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, RwLockReadGuard};

/// A locked name to be changed.
struct Place<'w, 'd, H: Inode> {
    entry: DentryRef<'w, H>,
    dir: &'d Arc<Dir>,
    number: usize,
    structure: Structure,
    _changing: MutexGuard<'d, ()>,
    _removed: RwLockReadGuard<'d, bool>,
}

impl<H: Inode> Place<'_, '_, H> {
    fn slot(&self) -> &Slot {
        &self.dir.slots[self.number]
    }

    fn node(&self) -> Option<Node> {
        self.slot().value.now()
    }
}

/// Whether this thread holds the structure exclusively.
#[derive(Clone, Copy, PartialEq)]
enum Structure {
    Alone,
    Shared,
}

impl<'w, H: Inode> Client<'w, H> {
    pub fn change(&mut self) {
        let (dir, number) = (self.a_dir(), self.a_name());
        match (dir.slots[number].value.now(), self.random(8)) {
            (_, 0) => self.permit(&dir),
            (None, 1 | 2) => self.change_structure(|client| client.make_dir(&dir, number)),
            (Some(Node::Dir(_)), 1..=3) => self.change_structure(|client| client.remove_dir(&dir, number)),
            (Some(Node::Dir(_)), _) => {
                self.change_structure(|client| client.rename(&dir, number, Structure::Alone));
            }
            (Some(Node::Leaf(_)), 1 | 2) => drop(self.rename(&dir, number, Structure::Shared)),
            _ => drop(self.change_leaf(&dir, number)),
        }
    }

    fn change_structure(&self, change: impl FnOnce(&Self) -> Option<()>) {
        let _structure = self.world.structure.write();
        change(self);
    }

    /// The entry that a walk from the root leads to; the path does not change meanwhile.
    fn entry(&self, dir: &Arc<Dir>) -> Option<DentryRef<'w, H>> {
        let (mut way, mut at) = (Vec::new(), dir.clone());
        while !at.is_root() {
            let parent = at.parent.now().upgrade()?;
            way.push((parent.clone(), at.name_in(&parent)?));
            at = parent;
        }
        let mut entry = self.world.cache.root();
        for (parent, number) in way.into_iter().rev() {
            entry = self.look_up(&entry, &parent, number, true)?;
        }
        (entry.handle().ino() == dir.ino && entry.is_reachable()).then_some(entry)
    }

    fn entry_in(&self, dir: &Arc<Dir>, structure: Structure) -> Option<DentryRef<'w, H>> {
        let _structure = (structure == Structure::Shared).then(|| self.world.structure.read());
        self.entry(dir)
    }

    /// Locks a name, unless another thread has it.
    fn place<'d>(&self, dir: &'d Arc<Dir>, number: usize, structure: Structure) -> Option<Place<'w, 'd, H>> {
        let removed = dir.removed.try_read().ok().filter(|removed| !**removed)?;
        let changing = dir.slots[number].changing.try_lock().ok()?;
        let entry = self.entry_in(dir, structure)?;
        Some(Place { entry, dir, number, structure, _changing: changing, _removed: removed })
    }

    /// Reports a change again if its entry was detached.
    fn make_sure(&self, place: &Place<'w, '_, H>) {
        self.make_sure_of(&place.entry, place.dir, place.structure, |entry| {
            self.world.cache.invalidate(entry, &name(place.number));
        });
    }

    fn make_sure_of(
        &self,
        entry: &DentryRef<'w, H>,
        dir: &Arc<Dir>,
        structure: Structure,
        tell: impl Fn(&DentryRef<'w, H>),
    ) {
        let mut told = entry.clone();
        while !told.is_reachable() && !self.world.done.load(Ordering::Relaxed) {
            if let Some(entry) = self.entry_in(dir, structure) {
                tell(&entry);
                told = entry;
            }
        }
    }

    /// Changes a name that is no directory's.
    fn change_leaf(&self, dir: &Arc<Dir>, number: usize) -> Option<()> {
        let place = self.place(dir, number, Structure::Shared)?;
        let old = place.node();
        if matches!(old, Some(Node::Dir(_))) {
            return None;
        }
        let is_gone = old.is_some() && self.one_in(2);
        let new = (!is_gone).then(|| self.a_leaf());
        // Rarely, so that other threads' lookups are in progress when the name changes.
        let victim = self
            .one_in(3)
            .then(|| self.look_up(&place.entry, dir, number, false))
            .flatten()
            .filter(|victim| old.as_ref().is_some_and(|old| old.ino() == victim.handle().ino()));
        let cache = &self.world.cache;
        match (self.random(10), victim) {
            (0..=2, _) => self.set(&place, new, "told by invalidate", |place| {
                cache.invalidate(&place.entry, &name(place.number));
            }),
            (3..=5, Some(victim)) if is_gone => self.set(&place, None, "told by delete", |place| {
                // A later fill gets the new result, so nothing is lost if it is detached then.
                match victim.is_reachable() {
                    true => cache.delete(&victim),
                    false => cache.unlink(&place.entry, &name(place.number)),
                }
            }),
            _ if is_gone => self.set(&place, None, "told by unlink", |place| {
                cache.unlink(&place.entry, &name(place.number));
            }),
            _ => self.create(&place, new?),
        }
        Some(())
    }

    /// A new file, or another name of an existing one.
    fn a_leaf(&self) -> Node {
        match self.a_dir().slots[self.a_name()].value.now() {
            Some(node @ Node::Leaf(_)) if self.one_in(4) => node,
            _ => self.world.new_leaf(self.one_in(4)),
        }
    }

    fn set(
        &self,
        place: &Place<'w, '_, H>,
        node: Option<Node>,
        what: &'static str,
        tell: impl FnOnce(&Place<'w, '_, H>),
    ) {
        self.world.change(what, |op| {
            self.world.set(&place.slot().value, node, op);
            self.dawdle();
            tell(place);
            self.make_sure(place);
        });
    }

    fn create(&self, place: &Place<'w, '_, H>, node: Node) {
        self.set(place, Some(node.clone()), "told by create", |place| {
            let child = self.world.child(&node);
            let made = self.world.cache.create(&place.entry, &name(place.number), child);
            assert_eq!(made.handle().ino(), node.ino());
        });
    }

    fn make_dir(&self, dir: &Arc<Dir>, number: usize) -> Option<()> {
        let place = self.place(dir, number, Structure::Alone)?;
        if place.node().is_some() {
            return None;
        }
        let made = self.world.new_dir(!self.one_in(8), dir);
        match self.random(6) {
            0 => self.set(&place, Some(Node::Dir(made)), "told by invalidate", |place| {
                self.world.cache.invalidate(&place.entry, &name(place.number));
            }),
            _ => self.create(&place, Node::Dir(made)),
        }
        Some(())
    }

    fn remove_dir(&self, dir: &Arc<Dir>, number: usize) -> Option<()> {
        let place = self.place(dir, number, Structure::Alone)?;
        let Some(Node::Dir(victim)) = place.node() else { return None };
        let mut removed = victim.removed.try_write().ok().filter(|_| victim.is_empty())?;
        let entry = self.look_up(&place.entry, dir, number, true)?;
        self.world.change("rmdir", |op| {
            self.world.remove_dir(&victim, op);
            self.world.set(&place.slot().value, None, op);
            *removed = true;
            self.dawdle();
            match self.random(3) {
                0 if entry.is_reachable() => self.world.cache.delete(&entry),
                1 => self.world.cache.invalidate(&place.entry, &name(number)),
                _ => self.world.cache.unlink(&place.entry, &name(number)),
            }
            self.make_sure(&place);
        });
        Some(())
    }

    /// Renames a name, or exchanges two.
    fn rename(&self, old_dir: &Arc<Dir>, old: usize, structure: Structure) -> Option<()> {
        let (new_dir, new) = (&if self.one_in(2) { self.a_dir() } else { old_dir.clone() }, self.a_name());
        if (old_dir.ino, old) == (new_dir.ino, new) {
            return None;
        }
        let from = self.place(old_dir, old, structure)?;
        let to = self.place(new_dir, new, structure)?;
        let (moved, other) = (from.node()?, to.node());
        let exchanges = other.is_some() && self.one_in(2);
        let dirs = [Some(&moved), other.as_ref()].map(|node| match node {
            Some(Node::Dir(dir)) => Some(dir),
            _ => None,
        });
        let is_circle = |dir: Option<&Arc<Dir>>, to: &Arc<Dir>| dir.is_some_and(|dir| dir.is_above(to));
        let is_structure = dirs.iter().any(Option::is_some);
        if is_structure && structure == Structure::Shared
            || is_circle(dirs[0], new_dir)
            || is_circle(dirs[1], old_dir)
            || moved.ino() == other.as_ref().map_or(0, Node::ino)
        {
            return None;
        }
        // A file system checks these, so the cache knows the moved entry while it is held.
        let known = [(&from, Some(&moved)), (&to, other.as_ref())].map(|(place, node)| {
            let found = self.look_up(&place.entry, place.dir, place.number, true);
            assert_eq!(found.as_ref().map(|found| found.handle().ino()), node.map(Node::ino));
            found.filter(|_| self.one_in(2))
        });
        let mut removed = None;
        if let (Some(replaced), false) = (dirs[1], exchanges) {
            removed =
                Some(replaced.removed.try_write().ok().filter(|_| replaced.is_empty() && dirs[0].is_some())?);
        } else if other.is_some() && !exchanges && dirs[0].is_some() {
            return None;
        }
        [&from, &to].into_iter().for_each(|place| place.slot().moving.store(true, Ordering::SeqCst));
        let whiteout = (!exchanges && self.one_in(4)).then(|| self.world.new_leaf(false));
        self.world.change(if exchanges { "exchange" } else { "rename" }, |op| {
            self.world.set(&to.slot().value, Some(moved.clone()), op);
            self.world.set(&from.slot().value, other.clone().filter(|_| exchanges).or(whiteout.clone()), op);
            for (dir, to) in dirs.iter().zip([new_dir, old_dir]).take(if exchanges { 2 } else { 1 }) {
                dir.iter().for_each(|dir| self.world.set(&dir.parent, Arc::downgrade(to), op));
            }
            if let (Some(removed), Some(replaced)) = (&mut removed, dirs[1]) {
                self.world.remove_dir(replaced, op);
                **removed = true;
            }
            self.dawdle();
            let (cache, old, new) = (&self.world.cache, &name(old), &name(new));
            match whiteout {
                _ if exchanges => cache.exchange(&from.entry, old, &to.entry, new),
                None => cache.rename(&from.entry, old, &to.entry, new),
                Some(node) => {
                    let left = self.world.child(&node);
                    let left = cache.rename_leaving(&from.entry, old, &to.entry, new, left);
                    assert_eq!(left.handle().ino(), node.ino());
                }
            }
            [&from, &to].into_iter().for_each(|place| self.make_sure(place));
        });
        [&from, &to].into_iter().for_each(|place| place.slot().moving.store(false, Ordering::SeqCst));
        drop(known);
        Some(())
    }

    /// Changes the search permission of a directory.
    fn permit(&self, dir: &Arc<Dir>) {
        let Ok(_closing) = dir.closing.try_lock() else { return };
        let Some(_removed) = dir.removed.try_read().ok().filter(|removed| !**removed) else { return };
        let Some(entry) = self.entry_in(dir, Structure::Shared) else { return };
        let (cache, search) = (&self.world.cache, !dir.search.now());
        if !search && !self.one_in(if dir.is_root() { 16 } else { 4 }) {
            return;
        }
        self.world.change("set_search", |op| {
            self.world.set(&dir.search, search, op);
            self.dawdle();
            cache.set_search(&entry, search);
            self.make_sure_of(&entry, dir, Structure::Shared, |entry| cache.set_search(entry, search));
        });
    }
}
