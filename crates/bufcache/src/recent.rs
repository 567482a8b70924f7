//! The buffer LRU: copies of blocks that a thread asks for again and again while others change little, in front of the shards.
//!
//! To take a block from a shard writes a lock, counts, and the number of the block's users: lines that go from processor to processor where
//! all threads begin at one block, as they do at the root of a large directory's index. A copy that is still good is used without
//! writing anything that another thread reads. Linux has a buffer LRU for each processor; here each thread has its own, which needs neither a
//! lock nor to ask which processor this is.
//!
//! # Data
//! Each thread has so many copies ([`BhLruSize`]), of all caches together. A block is copied when it is asked for while the thread still knows that
//! it has asked for it before: of those that come once only the number is noted. The copy used longest ago makes room, if that is
//! [so long ago](PATIENCE): where more blocks are used in turn than there is room for, some stay and are found, and not all come and go. A copy
//! comes with the [`Watch`] on its version, which stands in the block's slot, too, for all threads that have copies of it.
//!
//! # Who protects what
//! Copies are the thread's own. That a slot has a watch is guarded by its shard's mutex. A watch is two flags, which are never locked.
//!
//! # The promise
//! *A copy whose watch is not over is the newest version.* A watch is put into a slot under the shard's mutex, with the version to be copied in
//! it. Whoever changes the block, drops or evicts it holds the mutex and ends the watch first. Two cases for who looks at the flag beside that:
//! - it is not set yet: the change is not made yet, and who looks has the version before it, as if it had taken the mutex first;
//! - it is set: who looks goes to the shard.
//!
//! Relaxed: no memory is read on account of the flag but the copy, which is the thread's own. Who has learnt of the change, by whatever the changer
//! did after it (giving back the mutex is the first of that), has the flag's setting before its look, and finds it set.
//!
//! # Known limits
//! Copies are no part of the budget. They stay until others take their places, or the thread ends; those that are over, as all are of a cache
//! that is gone, make room first.

use std::cell::RefCell;
use std::sync::Arc;
// Counters, which no other access depends on: models need not know of them.
use std::sync::atomic::AtomicU64;

use dentree_sync::atomic::{AtomicBool, Ordering::Relaxed};
use dentree_sync::{Padded, thread_local, thread_slot};

use crate::buffer::Buffer;

/// How many blocks each thread has copies of in front of the shards, 1 to 64; or none.
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
    /// None: each look-up goes to the shards.
    pub const OFF: BhLruSize = BhLruSize(0);

    /// So many, from 1 to 64.
    pub fn new(buffers: usize) -> Option<BhLruSize> {
        match u8::try_from(buffers) {
            Ok(buffers @ 1..=64) => Some(BhLruSize(buffers)),
            _ => None,
        }
    }

    /// How many; 0 where it is off.
    pub fn buffers(self) -> usize {
        self.0.into()
    }
}

impl Default for BhLruSize {
    /// Linux's 8: the root and the second level of an index, its extents, and the same of another directory.
    fn default() -> BhLruSize {
        BhLruSize(8)
    }
}

/// On a version of a block that threads have copies of.
#[derive(Default)]
pub(crate) struct Watch {
    /// It is not the newest any more.
    is_over: AtomicBool,
    /// A copy was used since the block's turn to go last came. Written once for each such turn.
    was_used: AtomicBool,
}

impl Watch {
    /// Says that the version goes. The caller holds the shard.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn note_use(&self) {
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
    }

    /// Whether a copy was used since this was last asked.
    pub(crate) fn take_use(&self) -> bool {
        self.was_used.swap(false, Relaxed)
    }
}

/// A block of a cache, by the cache's number.
type Name = (u64, u64);

/// What threads have of a cache.
pub(crate) struct Recent {
    /// Of each cache of the process its own.
    cache: u64,
    /// So many copies a thread may have when it takes one of this cache.
    size: usize,
    /// Each thread counts in one of these.
    hits: [Padded<AtomicU64>; LINES],
}

const LINES: usize = 16;

/// A copy stays for so many times as many looks as the thread may have copies.
const PATIENCE: u64 = 16;

/// What a thread has of a block.
pub(crate) enum Known {
    /// A copy of the newest version.
    Copy(Buffer),
    /// Nothing, but there is room for a copy, and it is worth one.
    Often,
    Nothing,
}

/// One thread's.
struct Mine {
    /// Of which block the copy at the same place is.
    names: Vec<Name>,
    copies: Vec<Own>,
    /// What was asked for last, a ring as long as the cache's size allows.
    asked: Vec<Name>,
    next: usize,
    /// Counts looks.
    now: u64,
}

struct Own {
    used_at: u64,
    copy: Buffer,
    watch: Arc<Watch>,
}

thread_local! {
    static MINE: RefCell<Mine> = RefCell::new(Mine::new());
}

impl Recent {
    /// A thread's copies are a sixteenth of the cache at most, and one where it has any block.
    pub(crate) fn new(size: BhLruSize, capacity: usize) -> Recent {
        static CACHES: AtomicU64 = AtomicU64::new(0);
        Recent {
            cache: CACHES.fetch_add(1, Relaxed),
            size: size.buffers().min(capacity.div_ceil(16)),
            hits: Default::default(),
        }
    }

    /// Looks for a block among this thread's copies, and notes that it was asked for.
    pub(crate) fn look(&self, block: u64) -> Known {
        if self.size == 0 {
            return Known::Nothing;
        }
        let look = |mine: &RefCell<Mine>| {
            let mine = &mut *mine.borrow_mut();
            let known = mine.look((self.cache, block), self.size);
            if matches!(known, Known::Copy(_)) {
                self.hits[thread_slot::index(LINES)].0.fetch_add(1, Relaxed);
            }
            known
        };
        MINE.try_with(look).unwrap_or(Known::Nothing)
    }

    /// Makes a copy for this thread of the version that has this watch.
    pub(crate) fn copy(&self, block: u64, version: &Buffer, watch: Arc<Watch>) -> Buffer {
        let copy = version.copied();
        let own = copy.clone();
        // A thread that ends keeps nothing.
        let _ = MINE.try_with(|mine| mine.borrow_mut().keep((self.cache, block), self.size, own, watch));
        copy
    }

    /// Whether `version` is the newest, where it is a copy that this thread has; else `None`.
    pub(crate) fn is_newest(&self, block: u64, version: &Buffer) -> Option<bool> {
        let look = |mine: &RefCell<Mine>| {
            let mine = mine.borrow();
            let own = &mine.copies[mine.find((self.cache, block))?];
            own.copy.is_same(version).then(|| !own.watch.is_over())
        };
        MINE.try_with(look).ok().flatten()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.iter().map(|line| line.0.load(Relaxed)).sum()
    }
}

impl Own {
    /// When it was used last; `None` where it will not be again.
    fn used_at(&self) -> Option<u64> {
        (!self.watch.is_over()).then_some(self.used_at)
    }
}

impl Mine {
    fn new() -> Mine {
        Mine { names: Vec::new(), copies: Vec::new(), asked: Vec::new(), next: 0, now: 0 }
    }

    fn find(&self, of: Name) -> Option<usize> {
        self.names.iter().position(|name| *name == of)
    }

    fn look(&mut self, of: Name, size: usize) -> Known {
        self.now += 1;
        if let Some(at) = self.find(of) {
            let own = &mut self.copies[at];
            if own.watch.is_over() {
                self.forget(at);
                return Known::Often;
            }
            own.watch.note_use();
            own.used_at = self.now;
            return Known::Copy(own.copy.clone());
        }
        if self.asked.contains(&of) {
            return if self.has_room(size) { Known::Often } else { Known::Nothing };
        }
        if self.next >= size {
            self.next = 0;
        }
        match self.asked.get_mut(self.next) {
            Some(oldest) => *oldest = of,
            None => self.asked.push(of),
        }
        self.next += 1;
        Known::Nothing
    }

    /// Whether there is room for one more copy, or one can make room.
    fn has_room(&self, size: usize) -> bool {
        let is_long_ago = |used_at: u64| used_at + PATIENCE * (size as u64) < self.now;
        self.copies.len() < size
            || self.oldest().is_some_and(|at| self.copies[at].used_at().is_none_or(is_long_ago))
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.copies.len()).min_by_key(|at| self.copies[*at].used_at())
    }

    fn keep(&mut self, of: Name, size: usize, copy: Buffer, watch: Arc<Watch>) {
        while self.copies.len() >= size {
            let Some(at) = self.oldest() else { return };
            self.forget(at);
        }
        self.names.push(of);
        self.copies.push(Own { used_at: self.now, copy, watch });
    }

    fn forget(&mut self, at: usize) {
        self.names.swap_remove(at);
        self.copies.swap_remove(at);
    }
}
