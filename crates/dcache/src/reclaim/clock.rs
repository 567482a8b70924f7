//! What goes when memory is short: the lazy LRU of the 2002 paper in today's form.
//!
//! A hit does nothing but say [`Used`] where that is not said yet. These marks lie apart from
//! records and dentries, 64 to a line, so that a hit in the path cache, which reads neither, finds
//! the mark near. The pruner does the rest:
//! - **Clock** (Corbató 1968): a hand goes round the slots; a mark is taken away, none means
//!   eviction. The slots are the list, so there is none to maintain, and the hand reads records in
//!   the order of memory.
//! - **Leaves first**: an entry with children is pinned by them; held entries are passed over as
//!   they are met.
//! - **Probation**: entries that a scan brings in (`cold`) queue up in a ring of a tenth of the
//!   cache, and are evicted from it first unless a walk has used them meanwhile: `find` does not
//!   wash out the working set (Yang et al., "FIFO queues are all you need for cache eviction",
//!   2023).
//! - **Negative entries** have a ring of their own, as long as their quota: a flood of them evicts
//!   only them.
//!
//! Rings hold `(number, generation)`; what went another way is found stale and skipped. [clock]
//! guards all of it and is a leaf: victims are collected under it and evicted without it.

use crate::sync::{AtomicU8, Ordering};
use crate::table::chunks::Zeroed;
use crate::table::id::Id;
use std::collections::VecDeque;

/// One entry in so many may be on probation.
const PROBATION: usize = 10;

type Ticket = (Id, u32);

/// Whether an entry was used since the hand came by. Single word: set by walks that hit, cleared by the
/// clock. Zero means used, so that linking a new entry writes no line of another thread's entries.
#[derive(Default)]
pub(crate) struct Used(AtomicU8);

// SAFETY: an atomic integer of zero bytes is zero.
unsafe impl Zeroed for Used {}

impl Used {
    /// Marks a hit.
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
    pub(crate) hand: u32,
    pub(crate) cold: Ring,
    pub(crate) negative: Ring,
}

/// A queue of at most `limit` tickets.
pub(crate) struct Ring {
    pub(crate) queue: VecDeque<Ticket>,
    pub(crate) limit: usize,
}

impl Ring {
    pub(crate) fn new(limit: usize) -> Self {
        Ring { queue: VecDeque::new(), limit: limit.max(1) }
    }

    /// Appends; returns the oldest ticket where the ring is full.
    pub(crate) fn push(&mut self, ticket: Ticket) -> Option<Ticket> {
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
    pub(crate) fn bytes_to_come(&self) -> usize {
        let taken = self.cold.queue.capacity() + self.negative.queue.capacity();
        self.bytes().saturating_sub(taken * size_of::<Ticket>())
    }
}
