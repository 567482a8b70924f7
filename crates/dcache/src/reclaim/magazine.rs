//! What each thread keeps for its own next insertions and removals: free slots, bytes, and retired
//! slots.
//!
//! A change would otherwise write the pool's line three times, and that line would pass between all
//! threads that change anything. Slots and bytes in a magazine stay taken out of the budget, so it
//! is never exceeded (G5); when memory is short [`Core::drain_magazines`] returns them. Per-CPU
//! caches of a slab allocator work alike (Bonwick and Adams, "Magazines and vmem", USENIX 2001).
//!
//! | field | guard |
//! |---|---|
//! | all but `busy` | `busy`: taken by the thread whose slot it is, or by one that drains |
//!
//! No thread waits for `busy`: one that finds it taken goes to the pool instead.

use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::table::chunks::Chunks;
use crate::table::dentry::Dentry;
use crate::table::id::Id;

/// The most free slots in a magazine, and the retired slots at which they go to the pool.
pub(crate) const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 32 };
/// A magazine has at most one slot of this many that the budget has room for.
pub(crate) const SHARE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1024 };
/// The most bytes in a magazine.
const CREDIT: usize = 4096;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Magazine {
    pub(crate) busy: AtomicBool,
    pub(crate) free: Chain,
    pub(crate) retired: Chain,
    pub(crate) credit: AtomicUsize,
}

/// Slots linked through their dentries. [busy]
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) first: AtomicU32,
    pub(crate) len: AtomicU32,
}

impl Chain {
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) fn push<H>(&self, dentries: &Chunks<Dentry<H>>, id: Id) {
        dentries.get(id.0).set_next(Id(self.first.load(Ordering::Relaxed)));
        self.first.store(id.0, Ordering::Relaxed);
        self.len.store(self.len() + 1, Ordering::Relaxed);
    }

    pub(crate) fn pop<H>(&self, dentries: &Chunks<Dentry<H>>) -> Option<Id> {
        let first = Id(self.first.load(Ordering::Relaxed));
        if first == Id::NONE {
            return None;
        }
        self.first.store(dentries.get(first.0).next().0, Ordering::Relaxed);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(first)
    }

    pub(crate) fn take_all<H>(&self, dentries: &Chunks<Dentry<H>>) -> Vec<Id> {
        std::iter::from_fn(|| self.pop(dentries)).collect()
    }
}

impl Magazine {
    /// Runs `work` on the magazine unless another thread is at it.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Self) -> R) -> Option<R> {
        // Acquire: pairs with the Release below, of the thread that had it before.
        if self.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let done = work(self);
        self.busy.store(false, Ordering::Release);
        Some(done)
    }

    pub(crate) fn spend(&self, bytes: usize) -> bool {
        let left = self.credit.load(Ordering::Relaxed).checked_sub(bytes);
        left.inspect(|&left| self.credit.store(left, Ordering::Relaxed)).is_some()
    }

    pub(crate) fn earn(&self, bytes: usize) -> bool {
        let sum = self.credit.load(Ordering::Relaxed) + bytes;
        if sum <= CREDIT {
            self.credit.store(sum, Ordering::Relaxed);
        }
        sum <= CREDIT
    }
}

/// What magazines held.
#[derive(Default)]
pub(crate) struct Drained {
    pub(crate) free: Vec<Id>,
    pub(crate) retired: Vec<Id>,
    pub(crate) bytes: usize,
}
