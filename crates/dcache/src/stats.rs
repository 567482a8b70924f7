//! Statistics of the cache. Counters are per thread: each thread adds to its own slot, readers sum
//! the slots.

use crate::Reason;
use dentree_sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread at a time.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without an atomic read-modify-write, as only the slot's thread writes.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one thread.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            pub(crate) stopped: [Counter; Reason::COUNT],
        }

        /// Counts since the cache was built, and its current size. A sum taken while threads run is
        /// not of one instant.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Walks that stopped, by reason, in the order of [`Reason::ALL`].
            pub stopped: [u64; Reason::COUNT],
            /// Entries evicted.
            pub evicted: u64,
            /// Entries in memory, including negative ones and those awaiting reuse.
            pub entries: u64,
            /// Negative entries.
            pub negatives: u64,
            /// Memory of the cache.
            pub memory: MemoryStats,
        }

        impl Stats {
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
                for (sum, part) in self.stopped.iter_mut().zip(&counters.stopped) {
                    *sum += part.get();
                }
            }
        }
    };
}

counters! {
    /// Walks started, counting each path of a batch.
    walks,
    /// Components resolved without a lock and without a call.
    components,
    /// Walks that ended at an entry.
    found,
    /// Walks that ended at a negative entry.
    negative,
    /// Walks that ended at a name missing in a complete directory.
    complete_negative,
    /// Attempts invalidated by writers.
    retries,
    /// Directories whose search permission was asked of the caller.
    searches_asked,
    /// Walks of batches whose lines were prefetched.
    prefetched,
    /// Walks that the path cache ended.
    cached_paths,
    /// Paths inserted into the path cache.
    inserted_paths,
    /// Names found only under their directory's lock.
    locked_hits,
    /// Lookups in the file system.
    fills,
    /// Waits for another thread's lookup of the same name.
    fill_waits,
    /// Results discarded because the name changed during the lookup.
    fills_overtaken,
    /// Names created, removed and renamed.
    changes,
    /// Referenced entries, without the root. Each thread counts first references minus last ones,
    /// so its part may be negative: the sum wraps.
    held,
}

impl Stats {
    /// Number of walks that stopped for this reason.
    pub fn stopped_for(&self, why: Reason) -> u64 {
        self.stopped[why as usize]
    }
}

/// A reason indexes [`Stats::stopped`].
const _: () = assert!(Reason::Busy as usize + 1 == Reason::COUNT);

/// Bytes in use. More address space is reserved; the system backs it on first use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget.
    pub budget: usize,
    /// Sum of the following. Only referenced entries can make it exceed the budget.
    pub used: usize,
    /// Records, which walks read.
    pub records: usize,
    /// Dentries, which changes write.
    pub dentries: usize,
    /// Names of more than 32 bytes.
    pub long_names: usize,
    /// The index, the path cache, the lists of eviction, and the fixed part.
    pub index: usize,
}
