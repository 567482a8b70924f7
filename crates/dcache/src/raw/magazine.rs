//! What each thread keeps for its own next insertions and removals: free slots, bytes, and retired slots.
//!
//! A change would otherwise write the pool's line three times, and that line would pass between all threads that
//! change anything. Slots and bytes in a magazine stay taken out of the budget, so it is never exceeded (G5); when
//! memory is short [`Core::drain_magazines`] returns them. Per-CPU caches of a slab allocator work alike (Bonwick
//! and Adams, "Magazines and vmem", USENIX 2001).
//!
//! | field | guard |
//! |---|---|
//! | all but `busy` | `busy`: taken by the thread whose slot it is, or by one that drains |
//!
//! Nobody waits for `busy`: a thread that finds it taken goes to the pool instead.

use super::{Core, Id};
use crate::Handle;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The most free slots in a magazine, and the retired slots at which they go to the pool.
const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 32 };
/// A magazine has at most one slot of this many that the budget has room for.
const SHARE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1024 };
/// The most bytes in a magazine.
const CREDIT: usize = 4096;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Magazine {
    busy: AtomicBool,
    free: Chain,
    retired: Chain,
    credit: AtomicUsize,
}

/// Slots linked through their dentries. [busy]
#[derive(Default)]
struct Chain {
    first: AtomicU32,
    len: AtomicU32,
}

impl Chain {
    fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    fn push<H: Handle>(&self, core: &Core<H>, id: Id) {
        core.dentry(id).set_next(Id(self.first.load(Ordering::Relaxed)));
        self.first.store(id.0, Ordering::Relaxed);
        self.len.store(self.len() + 1, Ordering::Relaxed);
    }

    fn pop<H: Handle>(&self, core: &Core<H>) -> Option<Id> {
        let first = Id(self.first.load(Ordering::Relaxed));
        if first == Id::NONE {
            return None;
        }
        self.first.store(core.dentry(first).next().0, Ordering::Relaxed);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(first)
    }

    fn take_all<H: Handle>(&self, core: &Core<H>) -> Vec<Id> {
        std::iter::from_fn(|| self.pop(core)).collect()
    }
}

impl Magazine {
    /// Runs `work` on the magazine unless another thread is at it.
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&Self) -> R) -> Option<R> {
        // Acquire: pairs with the Release below, of the thread that had it before.
        if self.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let done = work(self);
        self.busy.store(false, Ordering::Release);
        Some(done)
    }

    fn spend(&self, bytes: usize) -> bool {
        let left = self.credit.load(Ordering::Relaxed).checked_sub(bytes);
        left.inspect(|&left| self.credit.store(left, Ordering::Relaxed)).is_some()
    }

    fn earn(&self, bytes: usize) -> bool {
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

impl<H: Handle> Core<H> {
    /// How many slots a magazine of this cache may have; none in a cache so small that it would show.
    pub(crate) fn rounds(capacity: usize) -> u32 {
        u32::try_from(capacity / SHARE).unwrap_or(ROUNDS).min(ROUNDS)
    }

    #[inline]
    fn magazine(&self) -> Option<&Magazine> {
        (self.memory.rounds > 0).then(|| &self.epoch.thread_slot().magazine)
    }

    /// A free slot and `bytes` of budget, if the thread has both.
    #[inline]
    pub(crate) fn take_round(&self, bytes: usize) -> Option<Id> {
        let take = |magazine: &Magazine| {
            let may = magazine.free.len() > 0 && (magazine.spend(bytes) || self.memory.take(bytes));
            may.then(|| magazine.free.pop(self)).flatten()
        };
        self.magazine()?.with(take)?
    }

    /// Keeps free slots for the thread's next insertions. Returns those for which there is no room.
    pub(crate) fn put_rounds<'i>(&self, ids: &'i [Id]) -> &'i [Id] {
        let put = |magazine: &Magazine| {
            let room = (self.memory.rounds - magazine.free.len().min(self.memory.rounds)) as usize;
            let (kept, rest) = ids.split_at(room.min(ids.len()));
            kept.iter().for_each(|&id| magazine.free.push(self, id));
            rest
        };
        self.magazine().and_then(|magazine| magazine.with(put)).unwrap_or(ids)
    }

    /// Gives bytes of the budget back.
    #[inline]
    pub(crate) fn give_back(&self, bytes: usize) {
        let kept =
            bytes == 0 || self.magazine().is_some_and(|own| own.with(|own| own.earn(bytes)).unwrap_or(false));
        if !kept {
            self.memory.give_back(bytes);
        }
    }

    /// Keeps a slot that was retired. Returns all of them once there are many.
    pub(crate) fn put_retired(&self, id: Id) -> Vec<Id> {
        let put = |magazine: &Magazine| {
            magazine.retired.push(self, id);
            let is_full = magazine.retired.len() >= self.memory.rounds;
            if is_full { magazine.retired.take_all(self) } else { Vec::new() }
        };
        self.magazine().and_then(|magazine| magazine.with(put)).unwrap_or_else(|| vec![id])
    }

    /// Empties the magazines of all threads, but for those in use at this moment.
    pub(crate) fn drain_magazines(&self) -> Drained {
        let mut drained = Drained::default();
        for slot in self.epoch.thread_slots().filter(|_| self.memory.rounds > 0) {
            slot.magazine.with(|magazine| {
                drained.free.extend(magazine.free.take_all(self));
                drained.retired.extend(magazine.retired.take_all(self));
                drained.bytes += magazine.credit.swap(0, Ordering::Relaxed);
            });
        }
        drained
    }

    /// Free slots and bytes in all magazines.
    pub(crate) fn in_magazines(&self) -> (usize, usize) {
        let own = self
            .epoch
            .thread_slots()
            .map(|slot| (slot.magazine.free.len() as usize, slot.magazine.credit.load(Ordering::Relaxed)));
        own.fold((0, 0), |(slots, bytes), own| (slots + own.0, bytes + own.1))
    }
}
