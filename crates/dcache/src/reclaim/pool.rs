//! Slots and bytes: which entries are free, which wait for their grace period, and what all of it
//! weighs.
//!
//! | field | guard |
//! |---|---|
//! | `free`, `limbo`, `fresh` | [pool lock], a leaf |
//! | `used`, `live`, … | single words, moved by threads that allocate or free |
//!
//! An allocation writes the lock, `free` or `fresh`, `live` and `used`: they lie on one cache line
//! ([`Stock`]), which another thread that allocates has to hand over once, not for each of them.
//! What is only read, or seldom written, lies elsewhere.
//!
//! Free slots are chained through their dentries, so a free list takes no memory. Handles are
//! dropped outside of every lock and pin (G7).

use crate::table::dentry::LongName;
use crate::table::id::Id;
use dentree_sync::Mutex;
use dentree_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::collections::VecDeque;

/// The fewest retired things worth a `membarrier`, which interrupts every processor (2 to 10 µs).
const LIMBO_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// The most that wait for each other before a grace period is looked for.
const LIMBO_MAX: usize = 4096;
/// Of all entries that the budget holds, this part may wait for a grace period: a sixty-fourth.
const LIMBO_SHARE: usize = 64;
/// Bytes of an entry, about.
const TYPICAL: usize = 128;

/// [pool lock]
pub(crate) struct Pool {
    pub(crate) free: Id,
    pub(crate) limbo: VecDeque<(u64, Retired)>,
    /// As soon as `limbo` is that long a grace period is looked for.
    pub(crate) attempt_at: u32,
}

/// Something that walks may still be reading.
pub(crate) enum Retired {
    Entry(Id),
    LongName(LongName),
}

/// What every allocation writes.
#[repr(align(128))]
pub(crate) struct Stock {
    pub(crate) pool: Mutex<Pool>,
    /// [pool lock] to write: one more than the highest number ever given to a slot.
    pub(crate) fresh: AtomicU32,
    /// Slots in use, those in limbo included.
    pub(crate) live: AtomicU32,
    /// Bytes.
    pub(crate) used: AtomicUsize,
}

/// Apple's processors have lines of 128 bytes, and its mutexes take two words.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    size_of::<Mutex<Pool>>() + 2 * size_of::<AtomicU32>() + size_of::<AtomicUsize>()
        <= if cfg!(target_vendor = "apple") { 128 } else { 64 }
);

/// What the cache weighs, in bytes, and what it may; and its slots.
pub(crate) struct Memory {
    pub(crate) stock: Stock,
    /// A value that `Stock::fresh` has had: most ids that are asked for are older, and no line of
    /// those that are written is read for them.
    pub(crate) seen: AtomicU32,
    pub(crate) budget: AtomicUsize,
    pub(crate) long_names: AtomicUsize,
    pub(crate) negatives: AtomicUsize,
    /// [immutable] Retired things worth a look for a grace period.
    pub(crate) limbo: usize,
    /// Held entries have driven `used` over the budget.
    pub(crate) over: AtomicBool,
}

impl Memory {
    /// A budget of which `fixed` bytes are gone from the start.
    pub(crate) fn new(budget: usize, fixed: usize) -> Self {
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
        // Acquire, and a release below: a thread that sees the number may look at the slot.
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
    pub(crate) fn add_long_names(&self, bytes: usize) {
        if bytes > 0 {
            self.long_names.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn drop_long_names(&self, bytes: usize) {
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
    pub(crate) fn take_over_budget(&self, bytes: usize) {
        self.stock.used.fetch_add(bytes, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.stock.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether the cache outgrew its budget and was not trimmed since.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A length as the pool keeps it.
pub(crate) fn saturating(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// What a long name takes beside its entry: its bytes, the box around them, and the allocator's
/// headers.
pub(crate) fn long_name_bytes(len: usize) -> usize {
    if len > crate::hash::name::INLINE { len + 48 } else { 0 }
}
