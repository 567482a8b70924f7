//! Which nodes the kernel knows, and how often it was told of each.
//!
//! The kernel counts every answer that names a node (lookups and entries of readdirplus) and gives
//! the count back with FORGET. Both sides must agree: a node counted too high would never leave
//! this table, one counted too low would be refused as stale while the kernel still uses it.
//!
//! The table holds numbers, not inodes: an inode that the kernel knows stays evictable from the
//! inode cache. Holding them was thought of and thrown away: `find` over millions of files would
//! pin more than the inode cache's budget, and its eviction then searches among pinned entries at
//! every insertion. Held are those that have lost their last name: the kernel may have them open,
//! and opens and closes without telling.
//!
//! An inode loses its name first and is [held](Known::hold) then; one that was found before is
//! [told](Known::told) of with a look at whether it still has a name. Both are under the shard's
//! lock, so whichever is second sees the other, and no inode without a name is known and not held.
//!
//! The kernel tells that it has forgotten an inode, and does not wait until we have: a thread that
//! removes a file that fills the disk and writes another may find it full still, while a second
//! thread gives the space back. [`Departures`] is what such a writer waits for.

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

/// What is kept of a node that the kernel knows.
struct Told<F: FileSystem> {
    times: u64,
    /// The inode, where it has no name any more.
    held: Option<Arc<Inode<F>>>,
}

type Shard<F> = HashMap<NodeId, Told<F>>;

/// The inodes without a name, as they are held and let go.
#[derive(Clone, Copy, Default)]
struct Departures {
    /// So many were held so far,
    held: u64,
    /// and so many of them are gone, with their space.
    gone: u64,
    /// What `held` was when a thread last waited without effect: those are open, and it is no use
    /// to wait for them again.
    in_vain: u64,
}

/// Node id → number of times that the kernel was told of it.
///
/// Each shard has a lock of its own, held for one map operation; `departures` may be locked under
/// it, and nothing under that. No inode is let go under a lock.
pub(crate) struct Known<F: FileSystem> {
    shards: [Mutex<Shard<F>>; SHARDS],
    departures: Mutex<Departures>,
    /// One more is gone.
    departed: Condvar,
}

impl<F: FileSystem> Known<F> {
    /// A table of the root alone, which the kernel knows from the mount and never forgets.
    pub(crate) fn new() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        let known = Known { shards, departures: Mutex::default(), departed: Condvar::new() };
        known.shard(NodeId::ROOT).insert(NodeId::ROOT, Told { times: 1, held: None });
        known
    }

    /// Counts that the kernel is about to be told of `node`, which is `inode` if that could be
    /// read. Call this before the answer is sent: the FORGET may come on another thread before the
    /// sending call returns.
    pub(crate) fn told(&self, node: NodeId, inode: Option<&Arc<Inode<F>>>) {
        let mut shard = self.shard(node);
        let told = shard.entry(node).or_insert(Told { times: 0, held: None });
        told.times += 1;
        if let Some(inode) = inode.filter(|inode| inode.is_removed()) {
            self.hold_in(told, inode.clone());
        }
    }

    /// Keeps an inode that has lost its last name until the kernel has forgotten it.
    pub(crate) fn hold(&self, node: NodeId, inode: Arc<Inode<F>>) {
        if let Some(told) = self.shard(node).get_mut(&node) {
            self.hold_in(told, inode);
        }
    }

    fn hold_in(&self, told: &mut Told<F>, inode: Arc<Inode<F>>) {
        if told.held.is_none() {
            told.held = Some(inode);
            self.departures.lock().held += 1;
        }
    }

    /// Takes back `times` of what [`told`](Self::told) counted.
    pub(crate) fn forget(&self, node: NodeId, times: u64) {
        if node == NodeId::ROOT {
            return;
        }
        let mut shard = self.shard(node);
        let Some(told) = shard.get_mut(&node) else {
            return;
        };
        told.times = told.times.saturating_sub(times);
        if told.times > 0 {
            return;
        }
        let forgotten = shard.remove(&node);
        // The kernel forgets in bulk, under memory pressure: give the memory back too.
        if shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
        drop(shard);
        if let Some(inode) = forgotten.and_then(|told| told.held) {
            // Perhaps the last holder: the file system frees the inode here.
            drop(inode);
            self.departures.lock().gone += 1;
            self.departed.notify_all();
        }
    }

    /// How many inodes without a name have gone so far.
    pub(crate) fn departures(&self) -> u64 {
        self.departures.lock().gone
    }

    /// Whether more of them have gone than `before`. Waits for that as long as `patience` where
    /// some are held that no thread has waited for without effect: what the kernel forgot before it
    /// sent the caller's request may still be in another thread's hands.
    pub(crate) fn another_departed(&self, before: u64, patience: Duration) -> bool {
        let mut now = self.departures.lock();
        if now.in_vain < now.held {
            let still = |now: &mut Departures| now.gone == before && now.gone < now.held;
            let is_over;
            (now, is_over) = self.departed.wait_while_for(now, patience, still);
            if is_over {
                now.in_vain = now.held;
            }
        }
        now.gone > before
    }

    /// Whether the kernel may name `node`.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.shard(node).contains_key(&node)
    }

    /// How many nodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, Shard<F>> {
        // Neighbours share a shard: the inodes of one directory are mostly neighbours, and one
        // thread lists it.
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
    fn a_node_is_known_until_every_telling_is_forgotten() {
        let known = known();
        for _ in 0..3 {
            known.told(NodeId(12), None);
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
    fn forgetting_more_than_was_told_forgets_the_node_and_nothing_else() {
        let known = known();
        known.told(NodeId(7), None);
        known.told(NodeId(8), None);
        known.forget(NodeId(7), 100);
        known.forget(NodeId(9), 1);
        assert!(!known.contains(NodeId(7)));
        assert!(known.contains(NodeId(8)));
    }

    #[test]
    fn who_finds_no_space_waits_for_removed_files_once() {
        const LONG: Duration = Duration::from_secs(600);
        let vfs = Vfs::new(MemoryFs::default()).unwrap();
        let (caller, known) = (Identity::Superuser, known());
        let hold = |name: &[u8]| {
            let inode = vfs.make(&caller, vfs.root(), name, NewKind::Regular, 0o644).unwrap();
            let node = NodeId(inode.ino().0);
            known.told(node, Some(&inode));
            drop(inode);
            known.hold(node, vfs.unlink_and_hold(&caller, vfs.root(), name).unwrap());
            node
        };
        assert!(!known.another_departed(0, LONG), "nothing to wait for");
        let open = hold(b"open");
        assert!(!known.another_departed(0, Duration::ZERO));
        assert!(!known.another_departed(0, LONG), "waited for again");

        let leaving = hold(b"leaving");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| known.another_departed(0, LONG));
            known.forget(leaving, 1);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(vfs.stats().inodes.unhashed, 1);
        known.forget(open, 1);
        assert!(known.another_departed(1, LONG));
        assert!(!known.another_departed(2, LONG));
    }

    #[test]
    fn an_inode_without_a_name_lives_until_it_is_forgotten() {
        let vfs = Vfs::new(MemoryFs::default()).unwrap();
        let (caller, known) = (Identity::Superuser, known());
        for told_first in [true, false] {
            let inode = vfs.make(&caller, vfs.root(), b"f", NewKind::Regular, 0o644).unwrap();
            let node = NodeId(inode.ino().0);
            if told_first {
                known.told(node, Some(&inode));
            }
            known.hold(node, vfs.unlink_and_hold(&caller, vfs.root(), b"f").unwrap());
            if !told_first {
                known.told(node, Some(&inode));
            }
            drop(inode);
            assert_eq!(vfs.stats().inodes.unhashed, 1);
            known.forget(node, 1);
            assert_eq!(vfs.stats().inodes.unhashed, 0);
        }
    }
}
