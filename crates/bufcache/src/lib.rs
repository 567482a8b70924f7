//! Cached blocks of a device.
//!
//! A [`BufCache`] holds blocks of one size under a budget in bytes. [`get`](BufCache::get) returns
//! a [`Buffer`], a shared handle on the bytes.
//!
//! ```
//! use std::sync::Arc;
//! use dentree_blockdev::MemoryDevice;
//! use dentree_bufcache::BufCache;
//!
//! let image = (0..4u8).flat_map(|block| [block; 1024]).collect::<Vec<u8>>();
//! let cache = BufCache::new(Arc::new(MemoryDevice::from(image)), 1024, 1 << 20);
//! assert_eq!(cache.get(3)?[0], 3);
//! assert_eq!(cache.get(3)?[1023], 3);
//! assert_eq!((cache.stats().misses, cache.stats().hits), (1, 1));
//!
//! // Neighbours in one request.
//! let run = cache.get_run(0, 3)?;
//! assert_eq!((run[0][0], run[2][0], cache.stats().device_reads), (0, 2, 2));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A block is immutable: a change ([`update`](BufCache::update), [`create`](BufCache::create))
//! makes its next *version*, in place if only the cache has the bytes, otherwise on a copy. A
//! changed block is *pinned* with a [`PinId`] until the caller has written it and
//! [unpins](BufCache::unpin) it: the cache writes nothing.
//!
//! Blocks can be [read ahead](BufCache::read_ahead), directly or with a
//! [request](BufCache::get_ahead). Until their first use they take at most a quarter of the cache,
//! and evict nothing that is held, pinned, or recently used.
//!
//! # Data
//! A hash spreads blocks over shards. A shard is a mutex over slots, a hash table from block to
//! slot, and counters. A slot is vacant, *reading*, or ready. S3-FIFO chooses what is evicted
//! (`shard.rs`), so a scan does not evict blocks that are read more often.
//!
//! # Who protects what
//! The shard's mutex protects the shard. Bytes with a holder beside the cache are never written, so
//! buffers need no lock. A *reading* slot belongs to its `BufferLock`: no other thread changes or
//! evicts it. The lock's holder, a thread or a submitted read, reads without a mutex, publishes
//! under the shard's, then wakes the waiters on the slot's `Pending`, which has its own.
//!
//! Before the shards comes the *buffer LRU* ([`BhLruSize`]): per-thread copies of blocks that many
//! threads read and few change ([`get_often`](BufCache::get_often)). The end of a version
//! invalidates its copies, under the shard's mutex (`bh_lru.rs`).
//!
//! Lock order: the mutex of one shard, or of one `Pending`; never two.
//!
//! # Guarantees
//! - *One read.* Threads that miss a block share one read. Lookup and locking are one critical
//!   section: of two threads that miss, one locks and the other finds the lock.
//! - *No deadlock.* A thread waits for another's read only after its own reads have ended or were
//!   submitted.
//! - *The requested block first.* It goes to the device before blocks that are read ahead with it.
//! - *No lost wake-up.* A lock that is dropped, even by a panic of the device, vacates its slot and
//!   fails the waiters. A failed read is not cached: the next request reads again. So do waiters
//!   for a block that was read ahead.
//! - *Budget.* Held blocks are never evicted, as that frees no memory. If all blocks of a shard are
//!   held, a block is not cached ([`Stats::uncached`]), and has a slot only while it is read. Ready
//!   blocks exceed the budget ([`Stats::over_budget_bytes`]) only by pinned ones.
//! - *No lost change.* A pinned block is not evicted, whatever the budget. A pin belongs to the
//!   last change: writing an older version does not unpin a newer one.
//! - *No torn read.* A change waits for a read of the block in progress, so no thread reads a block
//!   from the device while a later change of it is written there.
//!
//! Held means `Arc::strong_count > 1`. Under the mutex a count of 1 is final, as only the cache can
//! clone it. So changes in place have no other reader.
//!
//! # Performance
//! A hit costs a hash, an uncontended lock, a probe and a reference count: 33 ns with its drop
//! (`cargo bench -p dentree-bufcache --bench hit_cost`), and allocates nothing. A miss in a full
//! shard reads into the memory of the evicted block.
//!
//! # Known limits
//! A miss in a shard full of held or pinned blocks reads all of its slots.
#![forbid(unsafe_code)]

mod ahead;
mod bh_lru;
mod blocks;
mod buffer;
mod buffer_lock;
mod cache;
mod error;
mod feedback;
mod pending;
mod queues;
mod shard;
mod stats;

pub use ahead::{First, Runs};
pub use bh_lru::BhLruSize;
pub use buffer::Buffer;
pub use cache::BufCache;
pub use error::ReadError;
pub use feedback::AheadOutcome;
pub use shard::{Changed, PinId};
pub use stats::Stats;
