//! A directory entry cache that is looked up without locks.
//!
//! It maps (directory, name) to an inode, or to the fact that the name does not exist. It knows no
//! file system: the inode handle is any type that can be cloned and compared.
//!
//! ```
//! use dentree_dcache::{Child, Dcache, Fill, Reason, Stopped, Walk, WalkOptions};
//! use std::collections::HashMap;
//!
//! // A file system: directories by inode number.
//! let disk = HashMap::from([((1, "etc"), 2), ((2, "hosts"), 3)]);
//! let ask = |dir: u64, name: &[u8]| {
//!     let inode = disk.get(&(dir, std::str::from_utf8(name).unwrap()));
//!     Ok::<_, std::io::Error>(match inode {
//!         Some(&3) => Fill::Positive(Child::other(3)),
//!         Some(&dir) => Fill::Positive(Child::directory(dir)),
//!         None => Fill::Negative,
//!     })
//! };
//!
//! let cache = Dcache::builder().memory(1 << 20).build(Child::directory(1_u64));
//! let etc = cache.lookup_or_fill(&cache.root(), b"etc", || ask(1, b"etc"))?.expect("there");
//! let hosts = cache.lookup_or_fill(&etc, b"hosts", || ask(2, b"hosts"))?.expect("there");
//! assert_eq!((*hosts.handle(), hosts.name()), (3, b"hosts".to_vec()));
//!
//! // The whole path is one walk now: no lock, no question.
//! let walk = cache.walk(&cache.root(), b"etc/hosts", WalkOptions::default(), |_| true);
//! assert!(matches!(walk, Walk::Found(found) if found == hosts));
//! assert_eq!(cache.stats().fills, 2);
//!
//! // Where the cache cannot go on, it returns how far it came.
//! let walk = cache.walk(&cache.root(), b"etc/passwd", WalkOptions::default(), |_| true);
//! assert!(matches!(walk, Walk::Stopped(Stopped { rest: 4, why: Reason::Miss, .. })));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Guarantees
//!
//! - **G1** A walk that returns an entry saw, at one instant during the call, every component
//!   linked as the path says.
//! - **G2** A walk that returns [`Walk::Negative`] saw such an instant for the missing name. A name
//!   that is replaced, by [`rename`](Dcache::rename), [`create`](Dcache::create) or a completion,
//!   is there at every instant.
//! - **G3** No walk waits for another thread.
//! - **G4** A walk writes no cache line that other threads read, except to set a clear "used" bit,
//!   to insert a path into the [path cache](#path-cache), and to change one reference count at the
//!   end; [`find`](Dcache::find) changes none.
//! - **G5** Memory never exceeds the [budget](Builder::memory) plus what is held.
//! - **G6** An entry that is held is never reused; a stale [`DentryId`] finds nothing.
//! - **G7** Handles are dropped outside of all locks.
//!
//! # Costs
//!
//! A step (directory and name in, inode out) reads two dependent cache lines: bucket and record.
//! The memory latencies of the steps of a walk overlap in part. An entry with a name of up to 32
//! bytes takes about 124 bytes: 64 of record, 40 of dentry, 4 of count, 1 of clock and 8 to 16 of
//! index. An empty cache of the default size takes 2.3 MB of address space and 42 KB of memory.
//!
//! # Data
//!
//! ```text
//!  index            records (64 bytes)                       dentries (40 bytes)
//! ┌─────────────┐  ┌──────────────────────────────────────┐  ┌─────────────────────────────────────┐
//! │ 11 tags     │  │ seq · flags · parent · hash          │  │ references · long name · handle     │
//! │ 11 numbers ─┼─►│ handle · generation                  │  │ first child · siblings · changes    │
//! │ seq · next  │  │ 32 bytes of name                     │  │ same number, written part           │
//! └─────────────┘  └──────────────────────────────────────┘  └─────────────────────────────────────┘
//! ```
//!
//! Records and dentries share one dense number, in storage that never moves and keeps its type: a
//! reader may follow a stale number and notice. A slot that a walk may still read is reused only
//! after a grace period (`reclaim/epoch.rs`). The index grows by splitting one bucket at a time
//! (`table/index.rs`). A bucket is computed from the directory's number, which a rename keeps, and
//! the name: a rename moves one record and none below it (`hash/name.rs`).
//!
//! ## Path cache
//!
//! A walk of several names is inserted under a keyed digest of the path, with the sum of the
//! sequence counts of its records, in which any change of a component shows. Two paths share a
//! digest with a probability of at most 2^-64. `lookup/path_cache.rs` argues why a hit is valid.
//!
//! # Locks
//!
//! `core.rs` draws the lock order. Names and children of a directory change under its lock, one of
//! up to 256 stripes. Buckets and records have sequence counts, whose odd values are the writers'
//! locks. The file system is called without any lock held.
//!
//! # Statistics
//!
//! [`Dcache::stats`] counts walks, hits by kind, stops by [`Reason`], retries, fills, waits and
//! memory. Counting writes no line that other threads use.
//!
//! # Limits
//!
//! - Names are bytes: 1 to 255, without slash and NUL. Others are passed on and not cached.
//! - An id's generation and a record's sequence count have 32 bits: a reader that sleeps through
//!   2³¹ changes may be fooled.
//! - Aliases of one inode are not chained (the kernel's `d_alias`), which would cost a random line
//!   at every insertion. They share the inode's handle, so a change of the inode need not find
//!   them.
//! - Each thread that uses a cache costs a slot of about half a kilobyte, outside the budget.

mod builder;
mod core;
mod dcache;
mod dentry_ref;
mod ends;
mod hash;
mod lookup;
#[cfg(all(test, loom))]
mod models;
mod mutate;
mod reclaim;
mod stats;
mod table;
mod types;

pub use builder::Builder;
pub use dcache::Completion;
pub use dentry_ref::{Dcache, DentryRef, OwnedDentry};
pub use ends::{Stopped, Walk};
pub use reclaim::heap::release_free_heap;
pub use stats::{MemoryStats, Stats};
pub use types::{Child, DentryId, Fill, Handle, Kind, PrefetchMode, Reason, Seen, WalkOptions};

// The example on the crate's page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
