//! Scheme 9: lazy LRU, and a timer that takes entries in use off the LRU list.
//!
//! The list stays short for pruning; in return the timer takes `dcache_lock`, too. The study found
//! it no better. Everything but the timer is scheme 8.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::entry::{Dentry, Layout};
use super::lazy_lru::LazyLru;
use super::{Config, Inode, Scheme, Usage};

/// One tick of the kernels of 2002.
const INTERVAL: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub struct LazyLruTimer<L> {
    cache: Arc<LazyLru<L>>,
    _timer: Timer,
}

impl<L: Layout> LazyLruTimer<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        let cache = Arc::new(LazyLru::new(config));
        let timer = Timer::new({
            let cache = Arc::clone(&cache);
            move || cache.tidy()
        });
        Self { cache, _timer: timer }
    }
}

/// A thread that calls a function every [`INTERVAL`] until it is dropped.
#[derive(Debug)]
struct Timer {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    fn new(tick: impl Fn() + Send + 'static) -> Self {
        let (end, ended) = channel();
        let thread = thread::spawn(move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.end = None; // the thread's channel closes
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<L: Layout> Scheme for LazyLruTimer<L> {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        self.cache.lookup(parent, name)
    }
    fn dget(&self, dentry: Dentry) {
        self.cache.dget(dentry);
    }
    fn dput(&self, dentry: Dentry) {
        self.cache.dput(dentry);
    }
    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        self.cache.add(parent, name, inode)
    }
    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        self.cache.instantiate(dentry, inode);
    }
    fn delete(&self, dentry: Dentry) {
        self.cache.delete(dentry);
    }
    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        self.cache.rename(dentry, new_parent, name);
    }
    fn prune(&self, wanted: usize) -> usize {
        self.cache.prune(wanted)
    }
    fn select_parent(&self, parent: Dentry) -> usize {
        self.cache.select_parent(parent)
    }
    fn aliases(&self, inode: Inode) -> Vec<Dentry> {
        self.cache.aliases(inode)
    }
    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.cache.inode(dentry)
    }
    fn usage(&self) -> Usage {
        self.cache.usage()
    }
}
