//! The cache below its public interface. Everything here speaks of entries by number.
//!
//! ```text
//! lookup/   walk        path to entry, without locks      mutate/   tree      link, unlink, rename
//!           step        one name to entry, without locks            negative  entries that change in place
//!           path_cache  whole paths                                 complete  whole directories
//!           prefetch    several walks in step             reclaim/  clock     which entries are evicted
//!           trials      whether prefetch helps                      evict     eviction
//!           fill        one fill per miss                           allocate  slots and bytes
//!           in_lookup   names in lookup                             pool      free slots, grace periods, bytes
//!           reach       whether a directory is detached
//!           validity    why that matters, and search hints
//! ──────────────────────────────────────────────────────────────── epoch ──── grace periods ─────────────────────────
//! hash/     name, bytes                                   table/    index (hash to number), record (what a walk reads),
//!                                                                   dentry (what is written), chunks (storage)
//! ```
//!
//! # Lock order
//!
//! ```text
//! renaming                     one cross-directory rename at a time
//!   dir lock                   up to 256 stripes, in ascending order: names and children of a directory
//!     bucket seq               in ascending order: an index bucket
//!       record seq             one record
//!     in_lookups               names in lookup
//!     clock                    candidates for eviction
//!     pool lock                free slots, what waits for a grace period
//!   index growing → bucket seq
//! ```
//!
//! No lock is held while fills, search checks and drops of handles run (G7). Walks take none (G3).

use crate::hash::name::{Hasher, Name};
use crate::lookup::in_lookup::InLookups;
use crate::lookup::path_cache::PathCache;
use crate::lookup::validity::Validity;
use crate::reclaim::clock::{Clock, Mark, Marks};
use crate::reclaim::epoch::Epoch;
use crate::reclaim::pool::Memory;
use crate::table::chunks::Chunks;
use crate::table::dentry::{Dentry, Released};
use crate::table::id::Id;
use crate::table::index::Index;
use crate::table::record::{Count, Flags, Record, Rewrite, order_reads};
use crate::{Child, DentryId, Handle, PrefetchMode};
use dentree_sync::atomic::AtomicU64;
use dentree_sync::{Mutex, MutexGuard};

/// At most; a smaller cache has one for [`ENTRIES_A_STRIPE`] entries of its budget.
const STRIPES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };
const ENTRIES_A_STRIPE: usize = 16;
/// Part of the entries that may be negative, unless set.
const NEGATIVE_SHARE: usize = 4;

/// Alone on its cache line.
#[derive(Default)]
#[repr(align(64))]
struct DirLock(Mutex<()>);

pub(crate) const BUDGET_MIN: usize = 64 << 10;

pub(crate) struct Config {
    pub(crate) budget: usize,
    pub(crate) negatives: Option<usize>,
    pub(crate) prefetch: PrefetchMode,
    pub(crate) seed: u64,
}

pub(crate) struct Core<H> {
    pub(crate) records: Chunks<Record>,
    pub(crate) counts: Chunks<Count>,
    pub(crate) dentries: Chunks<Dentry<H>>,
    pub(crate) marks: Marks,
    pub(crate) index: Index,
    pub(crate) paths: PathCache,
    pub(crate) epoch: Epoch,
    pub(crate) hasher: Hasher,
    pub(crate) memory: Memory,
    pub(crate) validity: Validity,
    pub(crate) in_lookups: InLookups,
    pub(crate) prefetch: PrefetchMode,
    pub(crate) clock: Mutex<Clock>,
    /// Parents change only under this, so that two renames cannot make a loop.
    pub(crate) renaming: Mutex<()>,
    /// [immutable] a power of two
    dir_locks: Box<[DirLock]>,
    pub(crate) evicted: AtomicU64,
}

impl<H: Handle> Core<H> {
    pub(crate) fn new(config: Config, root: Child<H>) -> Self {
        let entry = Self::ENTRY + 16;
        let capacity = (config.budget / entry).clamp(64, 1 << 28);
        let negatives = config.negatives.unwrap_or(capacity / NEGATIVE_SHARE);
        let clock = Clock::new(capacity, negatives.min(capacity));
        let paths = PathCache::new(config.budget);
        let stripes = (capacity / ENTRIES_A_STRIPE).clamp(1, STRIPES).next_power_of_two();
        let itself = size_of::<Self>() + stripes * size_of::<DirLock>() + InLookups::BYTES;
        let fixed = itself + clock.bytes() + paths.bytes() + Index::EMPTY;
        // Few in models, so that they see storage grow.
        let foreseen = if cfg!(any(loom, shuttle)) { 6 } else { capacity + 64 };
        let slots = u32::try_from(foreseen).unwrap_or(u32::MAX);
        let core = Core {
            records: Chunks::new(slots),
            counts: Chunks::new(slots),
            dentries: Chunks::new(slots),
            marks: Marks::new(slots),
            index: Index::new(foreseen),
            paths,
            epoch: Epoch::new(),
            hasher: Hasher::new(config.seed),
            memory: Memory::new(config.budget, fixed),
            validity: Validity::default(),
            in_lookups: InLookups::new(),
            prefetch: config.prefetch,
            clock: Mutex::new(clock),
            renaming: Mutex::default(),
            dir_locks: (0..stripes).map(|_| DirLock::default()).collect(),
            evicted: AtomicU64::new(0),
        };
        core.make_root(root);
        core
    }

    /// The root is its own parent, in no bucket, and pinned.
    fn make_root(&self, root: Child<H>) {
        let id = self.allocate(0);
        self.settle_overflow(0);
        debug_assert_eq!(id, Id::ROOT);
        let word = root.handle.to_word();
        let rewrite = self.rewrite(id);
        rewrite.inline_handle(word.unwrap_or(0));
        rewrite.place(id, &Name::NONE);
        let flags = if root.search { Flags::SEARCH } else { 0 }
            | if word.is_some() { Flags::INLINE_HANDLE } else { 0 };
        rewrite.flags(Flags::linked(Some(root.kind), flags, 0));
        drop(rewrite);
        // SAFETY: no other thread has the cache yet.
        unsafe { self.dentry(id).fill(Some(root.handle), None) };
        let _has_users = self.dentry(id).revive(false, false);
        self.dentry(id).pin();
    }

    #[inline(always)]
    pub(crate) fn record(&self, id: Id) -> &Record {
        self.records.get(id.0)
    }

    #[inline(always)]
    pub(crate) fn dentry(&self, id: Id) -> &Dentry<H> {
        self.dentries.get(id.0)
    }

    #[inline(always)]
    pub(crate) fn mark(&self, id: Id) -> Mark<'_> {
        self.marks.of(id)
    }

    pub(crate) fn rewrite(&self, id: Id) -> Rewrite<'_> {
        self.record(id).rewrite(self.counts.get(id.0))
    }

    fn stripe(&self, dir: Id) -> usize {
        // Neighbouring numbers are often parent and child, which should not share a stripe.
        (dir.0.wrapping_mul(0x9e37_79b9) >> 24) as usize & (self.dir_locks.len() - 1)
    }

    pub(crate) fn lock_dir(&self, dir: Id) -> MutexGuard<'_, ()> {
        self.dir_locks[self.stripe(dir)].0.lock()
    }

    /// Locks each stripe once, in order.
    pub(crate) fn lock_dirs(&self, a: Id, b: Id) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (low, high) = (self.stripe(a).min(self.stripe(b)), self.stripe(a).max(self.stripe(b)));
        let first = self.dir_locks[low].0.lock();
        (first, (low != high).then(|| self.dir_locks[high].0.lock()))
    }

    #[inline]
    pub(crate) fn count_held(&self, change: i64) {
        self.epoch.thread_slot().counters.held.add(change as u64);
    }

    pub(crate) fn hold_by_id(&self, id: DentryId) -> bool {
        let _pin = self.epoch.enter();
        if id.id() == Id::NONE || !self.memory.has_slot(id.id()) {
            return false;
        }
        // A negative entry's id is never given out, only made up.
        let record = self.record(id.id());
        self.hold_if(id.id(), || record.generation() == id.generation() && !record.flags().is_negative())
    }

    /// Whether the entry is cached under its name. A reused slot's generation changes before its
    /// flags.
    pub(crate) fn is_linked(&self, id: DentryId) -> bool {
        if id.id() == Id::NONE || !self.memory.has_slot(id.id()) {
            return false;
        }
        let (flags, generation) = self.record(id.id()).flags_and_generation();
        flags.is_linked() && generation == id.generation()
    }

    /// Takes a reference to a held entry's parent.
    pub(crate) fn hold_parent(&self, id: Id) -> Id {
        let _pin = self.epoch.enter();
        loop {
            // A child pins its parent, which is thus alive and positive. If a rename came in
            // between, it may be anything.
            let parent = self.record(id).parent();
            if self.hold_if(parent, || self.record(id).parent() == parent) {
                return parent;
            }
        }
    }

    /// Takes a reference to an entry found without a lock, if `is_it` confirms afterwards that it
    /// still is that entry: unless it is held it may change in place (`mutate/negative.rs`).
    #[inline]
    pub(crate) fn hold_if(&self, id: Id, is_it: impl FnOnce() -> bool) -> bool {
        if !self.hold(id) {
            return false;
        }
        order_reads();
        let is_it = is_it();
        if !is_it {
            self.release(id);
        }
        is_it
    }

    /// Takes a reference, unless the entry is dead. Not counted for the root, as every walk would
    /// write that line: with the count, two threads that ask for the root before each walk do 1.35
    /// to 1.45 times as much as one.
    #[inline]
    pub(crate) fn hold(&self, id: Id) -> bool {
        if id == Id::ROOT {
            return true;
        }
        match self.dentry(id).hold() {
            Some(first) => {
                if first {
                    self.count_held(1);
                }
                true
            }
            None => {
                self.release(id);
                false
            }
        }
    }

    pub(crate) fn hold_again(&self, id: Id) {
        if id != Id::ROOT {
            self.dentry(id).hold_again();
        }
    }

    #[inline]
    pub(crate) fn release(&self, id: Id) {
        if id == Id::ROOT {
            return;
        }
        match self.dentry(id).release() {
            Released::Held => return,
            Released::Unused => {}
            Released::Dead => self.retire_entry(id),
        }
        self.count_held(-1);
        if self.memory.is_over() {
            self.trim();
        }
    }

    /// Retires a dead entry, and the detached directories above that it was the last to pin.
    pub(crate) fn retire_entry(&self, mut id: Id) {
        let mut is_time = false;
        loop {
            let (record, dentry) = (self.record(id), self.dentry(id));
            let (parent, flags) = (record.parent(), record.flags());
            if flags.is_negative() {
                self.memory.negatives.sub(1);
            }
            if flags.is_directory() {
                self.validity.end_detached();
            }
            dentry.retire();
            record.next_generation();
            self.mark(id).set_free();
            is_time |= self.retire(id);
            if !self.dentry(parent).unpin() {
                break;
            }
            id = parent;
        }
        if is_time {
            self.reclaim();
        }
    }

    #[inline]
    pub(crate) fn count_change(&self) {
        self.epoch.thread_slot().counters.changes.add(1);
    }

    /// Under the lock in which fills of this directory are inserted, so that none grants search
    /// again.
    pub(crate) fn set_search(&self, dir: Id, search: bool) {
        let _above = self.lock_parent(dir);
        if !search {
            self.validity.revoke_search();
        }
        let (set, clear) = if search { (Flags::SEARCH, 0) } else { (0, Flags::SEARCH) };
        self.rewrite(dir).change_flags(set, clear);
    }

    pub(crate) fn is_complete(&self, dir: Id) -> bool {
        let record = self.record(dir);
        record.flags().has(Flags::COMPLETE) && self.is_in_tree(dir)
    }
}

impl<H> Drop for Core<H> {
    fn drop(&mut self) {
        // Live entries and those in limbo own handles and long names. A freed slot has no kind.
        let fresh = self.memory.high_water();
        for id in 1..fresh {
            let positive = !self.records.get(id).flags().is_negative();
            // SAFETY: `&mut self`: no other thread reaches any slot. A kind is set after the handle
            // and cleared with it.
            drop(unsafe { self.dentries.get(id).clear(positive) });
        }
    }
}
