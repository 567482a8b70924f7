//! Statistics of the cache.

use crate::Reason;

/// Counts since the cache was built, and its current size. Counters are per thread, to avoid shared
/// cache lines; a sum taken while threads run is not of one instant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Walks started.
    pub walks: u64,
    /// Components resolved without a lock and without a call.
    pub components: u64,
    /// Walks that ended at an entry.
    pub found: u64,
    /// Walks that ended at a negative entry.
    pub negative: u64,
    /// Walks that ended at a name missing in a complete directory.
    pub complete_negative: u64,
    /// Walks that stopped, by reason, in the order of [`Reason::ALL`].
    pub stopped: [u64; Reason::COUNT],
    /// Attempts invalidated by writers.
    pub retries: u64,
    /// Directories whose search permission was asked of the caller.
    pub searches_asked: u64,
    /// Walks of batches whose lines were prefetched.
    pub prefetched: u64,
    /// Walks that the path cache ended.
    pub cached_paths: u64,
    /// Names found only under their directory's lock.
    pub locked_hits: u64,
    /// Lookups in the file system.
    pub fills: u64,
    /// Waits for another thread's lookup of the same name.
    pub fill_waits: u64,
    /// Results discarded because the name changed during the lookup.
    pub fills_overtaken: u64,
    /// Names created, removed and renamed.
    pub changes: u64,
    /// Entries evicted.
    pub evicted: u64,
    /// Referenced entries, without the root.
    pub held: u64,
    /// Entries in memory, including negative ones and those awaiting reuse.
    pub entries: u64,
    /// Negative entries.
    pub negatives: u64,
    /// Memory of the cache.
    pub memory: MemoryStats,
}

impl Stats {
    /// Number of walks that stopped for this reason.
    pub fn stopped_for(&self, why: Reason) -> u64 {
        self.stopped[why as usize]
    }
}

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
