//! The model tree: every name and permission is a *register* that keeps its versions.
//!
//! Time is a counter. A change has a window: from before the file system has it until after the
//! cache was told. Within the window both sides of the change are allowed: the old value until the
//! window's end, the new one from its beginning.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// The names of every directory, of lengths about a record's limit and the maximum.
pub const LENGTHS: [usize; 8] = [1, 2, 31, 32, 32, 33, 255, 255];
/// The root's directory whose entries cause evictions.
pub const FLOOD: usize = LENGTHS.len();

pub fn name(number: usize) -> Vec<u8> {
    match LENGTHS.get(number) {
        Some(&len) => [vec![b'n'; len - 1], vec![b'a' + number as u8]].concat(),
        None => b"flood".to_vec(),
    }
}

/// Locks, also after a thread that found a fault.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A change of one register, or of several at one instant.
#[derive(Debug)]
pub struct Op {
    /// Also its number, which is unique.
    pub begin: u64,
    pub end: AtomicU64,
    pub what: &'static str,
}

impl Op {
    pub fn new(begin: u64, what: &'static str) -> Arc<Op> {
        Arc::new(Op { begin, end: AtomicU64::new(u64::MAX), what })
    }
}

#[derive(Clone, Debug)]
pub struct Version<T> {
    pub value: T,
    pub began: Arc<Op>,
    pub ended: Option<Arc<Op>>,
}

impl<T> Version<T> {
    /// The last instant at which the value is possible.
    pub fn last(&self) -> u64 {
        self.ended.as_ref().map_or(u64::MAX, |op| op.end.load(Ordering::SeqCst))
    }
}

/// A value with the versions that calls in progress may see.
pub struct Register<T>(Mutex<VecDeque<Version<T>>>);

impl<T: Clone> Register<T> {
    pub fn new(value: T, began: &Arc<Op>) -> Self {
        Register(Mutex::new(VecDeque::from([Version { value, began: began.clone(), ended: None }])))
    }

    pub fn now(&self) -> T {
        lock(&self.0).back().expect("the last version stays").value.clone()
    }

    /// Changes the value; no call began before `oldest`.
    pub fn set(&self, value: T, op: &Arc<Op>, oldest: u64) {
        let mut versions = lock(&self.0);
        versions.back_mut().expect("the last version stays").ended = Some(op.clone());
        versions.push_back(Version { value, began: op.clone(), ended: None });
        while versions.front().is_some_and(|version| version.last() < oldest) {
            versions.pop_front();
        }
    }

    /// The values that are possible at an instant between the two.
    pub fn within(&self, low: u64, high: u64) -> Vec<Version<T>> {
        let possible = |version: &&Version<T>| version.began.begin <= high && version.last() >= low;
        lock(&self.0).iter().filter(possible).cloned().collect()
    }
}

#[derive(Clone)]
pub enum Node {
    Leaf(u64),
    Dir(Arc<Dir>),
}

impl Node {
    pub fn ino(&self) -> u64 {
        match self {
            Node::Leaf(ino) => *ino,
            Node::Dir(dir) => dir.ino,
        }
    }

    pub fn is_symlink(&self) -> bool {
        matches!(self, Node::Leaf(ino) if ino % 4 == 1)
    }
}

impl Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Node::Leaf(ino) => write!(f, "{ino}"),
            Node::Dir(dir) => write!(f, "dir {}", dir.ino),
        }
    }
}

/// A name of a directory.
pub struct Slot {
    pub value: Register<Option<Node>>,
    /// [held by changes of the name]
    pub changing: Mutex<()>,
    /// Renamed in the tree and not yet in the cache: a result must not be cached.
    pub moving: AtomicBool,
}

pub struct Dir {
    /// A multiple of four.
    pub ino: u64,
    pub slots: Vec<Slot>,
    /// Whether everyone may search it.
    pub search: Register<bool>,
    pub closing: Mutex<()>,
    /// The parent directory; none once removed.
    pub parent: Register<Weak<Dir>>,
    /// Whether it was removed. Changes of names in it share the lock.
    pub removed: RwLock<bool>,
}

impl Dir {
    pub fn new(ino: u64, search: bool, parent: Weak<Dir>, op: &Arc<Op>) -> Arc<Dir> {
        let slot = |_| Slot {
            value: Register::new(None, op),
            changing: Mutex::new(()),
            moving: AtomicBool::new(false),
        };
        Arc::new(Dir {
            ino,
            slots: (0..=FLOOD).map(slot).collect(),
            search: Register::new(search, op),
            closing: Mutex::new(()),
            parent: Register::new(parent, op),
            removed: RwLock::new(false),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.value.now().is_none())
    }

    /// The name under which this directory is in `parent`.
    pub fn name_in(&self, parent: &Dir) -> Option<usize> {
        let is_it = |slot: &Slot| slot.value.now().is_some_and(|node| node.ino() == self.ino);
        parent.slots.iter().position(is_it)
    }

    /// Whether this directory is `other` or above it.
    pub fn is_above(&self, other: &Arc<Dir>) -> bool {
        let mut at = Some(other.clone());
        while let Some(dir) = at {
            if dir.ino == self.ino {
                return true;
            }
            at = dir.parent.now().upgrade().filter(|parent| parent.ino != dir.ino);
        }
        false
    }
}
