//! The rivals: scheme 8 with a crate's map in place of its hash chains.
//!
//! A map alone is no name cache: it has no parents, aliases, references or LRU. So (parent, name)
//! leads to an entry, and the rest is scheme 8, the study's best. Each of these differs from scheme
//! 8 by the map alone.
//!
//! The maps neither know nor need `DCACHE_UNLINKED`. A rename is a removal and an insertion;
//! `renames` makes a reader between the two retry, as for the chains.

use std::fmt::{self, Debug};

use super::entry::{Dentry, Layout};
use super::index::Index;
use super::table::{Table, Wanted};
use crate::rivals::key::{Key, KeyRef};
use crate::rivals::{DashMap, Moka, Papaya, SccIndex, hasher};
use crate::tree::NodeId;

/// A crate's map from names to entry numbers.
pub trait Map: Default + Send + Sync + 'static {
    /// The entry of a name.
    fn get(&self, key: KeyRef<'_>) -> Option<NodeId>;
    /// Adds a name that is not in the map.
    fn insert(&self, key: Key, entry: NodeId);
    /// Removes a name.
    fn remove(&self, key: KeyRef<'_>);
}

/// See the module.
#[derive(Default)]
pub struct Mapped<M>(M);

impl<M> Debug for Mapped<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::any::type_name::<M>())
    }
}

impl<M: Map> Index for Mapped<M> {
    #[inline]
    fn find<L: Layout>(
        &self,
        _table: &Table<L>,
        wanted: &Wanted<'_>,
        is: impl Fn(Dentry) -> bool,
    ) -> Option<Dentry> {
        let found = self.0.get(KeyRef { parent: NodeId(wanted.parent.0), name: wanted.name })?;
        Some(Dentry(found.0)).filter(|dentry| is(*dentry))
    }

    fn enter<L: Layout>(&self, table: &Table<L>, dentry: Dentry, wanted: &Wanted<'_>) {
        table.mark_hashed(dentry);
        self.0.insert(Key::new(NodeId(wanted.parent.0), wanted.name), NodeId(dentry.0));
    }

    fn leave<L: Layout>(&self, table: &Table<L>, dentry: Dentry) {
        if table.mark_unhashed(dentry) {
            let name = table.name(dentry);
            self.0.remove(KeyRef { parent: NodeId(table.parent(dentry).0), name: &name });
        }
    }
}

impl Default for DashMap {
    fn default() -> Self {
        Self { map: dashmap::DashMap::with_hasher(hasher()) }
    }
}

impl Map for DashMap {
    fn get(&self, key: KeyRef<'_>) -> Option<NodeId> {
        self.get(key)
    }
    fn insert(&self, key: Key, entry: NodeId) {
        self.map.insert(key, entry);
    }
    fn remove(&self, key: KeyRef<'_>) {
        self.map.remove(&Key::new(key.parent, key.name));
    }
}

impl Default for Papaya {
    fn default() -> Self {
        Self { map: papaya::HashMap::with_hasher(hasher()) }
    }
}

impl Map for Papaya {
    fn get(&self, key: KeyRef<'_>) -> Option<NodeId> {
        self.map.pin().get(&key).copied()
    }
    fn insert(&self, key: Key, entry: NodeId) {
        self.map.pin().insert(key, entry);
    }
    fn remove(&self, key: KeyRef<'_>) {
        self.map.pin().remove(&key);
    }
}

impl Default for SccIndex {
    fn default() -> Self {
        Self { map: scc::HashIndex::with_hasher(hasher()) }
    }
}

impl Map for SccIndex {
    fn get(&self, key: KeyRef<'_>) -> Option<NodeId> {
        self.map.peek(&key, &scc::Guard::new()).copied()
    }
    fn insert(&self, key: Key, entry: NodeId) {
        let fresh = self.map.insert_sync(key, entry).is_ok();
        debug_assert!(fresh, "a name is removed before it is entered again");
    }
    fn remove(&self, key: KeyRef<'_>) {
        self.map.remove_sync(&key);
    }
}

impl Default for Moka {
    /// Unbounded: the scheme evicts.
    fn default() -> Self {
        Self { cache: moka::sync::Cache::builder().build_with_hasher(hasher()) }
    }
}

impl Map for Moka {
    fn get(&self, key: KeyRef<'_>) -> Option<NodeId> {
        self.cache.get(&key)
    }
    fn insert(&self, key: Key, entry: NodeId) {
        self.cache.insert(key, entry);
    }
    fn remove(&self, key: KeyRef<'_>) {
        self.cache.invalidate(&key);
    }
}
