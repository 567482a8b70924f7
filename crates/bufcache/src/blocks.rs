//! The blocks in memory: which shard has which.

use std::hash::BuildHasher;
use std::sync::Arc;

use dentree_sync::{Mutex, MutexGuard};
use foldhash::fast::RandomState;

use crate::feedback::Feedback;
use crate::recent::{BhLruSize, Recent};
use crate::shard::{Found, SLOT_OVERHEAD, Shard, Soon};
use crate::stats::Stats;

/// What a cache has of its device. Reads under way share it, so that none of them keeps the device open.
pub(crate) struct Blocks {
    pub(crate) block_size: usize,
    /// Blocks that the budget has room for.
    pub(crate) capacity: usize,
    hasher: RandomState,
    pub(crate) recent: Recent,
    pub(crate) feedback: Arc<Feedback>,
    /// A power of two.
    shards: Box<[Mutex<Shard>]>,
}

/// Fewer blocks than this in a shard, and chance would fill one while others have room.
const MIN_SHARD_BLOCKS: usize = 64;
const MAX_SHARDS: usize = 64;

impl Blocks {
    pub(crate) fn new(block_size: usize, budget_bytes: usize, bh_lru_size: BhLruSize) -> Blocks {
        let capacity = budget_bytes / block_size.saturating_add(SLOT_OVERHEAD);
        let shards = (capacity / MIN_SHARD_BLOCKS + 1).next_power_of_two() / 2;
        let shards = shards.clamp(1, MAX_SHARDS);
        let hasher = RandomState::default();
        let recent = Recent::new(bh_lru_size, capacity);
        let feedback = Arc::new(Feedback::default());
        let make = |_| {
            let feedback = Arc::clone(&feedback);
            Mutex::new(Shard::new(capacity / shards, hasher.clone(), feedback))
        };
        Blocks { block_size, capacity, shards: (0..shards).map(make).collect(), hasher, recent, feedback }
    }

    #[inline]
    pub(crate) fn hash(&self, block: u64) -> u64 {
        self.hasher.hash_one(block)
    }

    /// The table inside takes the lowest bits and the seven highest of the hash.
    #[inline]
    pub(crate) fn shard_for(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }

    pub(crate) fn shard_of(&self, block: u64) -> MutexGuard<'_, Shard> {
        self.shard_for(self.hash(block)).lock()
    }

    /// A block by its shard; with `to_copy` also the watch on a version that is marked.
    #[inline]
    pub(crate) fn find_or_claim(&self, block: u64, to_copy: bool) -> Found {
        let hash = self.hash(block);
        self.shard_for(hash).lock().find_or_claim(block, hash, to_copy)
    }

    pub(crate) fn claim_ahead(&self, block: u64) -> Soon {
        let hash = self.hash(block);
        self.shard_for(hash).lock().claim_ahead(block, hash)
    }

    pub(crate) fn stats(&self) -> Stats {
        let recent_hits = self.recent.hits();
        let mut sum = Stats { hits: recent_hits, recent_hits, ..Stats::default() };
        for shard in &self.shards {
            sum += shard.lock().stats(self.block_size);
        }
        sum
    }
}
