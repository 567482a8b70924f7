//! What a cache has done.

use std::ops::AddAssign;

/// What a cache has done since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks found in memory.
    pub hits: u64,
    /// Those that the thread had a copy of, which asked no shard. Part of `hits`.
    pub recent_hits: u64,
    /// Looks into a shard's table by those who read a block: one for each that is not a recent hit.
    pub looks: u64,
    /// Blocks not found, and read for the one who asked.
    pub misses: u64,
    /// Blocks found to be read by another thread, and waited for.
    pub waits: u64,
    /// Misses whose block was not kept, because all that could make room for it was held or pinned. Part of `misses`.
    pub uncached: u64,
    /// Blocks thrown out for others.
    pub evictions: u64,
    /// Requests to the device, of one block or a run. A run that fails is read again block by block.
    pub device_reads: u64,
    /// Blocks read ahead of being asked for. Those that are neither used nor wasted wait in memory.
    pub ahead_read: u64,
    /// Blocks asked for that had been read ahead. Part of `hits` or `waits`.
    pub ahead_used: u64,
    /// Blocks read ahead that were thrown out before anybody asked for them, or could not be read.
    pub ahead_wasted: u64,
    /// Changes of blocks.
    pub changes: u64,
    /// Changes that copied the block, because somebody held the version before. Part of `changes`.
    pub copies: u64,
    /// Bytes of blocks in the cache, with those being read.
    pub resident_bytes: u64,
    /// The part of `resident_bytes` that users hold and that cannot be evicted.
    pub held_bytes: u64,
    /// The part of `resident_bytes` that waits to be written home and that cannot be evicted.
    pub pinned_bytes: u64,
    /// The part of `resident_bytes` that is more than the budget: blocks that are pinned or being read.
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
