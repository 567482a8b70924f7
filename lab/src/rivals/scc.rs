//! scc: its `HashIndex`, the map that is optimised for reading and read without locks. The guard is
//! entered once per path.

use super::key::{Key, KeyRef, descend};
use super::{Hasher, NameCache, hasher};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};

/// `scc::HashIndex<(parent, name), node>`.
#[derive(Debug)]
pub struct SccIndex {
    pub(crate) map: scc::HashIndex<Key, NodeId, Hasher>,
}

impl SccIndex {
    /// An index of all entries of a tree.
    pub fn build(tree: &Tree) -> Self {
        let index = Self { map: scc::HashIndex::with_hasher(hasher()) };
        for (node, parent, name) in tree.entries() {
            index.insert(Key::new(parent, name), node);
        }
        index
    }

    fn insert(&self, key: Key, node: NodeId) {
        let fresh = self.map.insert_sync(key, node).is_ok();
        debug_assert!(fresh, "a name stands once in a directory");
    }
}

impl NameCache for SccIndex {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        let guard = scc::Guard::new();
        descend(path, |key| self.map.peek(&key, &guard).copied())
    }

    fn rename(&self, rename: &Rename) {
        self.map.remove_sync(&KeyRef { parent: rename.from_parent, name: rename.from_name() });
        self.insert(Key::new(rename.to_parent, rename.to_name()), rename.node);
    }
}
