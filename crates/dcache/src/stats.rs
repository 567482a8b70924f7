//! What the cache has done and what it weighs.

use crate::Reason;

/// Counts since the cache was built, and its size now. Threads count for themselves, so that
/// counting costs no shared line; a sum taken while they run is not of one instant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Walks begun.
    pub walks: u64,
    /// Components that were resolved without a lock and without asking.
    pub components: u64,
    /// Walks that ended at an entry.
    pub found: u64,
    /// Walks that ended at a negative entry.
    pub negative: u64,
    /// Walks that ended at a name which a complete directory does not have.
    pub complete_negative: u64,
    /// Walks that stopped, by reason, in the order of [`Reason::ALL`].
    pub stopped: [u64; Reason::COUNT],
    /// Attempts that writers made void.
    pub retries: u64,
    /// Directories whose search permission had to be asked for.
    pub searches_asked: u64,
    /// Walks of batches whose lines were prefetched.
    pub prefetched: u64,
    /// Walks that the path cache ended.
    pub cached_paths: u64,
    /// Names that were found only under their directory's lock.
    pub locked_hits: u64,
    /// Questions to the file system.
    pub fills: u64,
    /// Waits for another thread's question about the same name.
    pub fill_waits: u64,
    /// Results not kept because the name had changed meanwhile.
    pub fills_overtaken: u64,
    /// Names that were made, removed and renamed, by their owners' word.
    pub changes: u64,
    /// Entries evicted.
    pub evicted: u64,
    /// Entries that someone holds, the root not counted.
    pub held: u64,
    /// Entries in memory, negative ones and those that wait for reuse included.
    pub entries: u64,
    /// Negative entries.
    pub negatives: u64,
    /// What the cache weighs.
    pub memory: MemoryStats,
}

impl Stats {
    /// How many walks stopped for this reason.
    pub fn stopped_for(&self, why: Reason) -> u64 {
        self.stopped[why as usize]
    }
}

/// Bytes in use. Address space is set aside beyond that; the system backs it as it is first used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget.
    pub budget: usize,
    /// All of the following together. More than the budget only by what is held.
    pub used: usize,
    /// Records: what walks read.
    pub records: usize,
    /// Dentries: what is written.
    pub dentries: usize,
    /// Names of more than 32 bytes.
    pub long_names: usize,
    /// The index, the path cache, the lists that eviction keeps, and what an empty cache takes.
    pub index: usize,
}
