//! Slots and bytes: which entries are free, which wait for their grace period, and what all of it weighs.
//!
//! | field | guard |
//! |---|---|
//! | `free`, `limbo`, `Core::fresh` | [pool lock], a leaf |
//! | `used`, `live`, … | single words, moved by whoever allocates or frees |
//!
//! Free slots are chained through their dentries, so a free list takes no memory. Handles are dropped outside of
//! every lock and pin (G7).

use super::{Core, Id, clock::Used, dentry::Dentry, dentry::LongName, record::Count, record::Record};
use crate::Handle;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, lock, yield_now};
use std::collections::VecDeque;

/// Retired things at which it is worth a `membarrier` (1 to 2 µs) to look whether they can be reused.
const LIMBO: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// How many are reused at once.
const BATCH: usize = 64;

/// [pool lock]
pub(crate) struct Pool {
    free: Id,
    limbo: VecDeque<(u64, Retired)>,
}

/// Something that walks may still be reading.
pub(crate) enum Retired {
    Entry(Id),
    LongName(LongName),
}

impl Pool {
    pub(crate) fn new() -> Self {
        Pool { free: Id::NONE, limbo: VecDeque::new() }
    }
}

/// What the cache weighs, in bytes, and what it may.
pub(crate) struct Memory {
    pub(crate) budget: usize,
    used: AtomicUsize,
    /// Slots in use, those in limbo included.
    live: AtomicUsize,
    long_names: AtomicUsize,
    negatives: AtomicUsize,
    /// Held entries have driven `used` over the budget.
    over: AtomicBool,
}

impl Memory {
    /// A budget of which `fixed` bytes are gone from the start.
    pub(crate) fn new(budget: usize, fixed: usize) -> Self {
        Memory {
            budget,
            used: AtomicUsize::new(fixed),
            live: AtomicUsize::new(0),
            long_names: AtomicUsize::new(0),
            negatives: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn long_names(&self) -> usize {
        self.long_names.load(Ordering::Relaxed)
    }

    pub(crate) fn negatives(&self) -> usize {
        self.negatives.load(Ordering::Relaxed)
    }

    pub(crate) fn add_negative(&self) {
        self.negatives.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_negative(&self) {
        self.negatives.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes `bytes` out of the budget if they are left in it.
    fn take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.budget);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes `bytes` whatever the budget says: all that is cached is held.
    fn take_over_budget(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether the cache outgrew its budget and nobody has trimmed it since.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
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
        self.reserve(Self::ENTRY + Self::OVERFLOW + long);
        self.memory.live.fetch_add(1, Ordering::Relaxed);
        self.memory.long_names.fetch_add(long, Ordering::Relaxed);
        let mut pool = lock(&self.pool);
        let id = pool.free;
        if id != Id::NONE {
            pool.free = self.dentry(id).next();
            return id;
        }
        let id = Id(self.fresh.load(Ordering::Relaxed));
        self.records.ensure(id.0);
        self.counts.ensure(id.0);
        self.dentries.ensure(id.0);
        self.used.ensure(id.0);
        self.dentry(id).mark_dead();
        // Release: whoever sees the number may look at the slot; pairs with `high_water`.
        self.fresh
            .store(id.0.checked_add(1).expect("fewer than 2³² entries fit any memory"), Ordering::Release);
        id
    }

    /// Settles what [`allocate`](Self::allocate) set aside for the index: `added` bytes of it were needed.
    pub(crate) fn settle_overflow(&self, added: usize) {
        self.memory.give_back(Self::OVERFLOW - added);
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
        self.memory.long_names.fetch_add(long, Ordering::Relaxed);
        self.memory.give_back(bytes - added - long);
    }

    /// Gives back a slot that was not needed after all.
    pub(crate) fn cancel(&self, id: Id, name_len: usize) {
        let long = long_name_bytes(name_len);
        self.memory.long_names.fetch_sub(long, Ordering::Relaxed);
        self.memory.give_back(Self::OVERFLOW + long);
        self.put_free(&[id]);
    }

    /// One more than the highest number ever given to a slot.
    pub(crate) fn high_water(&self) -> u32 {
        self.fresh.load(Ordering::Acquire)
    }

    fn put_free(&self, ids: &[Id]) {
        let mut pool = lock(&self.pool);
        for &id in ids {
            self.dentry(id).set_next(pool.free);
            pool.free = id;
        }
        drop(pool);
        self.memory.live.fetch_sub(ids.len(), Ordering::Relaxed);
        self.memory.give_back(ids.len() * Self::ENTRY);
    }

    fn grow_index(&self) {
        if self.index.wants_to_grow(self.memory.live()) {
            self.reserve(super::index::Index::GROWTH);
            let (added, freed) = self.index.grow(|id| self.record(id).hash());
            self.memory.give_back(super::index::Index::GROWTH - added + freed);
        }
    }

    /// Takes `bytes` out of the budget, evicting until they fit. Where everything is held there is nothing to
    /// evict, and the budget is passed by what is held (G5).
    fn reserve(&self, bytes: usize) {
        while !self.memory.take(bytes) {
            if self.reclaim(0) > 0 {
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
        if !self.shrink_to(self.memory.budget) {
            self.memory.over.store(true, Ordering::Relaxed);
        }
    }

    /// Evicts until no more than `bytes` are used, as soon as walks in progress let go of what is evicted; tells
    /// whether that much could be evicted.
    pub(crate) fn shrink_to(&self, bytes: usize) -> bool {
        let fits = loop {
            if self.memory.used().saturating_sub(self.waiting() * Self::ENTRY) <= bytes {
                break true;
            }
            if self.evict_batch() == 0 {
                break false;
            }
        };
        self.reclaim(0);
        fits
    }

    /// How many things wait for their grace period.
    fn waiting(&self) -> usize {
        lock(&self.pool).limbo.len()
    }

    /// Reuses what was unlinked once nobody can be reading it.
    pub(crate) fn retire(&self, retired: Retired) {
        let mut pool = lock(&self.pool);
        let tag = self.epoch.tag();
        pool.limbo.push_back((tag, retired));
    }

    /// Frees what waited long enough if more than `few` things wait; tells how many were freed. No lock may be
    /// held: handles are dropped here.
    pub(crate) fn reclaim(&self, few: usize) -> usize {
        {
            let pool = lock(&self.pool);
            if pool.limbo.len() <= few {
                return 0;
            }
            self.epoch.advance();
        }
        let oldest = self.epoch.oldest();
        let mut freed = 0;
        loop {
            let ready: Vec<Retired> = {
                let mut pool = lock(&self.pool);
                let waited = |(tag, _): &(u64, Retired)| *tag < oldest;
                let n = pool.limbo.iter().take(BATCH).take_while(|entry| waited(entry)).count();
                pool.limbo.drain(..n).map(|(_, retired)| retired).collect()
            };
            if ready.is_empty() {
                return freed;
            }
            freed += ready.len();
            self.free_all(ready);
        }
    }

    /// Called where something may have been retired and no lock is held.
    pub(crate) fn reclaim_at_leisure(&self) {
        self.reclaim(LIMBO);
    }

    fn free_all(&self, ready: Vec<Retired>) {
        let mut ids = Vec::with_capacity(ready.len());
        for retired in ready {
            let name = match retired {
                Retired::LongName(name) => Some(name),
                Retired::Entry(id) => {
                    ids.push(id);
                    let positive = !self.record(id).shape().is_negative();
                    // SAFETY: the grace period is over, and `bury` retired the slot once.
                    let (handle, name) = unsafe { self.dentry(id).clear(positive) };
                    self.record(id).forget_shape();
                    drop(handle);
                    name
                }
            };
            if let Some(name) = name {
                let bytes = long_name_bytes(name.len());
                self.memory.long_names.fetch_sub(bytes, Ordering::Relaxed);
                self.memory.give_back(bytes);
            }
        }
        self.put_free(&ids);
    }
}
