use crate::{DirEntry, FileType, Ino, ReaddirStart};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// In order of creation: by a number that is not reused, the cookie.
pub(super) struct Directory {
    pub(super) parent: Ino,
    by_name: HashMap<Box<[u8]>, u64>,
    in_order: BTreeMap<u64, Named>,
    next: u64,
}

#[derive(Clone)]
pub(super) struct Named {
    pub(super) name: Box<[u8]>,
    pub(super) ino: Ino,
    pub(super) kind: FileType,
}

impl Directory {
    pub(super) fn new(parent: Ino) -> Self {
        Directory { parent, by_name: HashMap::new(), in_order: BTreeMap::new(), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<&Named> {
        self.in_order.get(self.by_name.get(name)?)
    }

    pub(super) fn insert(&mut self, name: &[u8], ino: Ino, kind: FileType) {
        self.by_name.insert(name.into(), self.next);
        self.in_order.insert(self.next, Named { name: name.into(), ino, kind });
        self.next += 1;
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(cookie) = self.by_name.remove(name) {
            self.in_order.remove(&cookie);
        }
    }

    pub(super) fn replace(&mut self, name: &[u8], ino: Ino, kind: FileType) {
        if let Some(named) = self.by_name.get(name).and_then(|cookie| self.in_order.get_mut(cookie)) {
            (named.ino, named.kind) = (ino, kind);
        }
    }

    /// Up to `max` entries after `start`.
    pub(super) fn list(&self, start: ReaddirStart, max: usize) -> Vec<(u64, Named)> {
        let from = match start {
            ReaddirStart::First => Bound::Unbounded,
            ReaddirStart::After(cookie) => Bound::Excluded(cookie),
        };
        let after = self.in_order.range((from, Bound::Unbounded));
        after.take(max).map(|(&cookie, named)| (cookie, named.clone())).collect()
    }
}

impl Named {
    pub(super) fn as_entry(&self, cookie: u64) -> DirEntry<'_> {
        DirEntry { name: &self.name, ino: self.ino, kind: Some(self.kind), cookie }
    }
}
