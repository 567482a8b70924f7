//! Which entries are evicted: the lazy LRU of the 2002 paper in today's form.
//!
//! A hit sets its entry's mark ([`Marks`]) if it is clear. Marks lie apart, 256 to a line, as a hit
//! in the path cache reads neither record nor dentry. Pruning does the rest:
//! - **Clock** (Corbató 1968): a hand goes round the slots in memory order. It clears a mark; an
//!   entry without one is evicted. The slots are the list, so there is none to maintain.
//! - **Leaves first**: children pin their directory; held entries are skipped.
//! - **Probation**: entries of a scan (`cold`) queue in a ring of a tenth of the cache, and are
//!   evicted from it first unless used, so that `find` does not evict the working set (Yang et al.,
//!   "FIFO queues are all you need for cache eviction", 2023).
//! - **Negative entries** have a ring as long as their quota: a flood of them evicts only them.
//!
//! Rings hold `(number, generation)`; stale tickets are skipped. [clock] guards all of it and is a
//! leaf: victims are chosen under it and evicted without it.

use crate::table::chunks::{Chunks, Zeroed, prefetch};
use crate::table::id::Id;
use dentree_sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

/// Part of the cache for probation.
const PROBATION: usize = 10;

type Ticket = (Id, u32);

/// Two bits an entry: used, `UNUSED` since the hand passed, or `FREE`. The hand skips words of free
/// slots by `groups`: pruning costs what is in the cache, not what was once in it.
pub(crate) struct Marks {
    words: Chunks<Word>,
    /// One bit for each word: clear if all of its slots are free.
    groups: Chunks<Group>,
}

/// Zero means used, so that linking a new slot writes nothing.
#[derive(Default)]
struct Word(AtomicU64);

/// Bits of 64 words.
#[derive(Default)]
struct Group(AtomicU64);

// SAFETY: an atomic integer of zero bytes is zero.
unsafe impl Zeroed for Word {}
// SAFETY: as above.
unsafe impl Zeroed for Group {}

impl Marks {
    pub(crate) const SLOTS: u32 = 32;
    const UNUSED: u64 = 0b01;
    const FREE: u64 = 0b10;
    const ALL_FREE: u64 = u64::MAX / 0b11 * Self::FREE;

    pub(crate) fn new(slots: u32) -> Self {
        let words = slots.div_ceil(Self::SLOTS);
        Marks { words: Chunks::new(words), groups: Chunks::new(words.div_ceil(64)) }
    }

    /// Makes the mark of a new slot. [pool lock]
    pub(crate) fn ensure(&self, id: Id) {
        let word = id.0 / Self::SLOTS;
        self.words.ensure(word);
        self.groups.ensure(word / 64);
        self.set_group(word);
    }

    #[inline(always)]
    pub(crate) fn of(&self, id: Id) -> Mark<'_> {
        Mark { word: &self.words.get(id.0 / Self::SLOTS).0, shift: 2 * (id.0 % Self::SLOTS) }
    }

    pub(crate) fn prefetch(&self, id: Id) {
        prefetch(self.words.get(id.0 / Self::SLOTS));
    }

    pub(crate) fn occupy(&self, id: Id, is_used: bool) {
        let mark = self.of(id);
        if mark.get() != 0 {
            let before = mark.word.fetch_and(!(0b11 << mark.shift), Ordering::Relaxed);
            if before & Self::ALL_FREE == Self::ALL_FREE {
                self.set_group(id.0 / Self::SLOTS);
            }
        }
        if !is_used {
            mark.clear();
        }
    }

    fn set_group(&self, word: u32) {
        // Release: pairs with the AcqRel in `occupied`. If that clears the bit after this, it sees
        // the word as it is here and sets the bit again; if before, the bit stays.
        self.groups.get(word / 64).0.fetch_or(1 << (word % 64), Ordering::Release);
    }

    /// The first word in `word..words` that may have an entry.
    pub(crate) fn next(&self, mut word: u32, words: u32) -> Option<u32> {
        while word < words {
            let bits = self.groups.get(word / 64).0.load(Ordering::Relaxed) >> (word % 64);
            if bits != 0 {
                return Some(word + bits.trailing_zeros()).filter(|&next| next < words);
            }
            word = (word / 64 + 1) * 64;
        }
        None
    }

    pub(crate) fn occupied(&self, word: u32) -> impl Iterator<Item = Id> + Clone + use<> {
        let marks = &self.words.get(word).0;
        if marks.load(Ordering::Relaxed) & Self::ALL_FREE == Self::ALL_FREE {
            self.groups.get(word / 64).0.fetch_and(!(1 << (word % 64)), Ordering::AcqRel);
            if marks.load(Ordering::Relaxed) & Self::ALL_FREE != Self::ALL_FREE {
                self.set_group(word);
            }
        }
        let mut occupied = !marks.load(Ordering::Relaxed) & Self::ALL_FREE;
        std::iter::from_fn(move || {
            let bit = (occupied != 0).then(|| occupied.trailing_zeros())?;
            occupied &= occupied - 1;
            Some(Id(word * Self::SLOTS + bit / 2))
        })
    }
}

/// Hints: no other memory is ordered by them.
pub(crate) struct Mark<'m> {
    word: &'m AtomicU64,
    shift: u32,
}

impl Mark<'_> {
    #[inline(always)]
    fn get(&self) -> u64 {
        self.word.load(Ordering::Relaxed) >> self.shift & 0b11
    }

    /// Writes only a clear mark, so that a hot line stays shared (G4).
    #[inline(always)]
    pub(crate) fn touch(&self) {
        if self.get() & Marks::UNUSED != 0 {
            self.word.fetch_and(!(Marks::UNUSED << self.shift), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.get() == 0
    }

    pub(crate) fn clear(&self) {
        self.word.fetch_or(Marks::UNUSED << self.shift, Ordering::Relaxed);
    }

    pub(crate) fn set_free(&self) {
        self.word.fetch_or(Marks::FREE << self.shift, Ordering::Relaxed);
    }
}

/// [clock]
pub(crate) struct Clock {
    /// The hand's word of [`Marks`].
    pub(crate) hand: u32,
    pub(crate) cold: Ring,
    pub(crate) negative: Ring,
}

pub(crate) struct Ring {
    pub(crate) queue: VecDeque<Ticket>,
    pub(crate) limit: usize,
}

impl Ring {
    pub(crate) fn new(limit: usize) -> Self {
        Ring { queue: VecDeque::new(), limit: limit.max(1) }
    }

    /// Appends; returns the oldest ticket if the ring is full.
    pub(crate) fn push(&mut self, ticket: Ticket) -> Option<Ticket> {
        let oldest = if self.queue.len() >= self.limit { self.queue.pop_front() } else { None };
        self.queue.push_back(ticket);
        oldest
    }
}

impl Clock {
    pub(crate) fn new(capacity: usize, negatives: usize) -> Self {
        Clock { hand: 0, cold: Ring::new(capacity / PROBATION), negative: Ring::new(negatives) }
    }

    /// At most.
    pub(crate) fn bytes(&self) -> usize {
        (self.cold.limit + self.negative.limit) * size_of::<Ticket>()
    }

    /// Not allocated yet.
    pub(crate) fn unallocated_bytes(&self) -> usize {
        let taken = self.cold.queue.capacity() + self.negative.queue.capacity();
        self.bytes().saturating_sub(taken * size_of::<Ticket>())
    }
}
