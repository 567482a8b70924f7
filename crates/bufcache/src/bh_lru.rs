//! The buffer LRU: per-thread copies of blocks that many threads read and few change.
//!
//! A read through a shard writes a mutex, counters and a reference count. If all threads read one
//! block, such as the root of a large directory's index, these cache lines move between processors.
//! A read of a valid copy writes nothing that another thread reads. Linux has a buffer LRU per
//! processor; one per thread needs no lock and no processor number.
//!
//! # Data
//! Each thread has [`BhLruSize`] copies, of all caches together. A block is copied at its second
//! request if the thread still remembers the first; of other blocks it keeps the numbers only. The
//! least recently used copy is replaced if its use is [long enough ago](KEEP_FACTOR): with more
//! frequent blocks than copies, some copies stay and are hit. A version's [`Invalidation`] flag is
//! shared by its slot and all copies.
//!
//! # Who protects what
//! Copies belong to their thread. The slot's reference to the flag is protected by the shard's
//! mutex. The flag is two booleans without a lock.
//!
//! # Guarantee
//! *A copy whose flag is clear is the newest version.* A flag enters a slot under the shard's
//! mutex, while the slot has the version to be copied. A change, drop or eviction of the block sets
//! the flag first, under the mutex. A reader that loads the flag
//! - clear, has the version before the change, as if it had taken the mutex first;
//! - set, goes to the shard.
//!
//! Relaxed: the flag guards no memory but the copy, which is the thread's own. A thread that has
//! learned of the change, by the release of the mutex or anything later, sees the flag set.
//!
//! # Known limits
//! Copies are outside the budget. They stay until they are replaced or the thread ends; invalidated
//! ones, such as all of a dropped cache, are replaced first.

use std::cell::RefCell;
use std::sync::Arc;
// Counters, which models need not explore.
use std::sync::atomic::AtomicU64;

use dentree_sync::atomic::{AtomicBool, Ordering::Relaxed};
use dentree_sync::{Padded, thread_local, thread_slot};

use crate::buffer::Buffer;

/// Number of copies per thread: 1 to 64, or none.
///
/// ```
/// use dentree_bufcache::BhLruSize;
///
/// assert_eq!(BhLruSize::default().buffers(), 8);
/// assert_eq!(BhLruSize::new(16).unwrap().buffers(), 16);
/// assert!(BhLruSize::new(0).is_none() && BhLruSize::new(65).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BhLruSize(u8);

impl BhLruSize {
    /// No copies.
    pub const OFF: BhLruSize = BhLruSize(0);

    /// `buffers` copies, 1 to 64.
    pub fn new(buffers: usize) -> Option<BhLruSize> {
        match u8::try_from(buffers) {
            Ok(buffers @ 1..=64) => Some(BhLruSize(buffers)),
            _ => None,
        }
    }

    /// The number, 0 for none.
    pub fn buffers(self) -> usize {
        self.0.into()
    }
}

impl Default for BhLruSize {
    /// As in Linux, 8: root and second level of an index and its extents, for two directories.
    fn default() -> BhLruSize {
        BhLruSize(8)
    }
}

/// State of a version that threads have copies of.
#[derive(Default)]
pub(crate) struct Invalidation {
    is_set: AtomicBool,
    /// A copy was used since eviction last considered the block. Written once in between.
    was_used: AtomicBool,
}

impl Invalidation {
    /// Ends the version. [shard]
    pub(crate) fn set(&self) {
        self.is_set.store(true, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Relaxed)
    }

    fn note_use(&self) {
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
    }

    pub(crate) fn take_use(&self) -> bool {
        self.was_used.swap(false, Relaxed)
    }
}

/// Number of a cache, and a block of it.
type BlockKey = (u64, u64);

/// The copies of blocks of one cache.
pub(crate) struct BhLru {
    cache: u64,
    /// A thread adds a copy of this cache only below this number of copies, of any cache.
    size: usize,
    hits: [Padded<AtomicU64>; COUNTERS],
}

const COUNTERS: usize = 16;

/// A copy stays for this many lookups times the number of copies.
const KEEP_FACTOR: u64 = 16;

/// The result of a lookup.
pub(crate) enum Lookup {
    Copy(Buffer),
    /// No copy, but there is room and the block is requested often.
    Frequent,
    Absent,
}

struct ThreadLru {
    /// The blocks of `copies`, in its order.
    keys: Vec<BlockKey>,
    copies: Vec<Copied>,
    /// A ring of the last blocks requested without a copy.
    requested: Vec<BlockKey>,
    next: usize,
    now: u64,
}

struct Copied {
    used_at: u64,
    copy: Buffer,
    invalidation: Arc<Invalidation>,
}

thread_local! {
    static THREAD_LRU: RefCell<ThreadLru> = RefCell::new(ThreadLru::new());
}

impl BhLru {
    /// A thread's copies are at most a sixteenth of the cache, but one if the cache has any block.
    pub(crate) fn new(size: BhLruSize, capacity: usize) -> BhLru {
        static CACHES: AtomicU64 = AtomicU64::new(0);
        BhLru {
            cache: CACHES.fetch_add(1, Relaxed),
            size: size.buffers().min(capacity.div_ceil(16)),
            hits: Default::default(),
        }
    }

    /// Finds a block's copy and remembers the request.
    pub(crate) fn get(&self, block: u64) -> Lookup {
        if self.size == 0 {
            return Lookup::Absent;
        }
        let get = |lru: &RefCell<ThreadLru>| {
            let lru = &mut *lru.borrow_mut();
            let found = lru.get((self.cache, block), self.size);
            if matches!(found, Lookup::Copy(_)) {
                self.hits[thread_slot::index(COUNTERS)].0.fetch_add(1, Relaxed);
            }
            found
        };
        THREAD_LRU.try_with(get).unwrap_or(Lookup::Absent)
    }

    /// Copies a version for this thread.
    pub(crate) fn copy(&self, block: u64, version: &Buffer, invalidation: Arc<Invalidation>) -> Buffer {
        let copy = version.copied();
        let kept = copy.clone();
        // A thread in its teardown keeps nothing.
        let _ = THREAD_LRU
            .try_with(|lru| lru.borrow_mut().insert((self.cache, block), self.size, kept, invalidation));
        copy
    }

    /// Whether `version`, if it is a copy of this thread, is the newest.
    pub(crate) fn is_newest(&self, block: u64, version: &Buffer) -> Option<bool> {
        let get = |lru: &RefCell<ThreadLru>| {
            let lru = lru.borrow();
            let copied = &lru.copies[lru.find((self.cache, block))?];
            copied.copy.is_same(version).then(|| !copied.invalidation.is_set())
        };
        THREAD_LRU.try_with(get).ok().flatten()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.iter().map(|counter| counter.0.load(Relaxed)).sum()
    }
}

impl Copied {
    /// `None` if it was invalidated.
    fn used_at(&self) -> Option<u64> {
        (!self.invalidation.is_set()).then_some(self.used_at)
    }
}

impl ThreadLru {
    fn new() -> ThreadLru {
        ThreadLru { keys: Vec::new(), copies: Vec::new(), requested: Vec::new(), next: 0, now: 0 }
    }

    fn find(&self, key: BlockKey) -> Option<usize> {
        self.keys.iter().position(|known| *known == key)
    }

    fn get(&mut self, key: BlockKey, size: usize) -> Lookup {
        self.now += 1;
        if let Some(at) = self.find(key) {
            let copied = &mut self.copies[at];
            if copied.invalidation.is_set() {
                self.remove(at);
                return Lookup::Frequent;
            }
            copied.invalidation.note_use();
            copied.used_at = self.now;
            return Lookup::Copy(copied.copy.clone());
        }
        if self.requested.contains(&key) {
            return if self.has_room(size) { Lookup::Frequent } else { Lookup::Absent };
        }
        if self.next >= size {
            self.next = 0;
        }
        match self.requested.get_mut(self.next) {
            Some(oldest) => *oldest = key,
            None => self.requested.push(key),
        }
        self.next += 1;
        Lookup::Absent
    }

    /// Whether a copy can be added or replaced.
    fn has_room(&self, size: usize) -> bool {
        let is_long_ago = |used_at: u64| used_at + KEEP_FACTOR * (size as u64) < self.now;
        self.copies.len() < size
            || self.oldest().is_some_and(|at| self.copies[at].used_at().is_none_or(is_long_ago))
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.copies.len()).min_by_key(|at| self.copies[*at].used_at())
    }

    fn insert(&mut self, key: BlockKey, size: usize, copy: Buffer, invalidation: Arc<Invalidation>) {
        while self.copies.len() >= size {
            let Some(at) = self.oldest() else { return };
            self.remove(at);
        }
        self.keys.push(key);
        self.copies.push(Copied { used_at: self.now, copy, invalidation });
    }

    fn remove(&mut self, at: usize) {
        self.keys.swap_remove(at);
        self.copies.swap_remove(at);
    }
}
