//! Inodes in memory, within a budget.
//!
//! An [`Inode`] is what a file system parsed, plus its attributes. [`InodeCache`] keeps each at most once; one
//! that somebody holds is pinned, so that everybody who asks for a number while it is in use gets the same.

use crate::{Attr, FileSystem, Ino, Result};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An inode in memory: what the file system parsed, and its attributes.
pub struct Inode<F: FileSystem> {
    attr: Attr,
    node: F::Node,
    /// The id of a directory's entry in the name cache, 0 where it has none: a hint.
    pub(crate) entry: AtomicU64,
}

impl<F: FileSystem> Inode<F> {
    /// Its number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Its attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The file system's own form of it.
    pub fn node(&self) -> &F::Node {
        &self.node
    }
}

/// The inode cache's figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InodeCacheStats {
    /// Inodes in memory.
    pub cached: u64,
    /// What they weigh, in bytes.
    pub bytes: u64,
    /// Look-ups that found the inode.
    pub hits: u64,
    /// Look-ups that had to load it.
    pub misses: u64,
}

/// Weighs an inode by what the file system says of its node.
struct ByNode<F>(Arc<F>);

impl<F> Clone for ByNode<F> {
    fn clone(&self) -> Self {
        ByNode(self.0.clone())
    }
}

impl<F: FileSystem> Weighter<Ino, Arc<Inode<F>>> for ByNode<F> {
    fn weight(&self, _: &Ino, inode: &Arc<Inode<F>>) -> u64 {
        (size_of::<Inode<F>>() + self.0.node_bytes(&inode.node)) as u64
    }
}

/// Keeps inodes that somebody holds.
#[derive(Clone)]
struct PinHeld;

impl<F: FileSystem> Lifecycle<Ino, Arc<Inode<F>>> for PinHeld {
    /// Evicted inodes are dropped here, after the cache's lock is released.
    type RequestState = Vec<Arc<Inode<F>>>;

    fn is_pinned(&self, _: &Ino, inode: &Arc<Inode<F>>) -> bool {
        Arc::strong_count(inode) > 1
    }

    fn on_evict(&self, evicted: &mut Self::RequestState, _: Ino, inode: Arc<Inode<F>>) {
        evicted.push(inode);
    }
}

/// Inode number → inode.
pub(crate) struct InodeCache<F: FileSystem> {
    fs: Arc<F>,
    cache: Cache<Ino, Arc<Inode<F>>, ByNode<F>, DefaultHashBuilder, PinHeld>,
    /// Counted here: the cache looks twice before it loads, and counts both.
    loads: AtomicU64,
}

impl<F: FileSystem> InodeCache<F> {
    pub(crate) fn new(fs: Arc<F>, budget_bytes: u64) -> Self {
        let typical = (size_of::<Inode<F>>() as u64).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((budget_bytes / typical) as usize)
            .weight_capacity(budget_bytes)
            .build()
            .expect("both capacities are given");
        let cache = Cache::with_options(options, ByNode(fs.clone()), DefaultHashBuilder::default(), PinHeld);
        InodeCache { fs, cache, loads: AtomicU64::new(0) }
    }

    /// Inode `ino`, loaded once however many ask for it.
    pub(crate) fn get(&self, ino: Ino) -> Result<Arc<Inode<F>>> {
        self.cache.get_or_insert_with(&ino, || {
            self.loads.fetch_add(1, Ordering::Relaxed);
            let node = self.fs.load(ino)?;
            Ok(Arc::new(Inode { attr: self.fs.attr(&node), node, entry: AtomicU64::new(0) }))
        })
    }

    /// Inode `ino` if it is in memory.
    pub(crate) fn cached(&self, ino: Ino) -> Option<Arc<Inode<F>>> {
        self.cache.get(&ino)
    }

    pub(crate) fn stats(&self) -> InodeCacheStats {
        InodeCacheStats {
            cached: self.cache.len() as u64,
            bytes: self.cache.weight(),
            hits: self.cache.hits(),
            misses: self.loads.load(Ordering::Relaxed),
        }
    }
}
