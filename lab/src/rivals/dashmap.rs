//! dashmap: hash tables, one reader-writer lock per shard.
//!
//! Its own `get` needs `Key: Borrow<Q>`, which a two-part key cannot provide without a virtual
//! call; the raw interface takes the same steps with any comparison.

use dashmap::SharedValue;

use super::key::{Key, KeyRef, descend};
use super::{Hasher, NameCache, hasher};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};
use equivalent::Equivalent;

/// `dashmap::DashMap<(parent, name), node>`.
#[derive(Debug)]
pub struct DashMap {
    pub(crate) map: dashmap::DashMap<Key, NodeId, Hasher>,
}

impl DashMap {
    /// A map of all entries of a tree.
    pub fn build(tree: &Tree) -> Self {
        let map = dashmap::DashMap::with_hasher(hasher());
        for (node, parent, name) in tree.entries() {
            map.insert(Key::new(parent, name), node);
        }
        Self { map }
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<NodeId> {
        let hash = self.map.hash_usize(&key);
        let shard = self.map.shards()[self.map.determine_shard(hash)].read();
        shard
            .get(hash as u64, |(stored, _)| key.equivalent(stored))
            .map(|(_, node): &(Key, SharedValue<_>)| *node.get())
    }
}

impl NameCache for DashMap {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        descend(path, |key| self.get(key))
    }

    fn rename(&self, rename: &Rename) {
        self.map.remove(&Key::new(rename.from_parent, rename.from_name()));
        self.map.insert(Key::new(rename.to_parent, rename.to_name()), rename.node);
    }
}
