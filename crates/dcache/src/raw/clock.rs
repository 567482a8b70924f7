//! What goes when memory is short: the lazy LRU of the 2002 paper in today's form.
//!
//! A hit does nothing but say [`Used`] where that is not said yet. These marks lie apart from records and dentries, 64 to a line, so
//! that a walk by a note, which looks at neither, finds the mark near. The pruner does the rest:
//! - **Clock** (Corbató 1968): a hand goes round the slots; a mark is taken away, none means eviction. The
//!   slots are the list, so there is none to maintain, and the hand reads records in the order of memory.
//! - **Leaves first**: an entry with children is pinned by them; held entries are passed over as they are met.
//! - **Probation**: entries that a scan brings in (`cold`) queue up in a ring of a tenth of the cache, and are
//!   evicted from it first unless a walk has used them meanwhile: `find` does not wash out the working set
//!   (Yang et al., "FIFO queues are all you need for cache eviction", 2023).
//! - **Negative entries** have a ring of their own, as long as their quota: a flood of them evicts only them.
//!
//! Rings hold `(number, generation)`; what went another way is found stale and skipped. [clock] guards all of it
//! and is a leaf: victims are collected under it and evicted without it.

use super::{Core, Id, chunks::Zeroed, record::Flags};
use crate::Handle;
use crate::sync::{AtomicU8, Ordering, lock};
use std::collections::VecDeque;

/// Victims per collection: the clock's lock is taken once for so many.
const BATCH: usize = 32;
/// Slots that the hand passes under one lock.
const STRIDE: u32 = 1024;
/// One entry in so many may be on probation.
const PROBATION: usize = 10;

type Ticket = (Id, u32);

/// Whether an entry was used since the hand came by. Single word: set by walks that hit, taken away by the clock. Zero is used, so that who
/// links new entries writes no line that they share with those of other threads.
#[derive(Default)]
pub(crate) struct Used(AtomicU8);

// SAFETY: an atomic integer of zero bytes is zero.
unsafe impl Zeroed for Used {}

impl Used {
    /// Notes a hit.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.set(true);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Whether the slot is free: the hand passes over it without a look at its record.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::FREE
    }

    /// Says that the slot is free; [`set`](Self::set) says that it is not.
    pub(crate) fn set_free(&self) {
        self.0.store(Self::FREE, Ordering::Relaxed);
    }

    const FREE: u8 = 2;

    /// Writes only where it is not so, that a hot line stays shared (G4).
    #[inline(always)]
    pub(crate) fn set(&self, used: bool) {
        if self.0.load(Ordering::Relaxed) != u8::from(!used) {
            self.0.store(u8::from(!used), Ordering::Relaxed);
        }
    }
}

/// [clock]
pub(crate) struct Clock {
    hand: u32,
    cold: Ring,
    negative: Ring,
}

/// A queue of at most `limit` tickets.
struct Ring {
    queue: VecDeque<Ticket>,
    limit: usize,
}

impl Ring {
    fn new(limit: usize) -> Self {
        Ring { queue: VecDeque::new(), limit: limit.max(1) }
    }

    /// Appends; answers the oldest ticket where the ring is full.
    fn push(&mut self, ticket: Ticket) -> Option<Ticket> {
        let oldest = if self.queue.len() >= self.limit { self.queue.pop_front() } else { None };
        self.queue.push_back(ticket);
        oldest
    }
}

impl Clock {
    /// A clock for about `capacity` entries, of which `negatives` may be negative.
    pub(crate) fn new(capacity: usize, negatives: usize) -> Self {
        Clock { hand: 0, cold: Ring::new(capacity / PROBATION), negative: Ring::new(negatives) }
    }

    /// What the rings weigh at most.
    pub(crate) fn bytes(&self) -> usize {
        (self.cold.limit + self.negative.limit) * size_of::<Ticket>()
    }

    /// How much of that they do not take yet.
    fn bytes_to_come(&self) -> usize {
        let taken = self.cold.queue.capacity() + self.negative.queue.capacity();
        self.bytes().saturating_sub(taken * size_of::<Ticket>())
    }
}

impl<H: Handle> Core<H> {
    /// Notes an entry that a scan brought in: it goes first unless it is used.
    pub(crate) fn enlist_cold(&self, id: Id) {
        // Who is pushed out of probation at its far end has become an ordinary entry.
        lock(&self.clock).cold.push((id, self.record(id).generation()));
    }

    /// Notes a negative entry; answers the one that has to go for it. That one gets a second chance if it was
    /// used, at the expense of the next.
    #[must_use]
    pub(crate) fn enlist_negative(&self, id: Id) -> Option<Id> {
        let mut clock = lock(&self.clock);
        let mut ticket = clock.negative.push((id, self.record(id).generation()))?;
        for _ in 0..BATCH {
            let (oldest, generation) = ticket;
            if self.record(oldest).generation() != generation {
                return None;
            }
            if !self.used(oldest).get() {
                break;
            }
            self.used(oldest).set(false);
            ticket = clock.negative.push(ticket)?;
        }
        Some(ticket.0)
    }

    /// What is in use, without what is only set aside.
    pub(crate) fn bytes_in_use(&self) -> usize {
        let to_come = lock(&self.clock).bytes_to_come() + self.paths.bytes_to_come();
        let (slots, bytes) = self.in_magazines();
        self.memory.used().saturating_sub(to_come + slots * Self::ENTRY + bytes)
    }

    /// Evicts up to [`BATCH`] entries; 0 means that nothing can be evicted.
    pub(crate) fn evict_batch(&self) -> usize {
        let slots = self.high_water();
        // Twice round: the first time may only clear bits. One stride more, as others turn the hand too.
        let strides = 2 * slots / STRIDE + 2;
        for _ in 0..strides {
            let victims = self.victims(slots);
            let evicted = victims.iter().filter(|&&id| self.evict(id)).count();
            if evicted > 0 {
                return evicted;
            }
        }
        0
    }

    fn victims(&self, slots: u32) -> Vec<Id> {
        let mut victims = Vec::with_capacity(BATCH);
        let mut clock = lock(&self.clock);
        let quota = clock.cold.limit / 2;
        while victims.len() < BATCH && clock.cold.queue.len() > quota {
            let Some((id, generation)) = clock.cold.queue.pop_front() else { break };
            if self.record(id).generation() == generation && self.may_go(id) {
                victims.push(id);
            }
        }
        for _ in 0..STRIDE.min(slots) {
            if victims.len() >= BATCH {
                break;
            }
            clock.hand = if clock.hand + 1 < slots { clock.hand + 1 } else { 1 };
            let id = Id(clock.hand);
            if id.0 < slots && self.may_go(id) {
                victims.push(id);
            }
        }
        victims
    }

    /// Whether the clock lets an entry go now; takes its chance away if not.
    fn may_go(&self, id: Id) -> bool {
        if self.used(id).is_free() || !self.record(id).flags().is_linked() || !self.dentry(id).is_evictable()
        {
            return false;
        }
        let chance = self.used(id).get();
        self.used(id).set(false);
        !chance
    }

    /// Evicts one entry if nobody holds it and nothing is below it.
    pub(crate) fn evict(&self, id: Id) -> bool {
        let record = self.record(id);
        let parent = record.parent();
        {
            let _dir = self.lock_dir(parent);
            // While the directory is locked nothing enters or leaves it; what the slot holds now may be another
            // entry than the one that was chosen, and may go as well.
            let flags = record.flags();
            if !flags.is_linked() || record.parent() != parent || !self.dentry(id).kill_unused() {
                return false;
            }
            if !flags.is_negative() {
                self.lose_completeness(parent);
            }
            self.unhash(parent, id);
        }
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.retire_entry(id);
        true
    }

    /// Evicts up to `n` entries, cold and unused ones first; tells how many went.
    pub(crate) fn prune(&self, n: usize) -> usize {
        let mut pruned = 0;
        while pruned < n {
            match self.evict_batch() {
                0 => break,
                batch => pruned += batch,
            }
        }
        pruned
    }

    /// Evicts all below `dir` that is not in use, leaves first: select_parent. Returns how many went.
    pub(crate) fn prune_below(&self, dir: Id) -> usize {
        let (mut dirs, mut at, mut pruned) = (vec![dir], 0, 0);
        // From the top down, then back up: a directory can go only after what is in it.
        while let Some(&dir) = dirs.get(at) {
            let _dir = self.lock_dir(dir);
            dirs.extend(self.children(dir).filter(|&id| self.dentry(id).first_child() != Id::NONE));
            at += 1;
        }
        for dir in dirs.into_iter().rev() {
            let children: Vec<Id> = {
                let _dir = self.lock_dir(dir);
                self.children(dir).filter(|&id| self.dentry(id).is_evictable()).collect()
            };
            pruned += children.into_iter().filter(|&id| self.evict(id)).count();
        }
        pruned
    }

    /// The positive entries of a directory that are cached, held.
    pub(crate) fn hold_children(&self, dir: Id) -> Vec<Id> {
        let _dir = self.lock_dir(dir);
        let is_positive = |id: &Id| !self.record(*id).flags().is_negative() && !self.is_past_deadline(*id);
        self.children(dir).filter(|id| is_positive(id) && self.hold(*id)).collect()
    }

    /// Notes that an entry of `dir` left the cache though it is on disk. [dir lock]
    pub(crate) fn lose_completeness(&self, dir: Id) {
        self.dentry(dir).note_change();
        if self.record(dir).flags().has(Flags::COMPLETE) {
            // Before the entry leaves the index, so that a walk which misses it also finds this record changed.
            self.rewrite(dir).change_flags(0, Flags::COMPLETE);
        }
    }
}
