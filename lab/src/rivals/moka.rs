//! moka: a concurrent cache with an eviction policy. It pays for recency and frequency on every
//! lookup, as a cache with a budget must; the other maps evict nothing. Its capacity exceeds the
//! tree, so nothing is evicted here.

use super::key::{Key, KeyRef, descend};
use super::{Hasher, NameCache, hasher};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};

/// `moka::sync::Cache<(parent, name), node>`.
#[derive(Debug)]
pub struct Moka {
    pub(crate) cache: moka::sync::Cache<Key, NodeId, Hasher>,
}

impl Moka {
    /// A cache of all entries of a tree.
    pub fn build(tree: &Tree) -> Self {
        let capacity = tree.len() as u64 * 2;
        let cache = moka::sync::Cache::builder().max_capacity(capacity).build_with_hasher(hasher());
        for (node, parent, name) in tree.entries() {
            cache.insert(Key::new(parent, name), node);
        }
        cache.run_pending_tasks();
        Self { cache }
    }
}

impl NameCache for Moka {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        descend(path, |key| self.cache.get(&key))
    }

    fn rename(&self, rename: &Rename) {
        self.cache.invalidate(&KeyRef { parent: rename.from_parent, name: rename.from_name() });
        self.cache.insert(Key::new(rename.to_parent, rename.to_name()), rename.node);
    }
}
