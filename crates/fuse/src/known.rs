//! Lookup counts of the nodes that the kernel knows.
//!
//! The kernel counts every reply that names a node (lookups and entries of readdirplus), and
//! returns the count with FORGET. A node counted too high never leaves this table; one counted too
//! low is refused as stale while the kernel uses it.
//!
//! The table holds numbers, not inodes, so that inodes the kernel knows stay evictable: `find` over
//! millions of files would pin more than the inode cache's budget. It holds unlinked inodes, which
//! the kernel may have open: it opens and closes without a request.
//!
//! An unlinked inode is [held](Known::hold) after it loses its last link. One that was found before
//! is checked for links when it is [counted](Known::count). Both happen under the shard's lock, so
//! each unlinked inode that is known is held.
//!
//! The kernel does not wait for the effect of a FORGET. A writer on a full disk may find no space
//! while another thread still frees a removed file: [`Freed`] lets it wait.

use dentree_sync::{Condvar, Mutex, MutexGuard};
use dentree_vfs::{FileSystem, Inode};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A node id of the FUSE protocol. 1 is the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    pub(crate) const ROOT: NodeId = NodeId(1);
}

const SHARDS: usize = 16;

/// A node that the kernel knows.
struct Node<F: FileSystem> {
    lookups: u64,
    /// The inode, once it has no link.
    held: Option<Arc<Inode<F>>>,
}

type Shard<F> = HashMap<NodeId, Node<F>>;

/// Unlinked inodes: how many were held, and how many are freed.
#[derive(Clone, Copy, Default)]
struct Freed {
    /// Held so far.
    held: u64,
    /// Freed so far, with their space.
    freed: u64,
    /// `held` when a wait last timed out. Those are open: waiting again is useless.
    open: u64,
}

/// Node id → lookup count.
///
/// Each shard has a lock, held for one map operation. `freed` may be locked under it, and nothing
/// under `freed`. No inode is dropped under a lock.
pub(crate) struct Known<F: FileSystem> {
    shards: [Mutex<Shard<F>>; SHARDS],
    freed: Mutex<Freed>,
    /// Notified when an inode is freed.
    was_freed: Condvar,
}

impl<F: FileSystem> Known<F> {
    /// A table with the root, which the kernel knows from the mount and never forgets.
    pub(crate) fn new() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        let known = Known { shards, freed: Mutex::default(), was_freed: Condvar::new() };
        known.shard(NodeId::ROOT).insert(NodeId::ROOT, Node { lookups: 1, held: None });
        known
    }

    /// Counts a lookup of `node`, which is `inode` if that could be read. Must precede the reply:
    /// the FORGET may come on another thread before the sending call returns.
    pub(crate) fn count(&self, node: NodeId, inode: Option<&Arc<Inode<F>>>) {
        let mut shard = self.shard(node);
        let known = shard.entry(node).or_insert(Node { lookups: 0, held: None });
        known.lookups += 1;
        if let Some(inode) = inode.filter(|inode| inode.is_removed()) {
            self.hold_in(known, inode.clone());
        }
    }

    /// Holds an unlinked inode until the kernel forgets it.
    pub(crate) fn hold(&self, node: NodeId, inode: Arc<Inode<F>>) {
        if let Some(known) = self.shard(node).get_mut(&node) {
            self.hold_in(known, inode);
        }
    }

    fn hold_in(&self, known: &mut Node<F>, inode: Arc<Inode<F>>) {
        if known.held.is_none() {
            known.held = Some(inode);
            self.freed.lock().held += 1;
        }
    }

    /// Subtracts `times` from the lookup count.
    pub(crate) fn forget(&self, node: NodeId, times: u64) {
        if node == NodeId::ROOT {
            return;
        }
        let mut shard = self.shard(node);
        let Some(known) = shard.get_mut(&node) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(times);
        if known.lookups > 0 {
            return;
        }
        let forgotten = shard.remove(&node);
        // The kernel forgets in bulk under memory pressure: return memory too.
        if shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
        drop(shard);
        if let Some(inode) = forgotten.and_then(|known| known.held) {
            // This may be the last reference: the file system frees the inode here.
            drop(inode);
            self.freed.lock().freed += 1;
            self.was_freed.notify_all();
        }
    }

    /// Forgets all nodes but the root, at the end of a session: the kernel need not send every
    /// FORGET.
    pub(crate) fn forget_all(&self) {
        for shard in &self.shards {
            let nodes: Vec<NodeId> = shard.lock().keys().copied().collect();
            nodes.into_iter().for_each(|node| self.forget(node, u64::MAX));
        }
    }

    /// Unlinked inodes freed so far.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.lock().freed
    }

    /// Whether more than `before` have been freed. Waits for up to `patience` if inodes are held
    /// for which no wait has timed out: another thread may be processing a FORGET that the kernel
    /// sent before the caller's request.
    pub(crate) fn wait_for_more_freed(&self, before: u64, patience: Duration) -> bool {
        let mut now = self.freed.lock();
        if now.open < now.held {
            let still = |now: &mut Freed| now.freed == before && now.freed < now.held;
            let is_over;
            (now, is_over) = self.was_freed.wait_while_for(now, patience, still);
            if is_over {
                now.open = now.held;
            }
        }
        now.freed > before
    }

    /// Whether the kernel may name `node`.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.shard(node).contains_key(&node)
    }

    /// Number of nodes that the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, Shard<F>> {
        // Neighbours share a shard: inodes of one directory are mostly neighbours, and one thread
        // lists it.
        self.shards[(node.0 >> 6) as usize % SHARDS].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_vfs::{Identity, MemoryFs, NewKind, Vfs};

    fn known() -> Known<MemoryFs> {
        Known::new()
    }

    #[test]
    fn a_node_is_known_until_every_lookup_is_forgotten() {
        let known = known();
        for _ in 0..3 {
            known.count(NodeId(12), None);
        }
        known.forget(NodeId(12), 2);
        assert!(known.contains(NodeId(12)));
        known.forget(NodeId(12), 1);
        assert!(!known.contains(NodeId(12)));
        assert_eq!(known.len(), 1);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let known = known();
        known.forget(NodeId::ROOT, u64::MAX);
        assert!(known.contains(NodeId::ROOT));
    }

    #[test]
    fn at_the_end_inodes_without_a_name_are_let_go() {
        let vfs = Vfs::new(MemoryFs::default()).unwrap();
        let (caller, known) = (Identity::Superuser, known());
        let inode = vfs.create(&caller, vfs.root(), b"file", NewKind::Regular, 0o644).unwrap();
        let node = NodeId(inode.ino().0);
        (0..3).for_each(|_| known.count(node, Some(&inode)));
        known.count(NodeId(9), None);
        known.hold(node, vfs.unlink_and_hold(&caller, vfs.root(), b"file").unwrap());
        let weak = Arc::downgrade(&inode);
        drop(inode);
        assert!(weak.upgrade().is_some(), "held");
        known.forget_all();
        assert!(weak.upgrade().is_none());
        assert_eq!(known.len(), 1);
    }

    #[test]
    fn forgetting_more_than_was_counted_forgets_the_node_and_nothing_else() {
        let known = known();
        known.count(NodeId(7), None);
        known.count(NodeId(8), None);
        known.forget(NodeId(7), 100);
        known.forget(NodeId(9), 1);
        assert!(!known.contains(NodeId(7)));
        assert!(known.contains(NodeId(8)));
    }

    #[test]
    fn a_writer_without_space_waits_for_removed_files_once() {
        const LONG: Duration = Duration::from_secs(600);
        let vfs = Vfs::new(MemoryFs::default()).unwrap();
        let (caller, known) = (Identity::Superuser, known());
        let hold = |name: &[u8]| {
            let inode = vfs.create(&caller, vfs.root(), name, NewKind::Regular, 0o644).unwrap();
            let node = NodeId(inode.ino().0);
            known.count(node, Some(&inode));
            drop(inode);
            known.hold(node, vfs.unlink_and_hold(&caller, vfs.root(), name).unwrap());
            node
        };
        assert!(!known.wait_for_more_freed(0, LONG), "nothing to wait for");
        let open = hold(b"open");
        assert!(!known.wait_for_more_freed(0, Duration::ZERO));
        assert!(!known.wait_for_more_freed(0, LONG), "waited for again");

        let leaving = hold(b"leaving");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| known.wait_for_more_freed(0, LONG));
            known.forget(leaving, 1);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(vfs.stats().inodes.unhashed, 1);
        known.forget(open, 1);
        assert!(known.wait_for_more_freed(1, LONG));
        assert!(!known.wait_for_more_freed(2, LONG));
    }

    #[test]
    fn an_inode_without_a_name_lives_until_it_is_forgotten() {
        let vfs = Vfs::new(MemoryFs::default()).unwrap();
        let (caller, known) = (Identity::Superuser, known());
        for told_first in [true, false] {
            let inode = vfs.create(&caller, vfs.root(), b"f", NewKind::Regular, 0o644).unwrap();
            let node = NodeId(inode.ino().0);
            if told_first {
                known.count(node, Some(&inode));
            }
            known.hold(node, vfs.unlink_and_hold(&caller, vfs.root(), b"f").unwrap());
            if !told_first {
                known.count(node, Some(&inode));
            }
            drop(inode);
            assert_eq!(vfs.stats().inodes.unhashed, 1);
            known.forget(node, 1);
            assert_eq!(vfs.stats().inodes.unhashed, 0);
        }
    }
}
