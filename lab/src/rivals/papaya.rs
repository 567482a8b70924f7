//! papaya: a lock-free table of pointers to entries; its guard is entered once per path.

use super::key::{Key, KeyRef, descend};
use super::{Hasher, NameCache, hasher};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};

/// `papaya::HashMap<(parent, name), node>`.
#[derive(Debug)]
pub struct Papaya {
    pub(crate) map: papaya::HashMap<Key, NodeId, Hasher>,
}

impl Papaya {
    /// A map of all entries of a tree.
    pub fn build(tree: &Tree) -> Self {
        let map = papaya::HashMap::with_hasher(hasher());
        let guard = map.guard();
        for (node, parent, name) in tree.entries() {
            map.insert(Key::new(parent, name), node, &guard);
        }
        drop(guard);
        Self { map }
    }
}

impl NameCache for Papaya {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        let guard = self.map.guard();
        descend(path, |key| self.map.get(&key, &guard).copied())
    }

    fn rename(&self, rename: &Rename) {
        let map = self.map.pin();
        map.remove(&KeyRef { parent: rename.from_parent, name: rename.from_name() });
        map.insert(Key::new(rename.to_parent, rename.to_name()), rename.node);
    }
}
