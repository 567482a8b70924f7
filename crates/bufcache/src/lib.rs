//! Cached blocks of a device.
//!
//! A [`BufCache`] holds blocks of one size under a budget in bytes. [`get`](BufCache::get) returns a [`Buffer`], a
//! shared handle on the bytes, from memory where they are there and else from the device, once for all who ask.
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
//! A block is immutable: a change ([`update`](BufCache::update), [`create`](BufCache::create)) makes its next
//! *version*, in place where only the cache has the bytes, on a copy where somebody holds them. A changed block is *pinned* by the
//! [`Stamp`] of who changed it, and stays until that one says that it is home ([`unpin`](BufCache::unpin)): the cache
//! writes nothing by itself.
//!
//! Blocks that may be wanted soon are [read ahead](BufCache::read_ahead) without anybody waiting; directly, or when another block is
//! [asked for](BufCache::get_ahead). They take a quarter of the cache at most while nobody has used them, and push out nothing
//! that is in use, changed, or was used lately.
//!
//! # Data
//! Blocks are spread by hash over shards. A shard is a mutex over an array of slots, a hash table from block to slot, and
//! its counters. A slot is vacant, *reading*, or ready with the block's bytes. Two
//! queues say who makes room for others (S3-FIFO, `shard.rs`): a scan that reads each block once does not push out what is read more often.
//!
//! # Who protects what
//! The shard's mutex protects everything in the shard. Bytes that anybody but the cache has are never written again, so
//! buffers need no lock. A *reading* slot belongs to the claim on it: nobody else changes or evicts
//! it. The claim's holder, which is a thread or a read that was submitted to the device, reads with no lock held, then publishes (under
//! the mutex) and then wakes those who wait on the slot's `Pending`, which has a lock of its own.
//!
//! In front of the shards is the *buffer LRU* ([`BhLruSize`]): what all threads read and few change ([`get_often`](BufCache::get_often)) each reads
//! from a copy of its own. Before such a block is changed, dropped or evicted its copies are told, under the shard's mutex; `recent.rs` argues that.
//!
//! Lock order: one shard's mutex, or one `Pending`'s alone; never two.
//!
//! # Guarantees
//! - *One read.* A block that is reading is not read by another thread. Both look and claim happen in one critical
//!   section, so of two threads that miss, one claims and the other finds the claim.
//! - *No deadlock.* A thread waits for the reads of others only when it has ended its own or submitted them: whoever is waited
//!   for is reading, not waiting.
//! - *The wanted block first.* A block that is waited for goes to the device before those that are read ahead on its account.
//! - *No lost answer.* A claim that is dropped, also by a panic of the device, vacates its slot and fails its waiters.
//!   A failed read is not kept: the next one who asks reads again. So do those who wait for a block that was read ahead.
//! - *Budget.* Blocks that users hold are never evicted: their memory would not come back. Where a shard is full of such, a
//!   block is handed out without being kept ([`Stats::uncached`]), and counts with what users hold; only while it is
//!   read does it have a slot. Ready blocks exceed the budget ([`Stats::over_budget_bytes`]) only where pinned ones do.
//! - *No lost change.* A pinned block is not evicted, whatever the budget. A pin is the stamp of the last change: that the
//!   home of an older version has been written does not unpin a newer one.
//! - *No torn read.* Whoever reads a block from the device has its slot, and a change waits for the end of that: nobody
//!   reads a home while a change that was made since is written to it.
//!
//! Held is `Arc::strong_count > 1`. Read under the mutex that is final when it says 1: the cache's is the only
//! handle, and to clone that one takes the mutex. So what is changed in place is seen by nobody else.
//!
//! # Performance
//! A hit costs a hash, an uncontended lock, a probe and a reference count: 33 ns with its drop, by
//! `cargo run --release -p dentree-bufcache --example hit_cost`. It allocates nothing. A miss in a full shard reads
//! into the memory of the block that it evicts.
//!
//! # Known limits
//! A miss in a shard full of held or pinned blocks looks at each of its slots before it gives up.
#![forbid(unsafe_code)]

mod ahead;
mod blocks;
mod buffer;
mod cache;
mod claim;
mod error;
mod feedback;
mod pending;
mod queues;
mod recent;
mod shard;
mod stats;

pub use ahead::{First, Runs};
pub use buffer::Buffer;
pub use cache::BufCache;
pub use error::ReadError;
pub use feedback::AheadOutcome;
pub use recent::BhLruSize;
pub use shard::{Changed, Stamp};
pub use stats::Stats;
