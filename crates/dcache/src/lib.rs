//! A directory entry cache that is looked up without locks.
//!
//! It sits between callers that have paths and a file system that has directories: it remembers
//! which name in which directory means which inode, and which names do not exist. It knows no file
//! system; the inode handle is any type that can be cloned and compared.
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
//!         None => Fill::Negative { ttl: None },
//!     })
//! };
//!
//! let cache = Dcache::builder().memory(1 << 20).build(Child::directory(1_u64));
//! let etc = cache.lookup_or_fill(&cache.root(), b"etc", || ask(1, b"etc"))?.expect("there");
//! let hosts = cache.lookup_or_fill(&etc, b"hosts", || ask(2, b"hosts"))?.expect("there");
//! assert_eq!((*hosts.handle(), hosts.name()), (3, b"hosts".to_vec()));
//!
//! // From now on the whole path is one walk: no lock, no question.
//! let walk = cache.walk(&cache.root(), b"etc/hosts", WalkOptions::default(), |_| true);
//! assert!(matches!(walk, Walk::Found(found) if found == hosts));
//! assert_eq!(cache.stats().fills, 2);
//!
//! // Where the cache cannot go on, it says how far it came.
//! let walk = cache.walk(&cache.root(), b"etc/passwd", WalkOptions::default(), |_| true);
//! assert!(matches!(walk, Walk::Stopped(Stopped { rest: 4, why: Reason::Miss, .. })));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What it promises
//!
//! - **G1** A walk that returns an entry saw, at one instant during the call, every component
//!   linked as the path says.
//! - **G2** A walk that returns [`Walk::Negative`] saw such an instant for the missing name. A name
//!   that is replaced, by [`rename`](Dcache::rename), [`create`](Dcache::create) or a completion,
//!   is there at every instant.
//! - **G3** No walk waits for another thread.
//! - **G4** A walk writes no line that other threads read, except to set a clear "used" bit, to
//!   insert a path into the [path cache](#path-cache), and, at the end, to move one reference
//!   count; [`find`](Dcache::find) not even that.
//! - **G5** Memory never exceeds the [budget](Builder::memory) plus what is held.
//! - **G6** An entry that is held is never reused; a stale [`DentryId`] finds nothing.
//! - **G7** Handles are dropped outside of all locks.
//!
//! # What it costs
//!
//! A step (directory and name in, inode out) reads two dependent cache lines: the bucket and the
//! record. A walk is a sequence of steps, whose waits for memory overlap in part. An entry with a
//! name of up to 32 bytes takes 64 bytes for what walks read, 40 for what is written, 4 for its
//! count apart, 1 for eviction and 8 to 16 of index: about 124 in all. An empty cache of the
//! default size takes 2.3 MB of address space and 42 KB of memory; the rest comes with entries.
//!
//! # Data
//!
//! ```text
//!  index            records (64 bytes)                       dentries (40 bytes)
//! ┌─────────────┐  ┌──────────────────────────────────────┐  ┌─────────────────────────────────────┐
//! │ 11 tags     │  │ seq · flags · parent · hash          │  │ references · long name · handle     │
//! │ 11 numbers ─┼─►│ handle · generation · deadline       │  │ first child · siblings · changes    │
//! │ seq · next  │  │ 32 bytes of name                     │  │ same number, written part           │
//! └─────────────┘  └──────────────────────────────────────┘  └─────────────────────────────────────┘
//! ```
//!
//! Records and dentries lie under one dense number in storage that never moves and keeps its type,
//! so a reader may follow a stale number and find out. What may still be read by a walk is reused
//! only after a grace period (`reclaim/epoch.rs`). The index grows by splitting one bucket at a
//! time (`table/index.rs`).
//!
//! A bucket follows from the number of the directory and the name. A directory keeps its number
//! when it is renamed, so a rename moves one record and none below it (`hash/name.rs`).
//!
//! ## Path cache
//!
//! What a walk of several names has found is inserted under a keyed digest of the whole path, with
//! the sum of the sequence counts of all records on it. The next walk of that path compares the
//! sum; any change of anything on the way shows in it. Two paths share a digest with a probability
//! of at most 2^-64. `lookup/path_cache.rs` argues why a hit may be believed.
//!
//! # Locks
//!
//! `core.rs` draws the lock order; each file tells its own part. Walks take no lock. Names and
//! children of a directory change under its lock (up to 256 stripes). A bucket and a record have a
//! sequence count each, whose odd value is the writers' lock. The file system is asked under no
//! lock at all.
//!
//! # How to see what it does
//!
//! [`Dcache::stats`] counts walks, hits by kind, stops by [`Reason`], retries, questions, waits and
//! memory. Counting costs a walk no shared line.
//!
//! # Limits
//!
//! - Names are bytes: 1 to 255, without slash and NUL. Others are passed on and not cached.
//! - An id's generation and a record's sequence count have 32 bits: a reader that sleeps through
//!   2³¹ changes may be fooled.
//! - Aliases of one inode are not chained (the kernel's `d_alias`): the chain would cost a random
//!   line at every insertion. A change names a directory and a name. What an inode has besides is
//!   under its handle, the same for all of its names, so no change of an inode has to look for
//!   them.
//! - Deadlines have a grain of 10 ms.
//! - A thread that uses a cache costs it a slot of about half a kilobyte, beside the budget.

mod builder;
mod core;
mod counters;
mod dcache;
mod dentry_ref;
mod ends;
mod expiry;
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
