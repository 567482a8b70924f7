//! Slots and bytes: free entries, entries that wait for a grace period, and the memory of all.
//!
//! | field | guard |
//! |---|---|
//! | `free`, `limbo`, `fresh` | [pool lock], a leaf |
//! | `used`, `live`, … | single words, changed by threads that allocate or free |
//!
//! An allocation writes the lock, `free` or `fresh`, `live` and `used`. They share one cache line
//! ([`Stock`]), so it moves between allocating threads once. Free slots are chained through their
//! dentries. Handles are dropped outside of every lock and pin (G7).

use crate::table::dentry::LongName;
use crate::table::id::Id;
use dentree_sync::Mutex;
use dentree_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::collections::VecDeque;

/// Fewest retired objects worth a `membarrier`, which interrupts every processor (2 to 10 µs).
const LIMBO_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// Most retired objects before a grace period is tried.
const LIMBO_MAX: usize = 4096;
/// The part of the budget's entries that may wait for a grace period.
const LIMBO_SHARE: usize = 64;
/// Approximate bytes of an entry.
const TYPICAL: usize = 128;

/// [pool lock]
pub(crate) struct Pool {
    pub(crate) free: Id,
    pub(crate) limbo: VecDeque<(u64, Retired)>,
    /// Length of `limbo` at which a grace period is tried.
    pub(crate) attempt_at: u32,
}

pub(crate) enum Retired {
    Entry(Id),
    LongName(LongName),
}

/// A sum that threads change.
#[derive(Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes nothing for nothing, such as the bytes of a short name.
    pub(crate) fn add(&self, n: usize) {
        if n > 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn sub(&self, n: usize) {
        if n > 0 {
            self.0.fetch_sub(n, Ordering::Relaxed);
        }
    }
}

#[repr(align(128))]
pub(crate) struct Stock {
    pub(crate) pool: Mutex<Pool>,
    /// One more than the highest number ever given out. [pool lock] to write
    pub(crate) fresh: AtomicU32,
    /// Slots in use, including those in limbo.
    pub(crate) live: AtomicU32,
    pub(crate) used: AtomicUsize,
}

/// Apple's processors have lines of 128 bytes, and its mutexes two words.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    size_of::<Mutex<Pool>>() + 2 * size_of::<AtomicU32>() + size_of::<AtomicUsize>()
        <= if cfg!(target_vendor = "apple") { 128 } else { 64 }
);

pub(crate) struct Memory {
    pub(crate) stock: Stock,
    /// An older value of `Stock::fresh`, which covers most ids without reading a line that is often
    /// written.
    pub(crate) seen: AtomicU32,
    pub(crate) budget: AtomicUsize,
    /// Bytes.
    pub(crate) long_names: Gauge,
    pub(crate) negatives: Gauge,
    /// [immutable] retired objects worth a try for a grace period
    pub(crate) limbo: usize,
    /// `used` exceeds the budget by held entries.
    pub(crate) over: AtomicBool,
}

impl Memory {
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
            long_names: Gauge::default(),
            negatives: Gauge::default(),
            limbo,
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// Entries over it stay until they are evicted.
    pub(crate) fn set_budget(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.stock.used.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> usize {
        self.stock.live.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn high_water(&self) -> u32 {
        self.stock.fresh.load(Ordering::Acquire)
    }

    pub(crate) fn has_slot(&self, id: Id) -> bool {
        // Acquire, and Release below: a thread that sees the number may read the slot. Pairs with
        // `slot`.
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

    /// Fails if the budget is used up.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.budget());
        self.stock.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Exceeds the budget, as all entries are held.
    pub(crate) fn take_over_budget(&self, bytes: usize) {
        self.stock.used.fetch_add(bytes, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.stock.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

pub(crate) fn saturating(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Bytes of a long name beside its entry: the name, its box, and the allocator's headers.
pub(crate) fn long_name_bytes(len: usize) -> usize {
    if len > crate::hash::name::INLINE { len + 48 } else { 0 }
}
