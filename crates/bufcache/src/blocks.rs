//! The blocks in memory, by shard.

use std::hash::BuildHasher;
use std::sync::Arc;

use dentree_sync::{Mutex, MutexGuard};
use foldhash::fast::RandomState;

use crate::bh_lru::{BhLru, BhLruSize};
use crate::feedback::Feedback;
use crate::shard::{AheadSlot, Found, SLOT_OVERHEAD, Shard};
use crate::stats::Stats;

/// A cache without its device, which submitted reads share without keeping the device open.
pub(crate) struct Blocks {
    pub(crate) block_size: usize,
    pub(crate) capacity: usize,
    hasher: RandomState,
    pub(crate) bh_lru: BhLru,
    pub(crate) feedback: Arc<Feedback>,
    /// A power of two.
    shards: Box<[Mutex<Shard>]>,
}

/// With fewer blocks in a shard, chance would fill one while others have room.
const MIN_SHARD_BLOCKS: usize = 64;
const MAX_SHARDS: usize = 64;

impl Blocks {
    pub(crate) fn new(block_size: usize, budget_bytes: usize, bh_lru_size: BhLruSize) -> Blocks {
        let capacity = budget_bytes / block_size.saturating_add(SLOT_OVERHEAD);
        let shards = (capacity / MIN_SHARD_BLOCKS + 1).next_power_of_two() / 2;
        let shards = shards.clamp(1, MAX_SHARDS);
        let hasher = RandomState::default();
        let bh_lru = BhLru::new(bh_lru_size, capacity);
        let feedback = Arc::new(Feedback::default());
        let make = |_| {
            let feedback = Arc::clone(&feedback);
            Mutex::new(Shard::new(capacity / shards, hasher.clone(), feedback))
        };
        Blocks { block_size, capacity, shards: (0..shards).map(make).collect(), hasher, bh_lru, feedback }
    }

    #[inline]
    pub(crate) fn hash(&self, block: u64) -> u64 {
        self.hasher.hash_one(block)
    }

    /// The shard's table uses the lowest bits and the seven highest of the hash.
    #[inline]
    pub(crate) fn shard_for(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }

    pub(crate) fn shard_of(&self, block: u64) -> MutexGuard<'_, Shard> {
        self.shard_for(self.hash(block)).lock()
    }

    #[inline]
    pub(crate) fn find_or_lock(&self, block: u64, to_copy: bool) -> Found {
        let hash = self.hash(block);
        self.shard_for(hash).lock().find_or_lock(block, hash, to_copy)
    }

    pub(crate) fn lock_ahead(&self, block: u64) -> AheadSlot {
        let hash = self.hash(block);
        self.shard_for(hash).lock().lock_ahead(block, hash)
    }

    pub(crate) fn shrink(&self, percent: usize) -> usize {
        self.shards.iter().map(|shard| shard.lock().shrink(percent)).sum()
    }

    pub(crate) fn stats(&self) -> Stats {
        let recent_hits = self.bh_lru.hits();
        let mut sum = Stats { hits: recent_hits, recent_hits, ..Stats::default() };
        for shard in &self.shards {
            sum += shard.lock().stats(self.block_size);
        }
        sum
    }
}
