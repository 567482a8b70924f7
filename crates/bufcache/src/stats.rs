//! Statistics.

use std::ops::AddAssign;

/// Events since the cache was created, and its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks found in memory.
    pub hits: u64,
    /// Blocks found in the thread's own copies, without a shard. Part of `hits`.
    pub recent_hits: u64,
    /// Lookups in a shard's table: one for each read that is not a recent hit.
    pub looks: u64,
    /// Blocks not found, and read.
    pub misses: u64,
    /// Waits for a read of another thread.
    pub waits: u64,
    /// Misses not cached because all blocks were held or pinned. Part of `misses`.
    pub uncached: u64,
    /// Blocks evicted for others.
    pub evictions: u64,
    /// Requests to the device. A run that fails is read again block by block.
    pub device_reads: u64,
    /// Blocks read ahead. Those neither used nor wasted are in memory.
    pub ahead_read: u64,
    /// First uses of blocks that were read ahead. Part of `hits` or `waits`.
    pub ahead_used: u64,
    /// Blocks read ahead that were evicted before a use, or could not be read.
    pub ahead_wasted: u64,
    /// Changes of blocks.
    pub changes: u64,
    /// Changes that copied the block, as its version was held. Part of `changes`.
    pub copies: u64,
    /// Bytes of blocks in the cache, including those being read.
    pub resident_bytes: u64,
    /// The part of `resident_bytes` that users hold, which cannot be evicted.
    pub held_bytes: u64,
    /// The part of `resident_bytes` that is changed and not written, which cannot be evicted.
    pub pinned_bytes: u64,
    /// The part of `resident_bytes` beyond the budget: blocks that are pinned or being read.
    pub over_budget_bytes: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.recent_hits += other.recent_hits;
        self.looks += other.looks;
        self.misses += other.misses;
        self.waits += other.waits;
        self.uncached += other.uncached;
        self.evictions += other.evictions;
        self.device_reads += other.device_reads;
        self.ahead_read += other.ahead_read;
        self.ahead_used += other.ahead_used;
        self.ahead_wasted += other.ahead_wasted;
        self.changes += other.changes;
        self.copies += other.copies;
        self.resident_bytes += other.resident_bytes;
        self.held_bytes += other.held_bytes;
        self.pinned_bytes += other.pinned_bytes;
        self.over_budget_bytes += other.over_budget_bytes;
    }
}
