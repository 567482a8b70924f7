//! Which nodes the kernel knows, and how often it was told of each.
//!
//! The kernel counts every answer that names a node (look-ups and entries of readdirplus) and gives the count
//! back with FORGET. Both sides must agree: a node counted too high would never leave this table, one counted
//! too low would be refused as stale while the kernel still uses it.
//!
//! The table holds numbers, not inodes: an inode that the kernel knows stays evictable from the inode cache.
//! Holding them was thought of and thrown away: `find` over millions of files would pin more than the inode
//! cache's budget, and its eviction then searches among pinned entries at every insertion.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A node id of the FUSE protocol. 1 is the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    pub(crate) const ROOT: NodeId = NodeId(1);
}

const SHARDS: usize = 16;

/// Node id → number of times that the kernel was told of it.
///
/// Each shard has a lock of its own, held for one map operation and never together with another.
pub(crate) struct Known {
    shards: [Mutex<HashMap<NodeId, u64>>; SHARDS],
}

impl Known {
    /// A table of the root alone, which the kernel knows from the mount and never forgets.
    pub(crate) fn new() -> Self {
        let known = Known { shards: Default::default() };
        known.told(NodeId::ROOT);
        known
    }

    /// Counts that the kernel is about to be told of `node`. Call this before the answer is sent: the FORGET
    /// may come on another thread before the sending call returns.
    pub(crate) fn told(&self, node: NodeId) {
        *self.shard(node).entry(node).or_insert(0) += 1;
    }

    /// Takes back `times` of what [`told`](Self::told) counted.
    pub(crate) fn forget(&self, node: NodeId, times: u64) {
        if node == NodeId::ROOT {
            return;
        }
        let mut shard = self.shard(node);
        let Some(count) = shard.get_mut(&node) else {
            return;
        };
        *count = count.saturating_sub(times);
        if *count == 0 {
            shard.remove(&node);
            // The kernel forgets in bulk, under memory pressure: give the memory back too.
            if shard.len() < shard.capacity() / 8 {
                shard.shrink_to_fit();
            }
        }
    }

    /// Whether the kernel may name `node`.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.shard(node).contains_key(&node)
    }

    /// How many nodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, HashMap<NodeId, u64>> {
        // Neighbours share a shard: the inodes of one directory are mostly neighbours, and one thread lists it.
        lock(&self.shards[(node.0 >> 6) as usize % SHARDS])
    }
}

/// A panic in another thread leaves a map consistent: each operation on it is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_until_every_telling_is_forgotten() {
        let known = Known::new();
        for _ in 0..3 {
            known.told(NodeId(12));
        }
        known.forget(NodeId(12), 2);
        assert!(known.contains(NodeId(12)));
        known.forget(NodeId(12), 1);
        assert!(!known.contains(NodeId(12)));
        assert_eq!(known.len(), 1);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let known = Known::new();
        known.forget(NodeId::ROOT, u64::MAX);
        assert!(known.contains(NodeId::ROOT));
    }

    #[test]
    fn forgetting_more_than_was_told_forgets_the_node_and_nothing_else() {
        let known = Known::new();
        known.told(NodeId(7));
        known.told(NodeId(8));
        known.forget(NodeId(7), 100);
        known.forget(NodeId(9), 1);
        assert!(!known.contains(NodeId(7)));
        assert!(known.contains(NodeId(8)));
    }
}
