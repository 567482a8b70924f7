//! Cached blocks of a device.
//!
//! A [`BufCache`] holds blocks of one size under a budget in bytes. [`get`](BufCache::get) returns
//! a [`Buffer`], a shared handle on the bytes. Threads that miss the same block share one read.
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
//! [unpins](BufCache::unpin) it: the cache writes nothing by itself.
//!
//! Blocks can be [read ahead](BufCache::read_ahead), directly or when another block is
//! [requested](BufCache::get_ahead). Until they are used they take at most a quarter of the cache,
//! and evict nothing that is in use, changed, or recently used.
//!
//! # Data
//! Blocks are spread by hash over shards. A shard is a mutex over an array of slots, a hash table
//! from block to slot, and counters. A slot is vacant, *reading*, or ready with the block's bytes.
//! Two queues choose what is evicted (S3-FIFO, `shard.rs`): a scan that reads each block once does
//! not evict blocks that are read more often.
//!
//! # Who protects what
//! The shard's mutex protects everything in the shard. Bytes that have another holder than the
//! cache are never written again, so buffers need no lock. A *reading* slot belongs to its
//! `BufferLock`: no other thread changes or evicts it. The lock's holder, a thread or a submitted
//! read, reads with no mutex held, publishes under the mutex, then wakes the waiters on the slot's
//! `Pending`, which has a mutex of its own.
//!
//! In front of the shards is the *buffer LRU* ([`BhLruSize`]): per-thread copies of blocks that
//! many threads read and few change ([`get_often`](BufCache::get_often)). Before such a block is
//! changed, dropped or evicted, its copies are invalidated under the shard's mutex (`bh_lru.rs`).
//!
//! Lock order: the mutex of one shard, or of one `Pending`; never two.
//!
//! # Guarantees
//! - *One read.* A block that is being read is not read by another thread. Lookup and locking are
//!   one critical section: of two threads that miss, one locks and the other finds the lock.
//! - *No deadlock.* A thread waits for another's read only after its own reads have ended or were
//!   submitted.
//! - *The requested block first.* It goes to the device before blocks that are read ahead with it.
//! - *No lost wake-up.* A lock that is dropped, even by a panic of the device, vacates its slot and
//!   fails the waiters. A failed read is not cached: the next request reads again. So do waiters
//!   for a block that was read ahead.
//! - *Budget.* Blocks that users hold are never evicted: their memory would not come back. If a
//!   shard is full of them, a block is returned without being cached ([`Stats::uncached`]), and has
//!   a slot only while it is read. Ready blocks exceed the budget ([`Stats::over_budget_bytes`])
//!   only by pinned ones.
//! - *No lost change.* A pinned block is not evicted, whatever the budget. A pin belongs to the
//!   last change: writing an older version does not unpin a newer one.
//! - *No torn read.* A read of a block from the device has its slot, and a change waits for it: no
//!   thread reads a block from the device while a later change of it is written there.
//!
//! Held is `Arc::strong_count > 1`. Under the mutex a count of 1 is final: the cache has the only
//! handle, and to clone that takes the mutex. So changes in place have no other reader.
//!
//! # Performance
//! A hit costs a hash, an uncontended lock, a probe and a reference count: 33 ns with its drop, by
//! `cargo bench -p dentree-bufcache --bench hit_cost`. It allocates nothing. A miss in a
//! full shard reads into the memory of the evicted block.
//!
//! # Known limits
//! A miss in a shard full of held or pinned blocks looks at each of its slots before it gives up.
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
