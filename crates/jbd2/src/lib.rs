//! The journal of ext3 and ext4: transactions, and the replay of what a crash left of them.
//!
//! # Writing
//! A [`Journal`] makes changes of many blocks atomic. An operation starts a [`Handle`], changes blocks of a
//! [`BufCache`](dentree_bufcache::BufCache) through it, and stops it; a transaction is what the handles of some time did. Who
//! waits for a transaction commits it, for all who wait meanwhile; what nobody waits for is done by a thread of the journal's own.
//!
//! Who changes a block pins it in the cache with the transaction's number as its stamp. So the stamp also tells whether the transaction has
//! the block already: no set of blocks is looked up. A handle collects its blocks by itself, and leaves them at one of several seats when
//! it stops. A commit shuts the gate, waits until no handle is inside, takes the blocks from the seats and their
//! versions from the cache, and opens the gate for the next transaction before it writes. What many handles change in memory, and no
//! reader looks for in its block, may be put there once, while the gate is shut ([`Journal::before_commit`]).
//!
//! # Where transactions go
//! To the *log*: descriptors, copies and revokes, flush, commit block, flush. The last flush of one is the first of the next, where
//! somebody waits for that already. Then their blocks wait to be written home, which is a
//! checkpoint: when little of the log is free, or much of the cache is pinned. `log.rs` says what must be on
//! stable storage when. An image without a journal has the same transactions; its commit writes home.
//!
//! ```text
//!   threads                        one of them, or the journal's thread                 device
//!   start ── update… ── stop ──►   shut · versions · open ── log ── flush ── commit ── flush    log
//!   wait_commit ◄───────────────────────────────── actions ── wake ◄┘
//!                                  homes ── flush ── superblock ── flush                        homes
//! ```
//!
//! # Guarantees
//! - *All or nothing.* After a crash and its replay the device has the transactions up to some one, whole, and none behind it.
//! - *What was acknowledged is there.* [`Journal::wait_commit`] returns `Ok` only when the commit block, and all before it, was
//!   flushed.
//! - *Nothing fails silently.* Any error of the device while something is committed or written home aborts the journal: all
//!   who wait and all who come get the cause, and the journal's superblock records it, where the device still takes it.
//! - *Freed is freed.* No replay and no checkpoint writes over a block that was forgotten, once the transaction that did so is
//!   committed, which is when others may have it.
//!
//! # Performance
//! To start a handle, change a cached block and stop takes 276 instructions (cachegrind, `handle_cost` example), one
//! shared word changed twice, and no lock but the block's shard and, where the block is new to the transaction, a seat.
//!
//! # Known limits
//! A commit that comes while a checkpoint writes waits for it; checkpoints are made when nobody waits, as long as there is room. Fast commits are neither written nor replayed. The blocks that a handle
//! may yet change are counted; the revoke records of a transaction are not, and take what the log has beyond them.
//!
//! # Reading
//! [`replay`] writes back what a crash left in the journal. [`recover`] reads the journal, and returns the device as it will be once the journal has been written back, without
//! writing anything: a journalled block is read from where it stands in the journal. The state of the file
//! system in front of the crash stays what it was, for evidence and for whoever repairs it.
//!
//! # The three passes
//! *Scan* follows the log from its tail and finds where it ends: at the first block that is not the next part of the next
//! transaction. A transaction without its commit block never happened. *Revoke* collects which blocks
//! were freed after they were journalled, by the last transaction that says so: those must not be written over
//! what the block holds since. *Replay* notes for every block where its last journalled copy is, and checks its sum.
//!
//! # Facts
//! Kernel document `filesystems/ext4/journal.rst`. What it leaves out, learnt from what `debugfs`, `e2fsck` and the
//! kernel do with journals: tags of checksum version 2 are two bytes longer than their fields; sums are taken over
//! blocks as they stand in the journal, escaped; sequence numbers wrap, and compare by the sign of their difference;
//! a block with a wrong sum behind the log's end is a leftover of an older round, which the time in the commit
//! block tells from damage; with fast commits the log ends short of the journal's end, by `s_num_fc_blks`.
//!
//! # Bounds on a hostile journal
//! No pass looks at more blocks than the journal has, and what is kept is a few words for each.
#![forbid(unsafe_code)]

mod checksum;
mod committer;
mod encode;
mod error;
mod fast_commit;
mod format;
mod gate;
mod handle;
mod home;
mod journal;
mod last;
mod log;
mod overlay;
mod reader;
mod recover;
mod revoke;
mod shared;
mod store;
mod superblock;
mod tid;

pub use error::{Cause, Damage, Error};
pub use format::empty_journal;
pub use handle::Handle;
pub use journal::Journal;
pub use last::LastChanges;
pub use log::JournalOptions;
pub use reader::JournalLocation;
pub use recover::{Recovered, Replayed, recover, replay};
pub use tid::Tid;
