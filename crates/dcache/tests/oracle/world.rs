//! A cache, its model tree, and the time.

use crate::truth::{Dir, FLOOD, Node, Op, Register, lock};
use dentree_dcache::{Child, Dcache, Handle, Kind, PrefetchMode};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

pub const ROOT: u64 = 4;

/// An inode number as a handle: a word, or a value with a drop.
pub trait Inode: Handle {
    fn new(ino: u64) -> Self;
    fn ino(&self) -> u64;
}

impl Inode for u64 {
    fn new(ino: u64) -> Self {
        ino
    }

    fn ino(&self) -> u64 {
        *self
    }
}

impl Inode for Arc<u64> {
    fn new(ino: u64) -> Self {
        Arc::new(ino)
    }

    fn ino(&self) -> u64 {
        **self
    }
}

pub struct World<H: Handle> {
    pub cache: Dcache<H>,
    pub root: Arc<Dir>,
    /// Shared while a path to a directory is determined, exclusive while a directory gets or loses
    /// a name.
    pub structure: RwLock<()>,
    pub done: AtomicBool,
    pub budget: usize,
    now: AtomicU64,
    /// The beginning of each thread's call.
    active: Vec<AtomicU64>,
    next: AtomicU64,
    first: Arc<Op>,
    dirs: Mutex<HashMap<u64, Weak<Dir>>>,
}

pub fn kind_of(ino: u64) -> Kind {
    match ino % 4 {
        0 => Kind::Directory,
        1 => Kind::Symlink,
        _ => Kind::Other,
    }
}

impl<H: Inode> World<H> {
    pub fn new(threads: usize, seed: u64) -> Self {
        let first = Op::new(0, "the beginning");
        first.end.store(0, Ordering::SeqCst);
        let root = Dir::new(ROOT, true, Weak::new(), &first);
        let flood = Dir::new(2 * ROOT, true, Arc::downgrade(&root), &first);
        root.parent.set(Arc::downgrade(&root), &first, 0);
        root.slots[FLOOD].value.set(Some(Node::Dir(flood)), &first, 0);
        let budget = [64 << 10, 1 << 20][seed as usize / 2 % 2];
        let cache = Dcache::builder()
            .memory(budget)
            .negatives(40)
            .seed(seed)
            .prefetch([PrefetchMode::Off, PrefetchMode::On, PrefetchMode::Auto][seed as usize % 3])
            .build(Child::directory(H::new(ROOT)));
        World {
            cache,
            dirs: Mutex::new(HashMap::from([(ROOT, Arc::downgrade(&root))])),
            root,
            structure: RwLock::new(()),
            done: AtomicBool::new(false),
            budget,
            now: AtomicU64::new(1),
            active: (0..threads).map(|_| AtomicU64::new(u64::MAX)).collect(),
            next: AtomicU64::new(3 * ROOT),
            first,
        }
    }

    pub fn threads(&self) -> usize {
        self.active.len()
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Keeps versions from now on, until the thread is done.
    pub fn begin(&self, thread: usize) {
        self.active[thread].store(self.now(), Ordering::SeqCst);
    }

    pub fn end(&self, thread: usize) {
        self.active[thread].store(u64::MAX, Ordering::SeqCst);
    }

    /// Changes the tree in `change`, which also tells the cache.
    pub fn change<R>(&self, what: &'static str, change: impl FnOnce(&Arc<Op>) -> R) -> R {
        let op = Op::new(self.now.fetch_add(1, Ordering::SeqCst), what);
        let done = change(&op);
        op.end.store(self.now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        done
    }

    pub fn set<T: Clone>(&self, register: &Register<T>, value: T, op: &Arc<Op>) {
        // A thread that begins a call after this has a later time.
        let now = self.now();
        let oldest = self.active.iter().map(|begun| begun.load(Ordering::SeqCst)).fold(now, u64::min);
        register.set(value, op, oldest);
    }

    pub fn new_leaf(&self, is_symlink: bool) -> Node {
        Node::Leaf(self.next.fetch_add(4, Ordering::Relaxed) + if is_symlink { 1 } else { 2 })
    }

    pub fn new_dir(&self, search: bool, parent: &Arc<Dir>) -> Arc<Dir> {
        let ino = self.next.fetch_add(4, Ordering::Relaxed);
        let dir = Dir::new(ino, search, Arc::downgrade(parent), &self.first);
        lock(&self.dirs).insert(ino, Arc::downgrade(&dir));
        dir
    }

    pub fn remove_dir(&self, dir: &Dir, op: &Arc<Op>) {
        self.set(&dir.parent, Weak::new(), op);
        lock(&self.dirs).remove(&dir.ino);
    }

    pub fn dir(&self, ino: u64) -> Option<Arc<Dir>> {
        lock(&self.dirs).get(&ino)?.upgrade()
    }

    /// The file system's result for a name.
    pub fn child(&self, node: &Node) -> Child<H> {
        let search = matches!(node, Node::Dir(dir) if dir.search.now());
        Child { handle: H::new(node.ino()), kind: kind_of(node.ino()), search }
    }
}
