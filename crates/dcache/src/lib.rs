//! A directory entry cache that is looked up without locks.
//!
//! It sits between whoever has paths and whatever has directories: it remembers which name in which directory means
//! which inode, and which names do not exist. It knows no file system; the inode handle is any type that can be
//! cloned and compared.
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
//! - **G1** A walk that returns an entry saw, at one instant during the call, every component linked as the path says.
//! - **G2** A walk that returns [`Walk::Negative`] saw such an instant for the missing name. A name that is replaced, by
//!   [`rename`](Dcache::rename), [`create`](Dcache::create) or a completion, is there at every instant.
//! - **G3** No walk waits for another thread.
//! - **G4** A walk writes no line that other threads read, except to set a clear "used" bit, to note a path that it did not know
//!   ([below](#notes)), and, at the end, to move one reference count; [`find`](Dcache::find) not even that.
//! - **G5** Memory never exceeds the [budget](Builder::memory) plus what is held.
//! - **G6** An entry that is held is never reused; a stale [`DentryId`] finds nothing.
//! - **G7** Handles are dropped outside of all locks.
//!
//! # What it costs
//!
//! A walk costs one cache line of index, and one of records for each component ([sticky seeds](#sticky-seeds)); one more where it ends at a directory, or
//! at a handle that is no [word](Handle::to_word). Where
//! the path was walked before ([notes](#notes)) one line tells all, and each component's sequence count whether it is still so, sixteen of which lie in
//! a line. An entry with a name of up to 32 bytes takes 64 bytes for what walks read, 64 for what is written, 4 for its count apart, 4 for eviction and
//! 8 to 16 of index: about 149 in all. Notes take a thirty-second of the budget at most, as they come.
//!
//! # Data
//!
//! ```text
//!  index            records (64 bytes)                       dentries (64 bytes)
//! ┌─────────────┐  ┌──────────────────────────────────────┐  ┌─────────────────────────────────────┐
//! │ 11 tags     │  │ seq · parent · hash · shape · expiry │  │ references · generation · long name │
//! │ 11 numbers ─┼─►│ seed or handle · 32 bytes of name    │  │ children · siblings · position      │
//! │ seq · next  │  │ read by walks, rewritten under seq   │  │ handle     same number, written part│
//! └─────────────┘  └──────────────────────────────────────┘  └─────────────────────────────────────┘
//! ```
//!
//! Records and dentries lie under one dense number in storage that never moves and keeps its type, so a reader may
//! follow a stale number and find out. What may still be read by a walk is reused only after a grace period
//! (`raw/epoch.rs`). The index grows by splitting one bucket at a time (`raw/index.rs`).
//!
//! ## Sticky seeds
//!
//! A bucket is H(seed of the parent, name), and the seed of a directory is H(seed of its parent, name) at its
//! creation; it stays with it when it is renamed. So all buckets of a path follow from its bytes, and to rename a
//! directory is to move one record. A walk looks for the last component at once and climbs from there by the parents'
//! numbers, comparing names. Where something above was renamed, the guess is wrong and costs a wasted look; what is
//! found is decided by names and numbers.
//!
//! ## Notes
//!
//! What a climb has found is noted: a keyed digest of the whole path, what is at its end, and the sum of the sequence counts of all records on it. The
//! next walk of that path finds the note by the digest and adds the counts up; any change of anything on the way shows in the sum. Two paths share a
//! digest with a probability of at most 2^-64, whoever chose them. `raw/notes.rs` argues why a note may be believed. They are used
//! where a leap is: not through directories that may have to be asked for.
//!
//! # Who protects what
//!
//! `raw/mod.rs` draws the lock order; each file of `raw/` tells its own part. In short: walks take nothing; names and
//! children of a directory change under its lock (256 stripes); a bucket and a record have a sequence count each,
//! whose odd value is the writers' lock; a question to the file system is asked under no lock at all.
//!
//! # How to see what it does
//!
//! [`Dcache::stats`] counts walks, hits by kind, stops by [`Reason`], retries, questions, waits and memory. Counting
//! costs a walk no shared line.
//!
//! # Limits
//!
//! - Names are bytes: 1 to 255, without slash and NUL. Others are passed on and not cached.
//! - An id's generation and a record's sequence count have 32 bits; who sleeps through 2³¹ reuses may be fooled.
//! - Aliases of one inode are not chained (the kernel's `d_alias`), and the chain would cost a random line at every insertion. Whoever changes a name says
//!   which: a directory and a name. What an inode has besides is its owner's and under its handle, the same for all of its names, so no change of
//!   an inode has to look for them. An entry that is held or whose id is kept leads up by its parents, whose path is the one that it
//!   was found by: of a directory the only one, as what has been renamed is the entry that it was.
//! - Times to live have a grain of 10 ms.
//! - Address space for the budget's worth of entries is set aside at once; memory is used as entries come.

mod builder;
mod dcache;
mod dentry_ref;
mod raw;
mod stats;
mod sync;
mod types;

pub use builder::Builder;
pub use dcache::{Completion, Dcache};
pub use dentry_ref::{DentryRef, OwnedDentry};
pub use stats::{MemoryStats, Stats};
pub use types::{
    Child, DentryId, Fill, Handle, Kind, PrefetchMode, Reason, Seen, Stopped, Walk, WalkOptions,
};
