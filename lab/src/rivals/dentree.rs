//! Dentree's own cache, `dentree_dcache`, with each of its interfaces.
//!
//! Every directory is entered completely, as a file system does after readdir: a missing name does
//! not exist, as in the maps. A result that needs the file system counts as wrong here.

use dentree_dcache::{
    Child, Dcache, DentryId, DentryRef, Handle, PrefetchMode, Reason, Seen, Walk, WalkOptions,
};

use super::{NameCache, Tally, WALKS_PER_RENAME, Work};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};

/// Enough for every entry of a tree, so that nothing is evicted; the cache allocates as it fills.
const BUDGET_PER_ENTRY: usize = 400;
const BUDGET_MIN: usize = 64 << 20;
/// A result that no node has.
const WRONG: Option<u64> = Some(u64::MAX);

impl Handle for NodeId {
    #[inline]
    fn to_word(&self) -> Option<u64> {
        self.0.to_word()
    }

    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        u32::from_word(word).map(NodeId)
    }
}

/// A `Dcache` whose handles are node numbers, searched by `find` as in `vfs`: the result is a copy,
/// as with the maps.
#[derive(Debug)]
pub struct Dentree {
    cache: Dcache<NodeId>,
    directories: Vec<DentryId>,
}

impl Dentree {
    /// A cache of all entries of a tree.
    pub fn build(tree: &Tree, prefetch: PrefetchMode) -> Self {
        let cache = Dcache::builder()
            .memory(BUDGET_MIN + tree.len() * BUDGET_PER_ENTRY)
            .prefetch(prefetch)
            .seed(0x5eed)
            .build(Child::directory(NodeId::ROOT));
        let root = cache.root().id();
        let mut this = Self { directories: vec![root], cache };
        let (first_leaf, first_mover) = (tree.leaves().start, tree.movers().start);
        let mut entries = tree.entries().take_while(|(node, ..)| node.0 < first_mover).peekable();
        for parent in (0..first_leaf).map(NodeId) {
            this.identify(tree, parent);
            let mut completion = this.cache.begin_complete(&this.directory(parent));
            while let Some((node, _, name)) = entries.next_if(|&(_, of, _)| of == parent) {
                completion.enter(name, child(tree, node));
            }
            completion.finish();
        }
        for mover in tree.movers().map(NodeId) {
            this.cache.create(&this.directory(tree.parent(mover)), tree.name(mover), child(tree, mover));
        }
        this
    }

    /// Stores the id of a directory that was entered with its parent's entries.
    fn identify(&mut self, tree: &Tree, directory: NodeId) {
        if directory == NodeId::ROOT {
            return;
        }
        let parent = self.directory(tree.parent(directory));
        let found = self.cache.lookup_or_fill(&parent, tree.name(directory), || Err(()));
        let id = found.ok().flatten().expect("the parent is complete, and nothing is evicted").id();
        drop(parent);
        self.directories.push(id);
    }

    /// The result of a walk. A walk that concurrent changes stopped is repeated.
    fn answer<E>(
        &self,
        walk: Walk<'_, NodeId, E>,
        path: Path<'_>,
        node: impl FnOnce(E) -> NodeId,
    ) -> Option<u64> {
        match walk {
            Walk::Found(entry) => Some(self.token(node(entry))),
            Walk::Negative { .. } => None,
            Walk::Stopped(stopped) if stopped.why == Reason::Busy => self.walk(path),
            Walk::Stopped(_) => WRONG,
        }
    }

    fn directory(&self, node: NodeId) -> DentryRef<'_, NodeId> {
        self.cache.get(self.directories[node.index()]).expect("directories are not evicted")
    }
}

impl NameCache for Dentree {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        let found = self.cache.find(&self.cache.root(), path.bytes(), WalkOptions::default(), |_| true);
        self.answer(found, path, |seen: Seen<NodeId>| seen.handle)
    }

    fn rename(&self, rename: &Rename) {
        let (from, to) = (self.directory(rename.from_parent), self.directory(rename.to_parent));
        self.cache.rename(&from, rename.from_name(), &to, rename.to_name());
    }

    fn own_bytes(&self) -> Option<usize> {
        Some(self.cache.stats().memory.used)
    }

    fn lock_acquisitions(&self) -> Option<u64> {
        let stats = self.cache.stats();
        Some(stats.locked_hits + stats.fills + stats.fill_waits)
    }
}

/// The methods that an interface shares with the cache inside it.
macro_rules! as_inside {
    () => {
        fn rename(&self, rename: &Rename) {
            self.0.rename(rename);
        }

        fn own_bytes(&self) -> Option<usize> {
            self.0.own_bytes()
        }

        fn lock_acquisitions(&self) -> Option<u64> {
            self.0.lock_acquisitions()
        }
    };
}

/// The same cache searched by `walk`: the result is a reference, which is dropped.
#[derive(Debug)]
pub struct Held(pub Dentree);

impl NameCache for Held {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        let cache = &self.0.cache;
        let walk = cache.walk(&cache.root(), path.bytes(), WalkOptions::default(), |_| true);
        self.0.answer(walk, path, |entry| *entry.handle())
    }

    as_inside!();
}

/// The same cache searched by `find_many`: a batch is the paths between two renames.
#[derive(Debug)]
pub struct Batch(pub Dentree);

impl NameCache for Batch {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        self.0.walk(path)
    }

    fn run(&self, work: Work<'_>) -> Tally {
        let mut tally = Tally::default();
        let root = self.0.cache.root();
        let mut renames = work.renames.iter();
        let mut batch = Vec::with_capacity(WALKS_PER_RENAME);
        for start in work.range.clone().step_by(WALKS_PER_RENAME) {
            let end = work.range.end.min(start + WALKS_PER_RENAME);
            batch.clear();
            batch.extend((start..end).map(|at| work.paths.path(at).bytes()));
            let walks = self.0.cache.find_many(&root, &batch, WalkOptions::default(), |_| true);
            for (walk, at) in walks.into_iter().zip(start..end) {
                tally.count(self.0.answer(walk, work.paths.path(at), |seen| seen.handle));
            }
            if let Some(rename) = renames.next().filter(|_| end - start == WALKS_PER_RENAME) {
                self.rename(rename);
            }
        }
        tally
    }

    as_inside!();
}

fn child(tree: &Tree, node: NodeId) -> Child<NodeId> {
    if tree.is_directory(node) { Child::directory(node) } else { Child::other(node) }
}
