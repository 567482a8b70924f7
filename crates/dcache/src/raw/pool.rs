//! Slots and bytes: which entries are free, which wait for their grace period, and what all of it weighs.
//!
//! | field | guard |
//! |---|---|
//! | `free`, `limbo`, `fresh` | [pool lock], a leaf |
//! | `used`, `live`, … | single words, moved by whoever allocates or frees |
//!
//! Whoever allocates writes the lock, `free` or `fresh`, `live` and `used`: they lie on one cache line ([`Stock`]), which another thread that allocates
//! has to hand over once, not for each of them. What is only read, or seldom written, lies elsewhere.
//!
//! Free slots are chained through their dentries, so a free list takes no memory. Handles are dropped outside of
//! every lock and pin (G7).

use super::{
    Core, Id, clock::Used, dentry::Dentry, dentry::LongName, magazine::Drained, record::Count, record::Record,
};
use crate::Handle;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, lock, yield_now};
use std::collections::VecDeque;

/// The fewest retired things worth a `membarrier`, which interrupts every processor (2 to 10 µs).
const LIMBO_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// The most that wait for each other before a grace period is looked for.
const LIMBO_MAX: usize = 4096;
/// Of all entries that the budget holds, this part may wait for a grace period: a sixty-fourth.
const LIMBO_SHARE: usize = 64;
/// Bytes of an entry, about.
const TYPICAL: usize = 128;
/// How many are reused at once.
const BATCH: usize = 64;

/// [pool lock]
struct Pool {
    free: Id,
    limbo: VecDeque<(u64, Retired)>,
    /// As soon as `limbo` is that long a grace period is looked for.
    attempt_at: u32,
}

/// Something that walks may still be reading.
pub(crate) enum Retired {
    Entry(Id),
    LongName(LongName),
}

/// What every allocation writes.
#[repr(align(128))]
struct Stock {
    pool: Mutex<Pool>,
    /// [pool lock] to write: one more than the highest number ever given to a slot.
    fresh: AtomicU32,
    /// Slots in use, those in limbo included.
    live: AtomicU32,
    /// Bytes.
    used: AtomicUsize,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Mutex<Pool>>() + 2 * size_of::<AtomicU32>() + size_of::<AtomicUsize>() <= 64);

/// What the cache weighs, in bytes, and what it may; and its slots.
pub(crate) struct Memory {
    stock: Stock,
    /// A value that `Stock::fresh` has had: most ids that are asked for are older, and no line of those that are written is read for them.
    seen: AtomicU32,
    budget: AtomicUsize,
    long_names: AtomicUsize,
    negatives: AtomicUsize,
    /// [immutable] Retired things worth a look for a grace period.
    limbo: usize,
    /// [immutable] The most slots in a magazine.
    pub(crate) rounds: u32,
    /// Held entries have driven `used` over the budget.
    over: AtomicBool,
}

impl Memory {
    /// A budget of which `fixed` bytes are gone from the start, and magazines of `rounds` slots.
    pub(crate) fn new(budget: usize, fixed: usize, rounds: u32) -> Self {
        let limbo = (budget / TYPICAL / LIMBO_SHARE).clamp(LIMBO_MIN, LIMBO_MAX);
        Memory {
            stock: Stock {
                pool: Mutex::new(Pool {
                    free: Id::NONE,
                    limbo: VecDeque::new(),
                    attempt_at: saturating(limbo),
                }),
                // Number 0 is no entry.
                fresh: AtomicU32::new(1),
                live: AtomicU32::new(0),
                used: AtomicUsize::new(fixed),
            },
            seen: AtomicU32::new(1),
            budget: AtomicUsize::new(budget),
            long_names: AtomicUsize::new(0),
            negatives: AtomicUsize::new(0),
            limbo,
            rounds,
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// Sets another budget. What is over it stays until it is evicted.
    pub(crate) fn set_budget(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.stock.used.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> usize {
        self.stock.live.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn long_names(&self) -> usize {
        self.long_names.load(Ordering::Relaxed)
    }

    pub(crate) fn negatives(&self) -> usize {
        self.negatives.load(Ordering::Relaxed)
    }

    /// One more than the highest number ever given to a slot.
    pub(crate) fn high_water(&self) -> u32 {
        self.stock.fresh.load(Ordering::Acquire)
    }

    /// Whether a slot was ever given out.
    pub(crate) fn has_slot(&self, id: Id) -> bool {
        // Acquire, and a release below: who sees the number may look at the slot, as whoever noted it might.
        if id.0 < self.seen.load(Ordering::Acquire) {
            return true;
        }
        let fresh = self.high_water();
        if id.0 >= fresh {
            return false;
        }
        self.seen.store(fresh, Ordering::Release);
        true
    }

    /// Most names are short: nothing is written for those.
    fn add_long_names(&self, bytes: usize) {
        if bytes > 0 {
            self.long_names.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn drop_long_names(&self, bytes: usize) {
        if bytes > 0 {
            self.long_names.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_negative(&self) {
        self.negatives.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_negative(&self) {
        self.negatives.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes `bytes` out of the budget if they are left in it.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.budget());
        self.stock.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes `bytes` whatever the budget says: all that is cached is held.
    fn take_over_budget(&self, bytes: usize) {
        self.stock.used.fetch_add(bytes, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.stock.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether the cache outgrew its budget and nobody has trimmed it since.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A length as the pool keeps it.
fn saturating(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// What a long name takes beside its entry: its bytes, the box around them, and the allocator's headers.
pub(crate) fn long_name_bytes(len: usize) -> usize {
    if len > super::name::INLINE { len + 48 } else { 0 }
}

impl<H: Handle> Core<H> {
    /// Bytes of one entry in record and dentry, and apart from them.
    pub(crate) const ENTRY: usize =
        size_of::<Record>() + size_of::<Count>() + size_of::<Dentry<H>>() + size_of::<Used>();
    /// What an insertion may add to the index.
    const OVERFLOW: usize = 64;

    /// A slot for an entry with a name of `name_len` bytes. May evict, so no lock may be held.
    pub(crate) fn allocate(&self, name_len: usize) -> Id {
        self.grow_index();
        let long = long_name_bytes(name_len);
        self.memory.add_long_names(long);
        if let Some(id) = self.take_round(Self::OVERFLOW + long) {
            return id;
        }
        self.reserve(Self::ENTRY + Self::OVERFLOW + long);
        let more = self.refill_budget();
        let (id, rest) = {
            let mut pool = lock(&self.memory.stock.pool);
            (self.slot(&mut pool), (0..more).map(|_| self.slot(&mut pool)).collect::<Vec<_>>())
        };
        self.memory.stock.live.fetch_add(1 + more, Ordering::Relaxed);
        self.put_free(self.put_rounds(&rest));
        id
    }

    /// Takes budget for further slots of the thread's magazine. Returns for how many.
    fn refill_budget(&self) -> u32 {
        let more = self.memory.rounds / 2;
        if more > 0 && self.memory.take(more as usize * Self::ENTRY) { more } else { 0 }
    }

    /// A slot that is free, or was never used.
    fn slot(&self, pool: &mut Pool) -> Id {
        let id = pool.free;
        if id != Id::NONE {
            pool.free = self.dentry(id).next();
            return id;
        }
        let fresh = &self.memory.stock.fresh;
        let id = Id(fresh.load(Ordering::Relaxed));
        self.records.ensure(id.0);
        self.counts.ensure(id.0);
        self.dentries.ensure(id.0);
        self.used.ensure(id.0);
        self.dentry(id).mark_dead();
        // Release: whoever sees the number may look at the slot; pairs with `high_water`.
        fresh.store(id.0.checked_add(1).expect("fewer than 2³² entries fit any memory"), Ordering::Release);
        id
    }

    /// Settles what [`allocate`](Self::allocate) set aside for the index: `added` bytes of it were needed.
    pub(crate) fn settle_overflow(&self, added: usize) {
        self.give_back(Self::OVERFLOW - added);
    }

    /// Sets bytes aside for giving entries new names of these lengths. May evict, so no lock may be held.
    pub(crate) fn allocate_names(&self, lens: &[usize]) -> usize {
        let bytes = lens.iter().map(|&len| Self::OVERFLOW + long_name_bytes(len)).sum();
        self.reserve(bytes);
        bytes
    }

    /// Settles what [`allocate_names`](Self::allocate_names) set aside: the index grew by `added` bytes, and
    /// names of these lengths were given.
    pub(crate) fn settle_names(&self, bytes: usize, added: usize, lens: &[usize]) {
        let long = lens.iter().map(|&len| long_name_bytes(len)).sum();
        self.memory.add_long_names(long);
        self.give_back(bytes - added - long);
    }

    /// Gives back a slot that was not needed after all.
    pub(crate) fn cancel(&self, id: Id, name_len: usize) {
        let long = long_name_bytes(name_len);
        self.memory.drop_long_names(long);
        self.give_back(Self::OVERFLOW + long);
        self.put_free(self.put_rounds(&[id]));
    }

    /// One more than the highest number ever given to a slot.
    pub(crate) fn high_water(&self) -> u32 {
        self.memory.high_water()
    }

    fn put_free(&self, ids: &[Id]) {
        if ids.is_empty() {
            return;
        }
        let mut pool = lock(&self.memory.stock.pool);
        for &id in ids {
            self.dentry(id).set_next(pool.free);
            pool.free = id;
        }
        drop(pool);
        let slots = u32::try_from(ids.len()).expect("fewer than 2³² slots");
        self.memory.stock.live.fetch_sub(slots, Ordering::Relaxed);
        self.memory.give_back(ids.len() * Self::ENTRY);
    }

    fn grow_index(&self) {
        if self.index.wants_to_grow(self.memory.live()) {
            self.reserve(super::index::Index::GROWTH);
            let (added, freed) = self.index.grow(|id| self.record(id).hash());
            // Where hashes are unlucky the new buckets overflow more often than was reckoned with.
            let reserved = super::index::Index::GROWTH + freed;
            self.reserve(added.saturating_sub(reserved));
            self.memory.give_back(reserved.saturating_sub(added));
        }
    }

    /// Takes `bytes` out of the budget, evicting until they fit. Where everything is held there is nothing to
    /// evict, and the budget is passed by what is held (G5).
    fn reserve(&self, bytes: usize) {
        while !self.memory.take(bytes) {
            if self.drain() || self.reclaim() > 0 {
                continue;
            }
            // Evicting more than is wanted would not help while a walk on another thread delays the reuse.
            let waiting = self.waiting();
            if waiting < BATCH && self.evict_batch() > 0 {
                continue;
            }
            if waiting == 0 || self.epoch.is_inside() {
                return self.memory.take_over_budget(bytes);
            }
            yield_now();
        }
    }

    /// Evicts until the cache fits its budget again, after entries that held it over have been let go.
    #[cold]
    pub(crate) fn trim(&self) {
        self.memory.over.store(false, Ordering::Relaxed);
        if !self.shrink_to(self.memory.budget()) {
            self.memory.over.store(true, Ordering::Relaxed);
        }
    }

    /// Evicts until no more than `bytes` are used, as soon as walks in progress let go of what is evicted; tells
    /// whether that much could be evicted.
    pub(crate) fn shrink_to(&self, bytes: usize) -> bool {
        self.drain();
        let fits = loop {
            if self.memory.used().saturating_sub(self.waiting() * Self::ENTRY) <= bytes {
                break true;
            }
            if self.evict_batch() == 0 {
                break false;
            }
        };
        self.drain();
        self.reclaim();
        fits
    }

    /// Takes what threads keep for themselves. Returns whether budget was freed by it.
    fn drain(&self) -> bool {
        let Drained { free, retired, bytes } = self.drain_magazines();
        self.memory.give_back(bytes);
        self.put_free(&free);
        self.retire_all(retired);
        bytes > 0 || !free.is_empty()
    }

    /// How many things wait for their grace period.
    fn waiting(&self) -> usize {
        lock(&self.memory.stock.pool).limbo.len()
    }

    /// Reuses an unlinked slot after a grace period. Returns whether it is time to look for one.
    #[must_use]
    pub(crate) fn retire(&self, id: Id) -> bool {
        let many = self.put_retired(id);
        !many.is_empty() && self.retire_all(many)
    }

    fn retire_all(&self, ids: Vec<Id>) -> bool {
        self.wait_for_grace(ids.into_iter().map(Retired::Entry))
    }

    /// Frees a name that walks may be reading.
    pub(crate) fn retire_names(&self, names: Vec<LongName>) {
        self.wait_for_grace(names.into_iter().map(Retired::LongName));
    }

    fn wait_for_grace(&self, retired: impl ExactSizeIterator<Item = Retired>) -> bool {
        if retired.len() == 0 {
            return false;
        }
        let mut pool = lock(&self.memory.stock.pool);
        let tag = self.epoch.tag();
        pool.limbo.extend(retired.map(|retired| (tag, retired)));
        let is_time = pool.limbo.len() >= pool.attempt_at as usize;
        if is_time {
            // A thread that was preempted inside a walk may delay the end of the grace period for long: the next
            // look is not before as many things wait again.
            pool.attempt_at = saturating(pool.limbo.len() * 2);
        }
        is_time
    }

    /// Frees what has waited for a grace period. Returns how many things were freed. No lock may be held: handles
    /// are dropped here.
    pub(crate) fn reclaim(&self) -> usize {
        {
            let pool = lock(&self.memory.stock.pool);
            if pool.limbo.is_empty() {
                return 0;
            }
            self.epoch.advance();
        }
        let oldest = self.epoch.oldest();
        let mut freed = 0;
        loop {
            let ready: Vec<Retired> = {
                let mut pool = lock(&self.memory.stock.pool);
                let waited = |(tag, _): &(u64, Retired)| *tag < oldest;
                let n = pool.limbo.iter().take(BATCH).take_while(|entry| waited(entry)).count();
                pool.limbo.drain(..n).map(|(_, retired)| retired).collect()
            };
            if ready.is_empty() {
                break;
            }
            freed += ready.len();
            self.free_all(ready);
        }
        let mut pool = lock(&self.memory.stock.pool);
        pool.attempt_at = saturating((pool.limbo.len() * 2).max(self.memory.limbo));
        freed
    }

    fn free_all(&self, ready: Vec<Retired>) {
        let mut ids = Vec::with_capacity(ready.len());
        for retired in ready {
            let name = match retired {
                Retired::LongName(name) => Some(name),
                Retired::Entry(id) => {
                    ids.push(id);
                    let positive = !self.record(id).flags().is_negative();
                    // SAFETY: the grace period is over, and `retire_entry` retired the slot once.
                    let (handle, name) = unsafe { self.dentry(id).clear(positive) };
                    self.record(id).clear_flags();
                    drop(handle);
                    name
                }
            };
            if let Some(name) = name {
                let bytes = long_name_bytes(name.len());
                self.memory.drop_long_names(bytes);
                self.give_back(bytes);
            }
        }
        self.put_free(self.put_rounds(&ids));
    }
}
