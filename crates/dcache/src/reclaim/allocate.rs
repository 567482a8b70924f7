//! Allocation of slots and bytes, by eviction if need be, and their release after a grace period.

use dentree_sync::atomic::Ordering;
use dentree_sync::thread::yield_now;

use crate::Handle;
use crate::core::Core;
use crate::reclaim::pool::{Pool, Retired, long_name_bytes, saturating};
use crate::table::dentry::{Dentry, LongName};
use crate::table::id::Id;
use crate::table::record::{Count, Record};

/// Objects freed under one lock.
const BATCH: usize = 64;

impl<H: Handle> Core<H> {
    /// Bytes of record, count and dentry; the mark's two bits count as a byte.
    pub(crate) const ENTRY: usize = size_of::<Record>() + size_of::<Count>() + size_of::<Dentry<H>>() + 1;
    /// Bytes that an insertion may add to the index.
    const OVERFLOW: usize = 64;

    /// A slot for an entry with a name of `name_len` bytes. May evict, so no lock may be held.
    pub(crate) fn allocate(&self, name_len: usize) -> Id {
        self.grow_index();
        let long = long_name_bytes(name_len);
        self.memory.long_names.add(long);
        self.reserve(Self::ENTRY + Self::OVERFLOW + long);
        let id = self.slot(&mut self.memory.stock.pool.lock());
        self.memory.stock.live.fetch_add(1, Ordering::Relaxed);
        id
    }

    fn slot(&self, pool: &mut Pool) -> Id {
        let id = pool.free;
        if id != Id::NONE {
            pool.free = self.dentry(id).next.get();
            return id;
        }
        let fresh = &self.memory.stock.fresh;
        let id = Id(fresh.load(Ordering::Relaxed));
        self.records.ensure(id.0);
        self.counts.ensure(id.0);
        self.dentries.ensure(id.0);
        self.marks.ensure(id);
        self.dentry(id).mark_dead();
        // Release: a thread that sees the number may read the slot; pairs with `high_water`.
        fresh.store(id.0.checked_add(1).expect("fewer than 2³² entries fit any memory"), Ordering::Release);
        id
    }

    /// Returns what [`allocate`](Self::allocate) reserved for the index, less `added` bytes.
    pub(crate) fn settle_overflow(&self, added: usize) {
        self.memory.give_back(Self::OVERFLOW - added);
    }

    /// Reserves bytes for new names of these lengths. May evict, so no lock may be held.
    pub(crate) fn allocate_names(&self, lens: &[usize]) -> usize {
        let bytes = lens.iter().map(|&len| Self::OVERFLOW + long_name_bytes(len)).sum();
        self.reserve(bytes);
        bytes
    }

    /// Returns what [`allocate_names`](Self::allocate_names) reserved, less `added` bytes of index
    /// and names of these lengths.
    pub(crate) fn settle_names(&self, bytes: usize, added: usize, lens: impl IntoIterator<Item = usize>) {
        let long = lens.into_iter().map(long_name_bytes).sum();
        self.memory.long_names.add(long);
        self.memory.give_back(bytes - added - long);
    }

    /// Frees a slot that was not linked.
    pub(crate) fn cancel(&self, id: Id, name_len: usize) {
        let long = long_name_bytes(name_len);
        self.memory.long_names.sub(long);
        self.memory.give_back(Self::OVERFLOW + long);
        self.put_free(&[id]);
    }

    pub(crate) fn high_water(&self) -> u32 {
        self.memory.high_water()
    }

    fn put_free(&self, ids: &[Id]) {
        if ids.is_empty() {
            return;
        }
        let mut pool = self.memory.stock.pool.lock();
        for &id in ids {
            self.dentry(id).next.set(pool.free);
            pool.free = id;
        }
        drop(pool);
        let slots = u32::try_from(ids.len()).expect("fewer than 2³² slots");
        self.memory.stock.live.fetch_sub(slots, Ordering::Relaxed);
        self.memory.give_back(ids.len() * Self::ENTRY);
    }

    fn grow_index(&self) {
        if self.index.wants_to_grow(self.memory.live()) {
            self.reserve(crate::table::index::Index::GROWTH);
            let (added, freed) = self.index.grow(|id| self.record(id).hash());
            // Unlucky hashes make the new buckets overflow more often than reserved for.
            let reserved = crate::table::index::Index::GROWTH + freed;
            self.reserve(added.saturating_sub(reserved));
            self.memory.give_back(reserved.saturating_sub(added));
        }
    }

    /// Takes `bytes` from the budget, evicting until they fit, or exceeds it if all entries are
    /// held (G5).
    fn reserve(&self, bytes: usize) {
        while !self.memory.take(bytes) {
            if self.reclaim() > 0 {
                continue;
            }
            // More eviction would not help while a walk on another thread delays the reuse.
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

    /// Evicts what held entries made exceed the budget.
    #[cold]
    pub(crate) fn trim(&self) {
        self.memory.over.store(false, Ordering::Relaxed);
        if !self.shrink_to(self.memory.budget()) {
            self.memory.over.store(true, Ordering::Relaxed);
        }
    }

    /// Evicts until at most `bytes` are used, without evicted entries in their grace period.
    /// Returns whether it succeeded.
    pub(crate) fn shrink_to(&self, bytes: usize) -> bool {
        let fits = loop {
            if self.memory.used().saturating_sub(self.waiting() * Self::ENTRY) <= bytes {
                break true;
            }
            if self.evict_batch() == 0 {
                break false;
            }
        };
        self.reclaim();
        fits
    }

    fn waiting(&self) -> usize {
        self.memory.stock.pool.lock().limbo.len()
    }

    /// Frees an unlinked slot after a grace period. Returns whether to try for one now.
    #[must_use]
    pub(crate) fn retire(&self, id: Id) -> bool {
        self.wait_for_grace(Retired::Entry(id))
    }

    pub(crate) fn retire_name(&self, name: LongName) {
        self.wait_for_grace(Retired::LongName(name));
    }

    fn wait_for_grace(&self, retired: Retired) -> bool {
        let mut pool = self.memory.stock.pool.lock();
        pool.limbo.push_back((self.epoch.tag(), retired));
        let is_time = pool.limbo.len() >= pool.attempt_at as usize;
        if is_time {
            // A preempted walk may delay the grace period for long: try again after as many objects
            // more.
            pool.attempt_at = saturating(pool.limbo.len() * 2);
        }
        is_time
    }

    /// Frees objects after their grace period, and drops handles: no lock may be held. Returns
    /// their number.
    pub(crate) fn reclaim(&self) -> usize {
        {
            let pool = self.memory.stock.pool.lock();
            if pool.limbo.is_empty() {
                return 0;
            }
            self.epoch.advance();
        }
        let oldest = self.epoch.oldest();
        let mut freed = 0;
        loop {
            let ready: Vec<Retired> = {
                let mut pool = self.memory.stock.pool.lock();
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
        let mut pool = self.memory.stock.pool.lock();
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
                self.memory.long_names.sub(bytes);
                self.memory.give_back(bytes);
            }
        }
        self.put_free(&ids);
    }
}
