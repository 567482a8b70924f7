//! The blocks in memory: which shard has which.

use std::hash::BuildHasher;
use std::sync::Arc;
// The number decides nothing that threads meet at: models need not know of it.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;

use crate::claim::Buffer;
use crate::feedback::Feedback;
use crate::recent::{BhLruSize, Recent};
use crate::shard::{Found, SLOT_OVERHEAD, Shard, Soon};
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard, lock};

/// What a cache has of its device. Reads under way share it, so that none of them keeps the device open.
pub(crate) struct Blocks {
    /// Of each cache of the process its own: threads keep copies of blocks of many caches.
    pub(crate) number: u64,
    pub(crate) block_size: usize,
    /// Blocks that the budget has room for.
    pub(crate) capacity: usize,
    hasher: RandomState,
    recent: Arc<Recent>,
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
        let recent = Arc::new(Recent::new(bh_lru_size, capacity));
        let feedback = Arc::new(Feedback::default());
        let make = |_| {
            let (recent, feedback) = (Arc::clone(&recent), Arc::clone(&feedback));
            Mutex::new(Shard::new(capacity / shards, hasher.clone(), recent, feedback))
        };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        Blocks {
            number,
            block_size,
            capacity,
            shards: (0..shards).map(make).collect(),
            hasher,
            recent,
            feedback,
        }
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
        lock(self.shard_for(self.hash(block)))
    }

    /// A block that this processor used lately: the first look of two.
    #[inline]
    pub(crate) fn recent(&self, block: u64) -> Option<Buffer> {
        self.recent.get(block)
    }

    /// A block by its shard: the second look, and the only one that one of a run gets.
    #[inline]
    pub(crate) fn find_or_claim(&self, block: u64, is_single: bool) -> Found {
        let hash = self.hash(block);
        lock(self.shard_for(hash)).find_or_claim(block, hash, is_single)
    }

    pub(crate) fn claim_ahead(&self, block: u64) -> Soon {
        let hash = self.hash(block);
        lock(self.shard_for(hash)).claim_ahead(block, hash)
    }

    pub(crate) fn stats(&self) -> Stats {
        let recent_hits = self.recent.hits();
        let mut sum = Stats { hits: recent_hits, recent_hits, ..Stats::default() };
        for shard in &self.shards {
            sum += lock(shard).stats(self.block_size);
        }
        sum
    }
}
