//! One reader-writer lock around one hash map, most programs' first design. The lock is taken once
//! per path.

use dentree_sync::RwLock;
use hashbrown::HashMap;

use super::key::{Key, KeyRef, descend};
use super::{Hasher, NameCache, hasher};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};

/// `RwLock<HashMap<(parent, name), node>>`.
#[derive(Debug)]
pub struct LockedMap {
    pub(crate) map: RwLock<HashMap<Key, NodeId, Hasher>>,
}

impl LockedMap {
    /// A map of all entries of a tree.
    pub fn build(tree: &Tree) -> Self {
        let mut map = HashMap::with_hasher(hasher());
        map.extend(tree.entries().map(|(node, parent, name)| (Key::new(parent, name), node)));
        Self { map: RwLock::new(map) }
    }
}

impl NameCache for LockedMap {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        let map = self.map.read();
        descend(path, |key| map.get(&key).copied())
    }

    fn rename(&self, rename: &Rename) {
        let mut map = self.map.write();
        map.remove(&KeyRef { parent: rename.from_parent, name: rename.from_name() });
        map.insert(Key::new(rename.to_parent, rename.to_name()), rename.node);
    }
}
