//! The journal of ext3 and ext4: transactions, and replay after a crash.
//!
//! # Writing
//! A [`Journal`] makes changes of many blocks atomic. An operation starts a [`Handle`], changes
//! blocks of a [`BufCache`](dentree_bufcache::BufCache) through it, and stops it; a transaction
//! consists of the handles of a period. A thread that waits for a transaction commits it, for all
//! waiters; work without waiters is done by the journal's own thread.
//!
//! A change pins its block in the cache with the transaction's number. The pin also tells whether
//! the transaction has the block already, without a lookup in a set. A handle collects its blocks
//! and adds them to one of several lists when it stops. A commit locks the transaction, waits until
//! it has no handle, takes the blocks from the lists and their versions from the cache, and starts
//! the next transaction before it writes. Counters that many handles change in memory, and that no
//! reader looks up in a block, can be put into their blocks once, while the transaction is locked
//! ([`Journal::before_commit`]).
//!
//! # Commit and checkpoint
//! A commit writes to the *log*: descriptors, copies and revokes, flush, commit block, flush. If
//! the next transaction has a waiter already, it shares the last flush. A checkpoint writes the
//! blocks in place, when little of the log is free or much of the cache is pinned. `log.rs` says
//! what must be on stable storage when. An image without a journal has the same transactions; their
//! commit writes in place.
//!
//! ```text
//!   threads                        one of them, or the journal's thread               device
//!   start ── update… ── stop ──►   lock · versions · next ── log ── flush ── commit ── flush  log
//!   wait_commit ◄───────────────────────────────── actions ── wake ◄┘
//!                                  blocks ── flush ── superblock ── flush               in place
//! ```
//!
//! One transaction, by type:
//!
//! | type                    | holds                                        | until          |
//! |-------------------------|----------------------------------------------|----------------|
//! | `TransactionState`      | count of handles, credits, the locked flag   | locked         |
//! | `BufferList`            | block numbers that stopped handles added     | locked         |
//! | `LockedTransaction`     | the blocks' versions, taken from the cache   | commit record  |
//! | `LogRecord`             | that, with its revokes and length in the log | commit record  |
//! | `CommittingTransaction` | progress of its commit, actions to call      | last flush     |
//! | `CheckpointTransaction` | its range of the log, its block numbers      | checkpoint     |
//!
//! # Guarantees
//! - *All or nothing.* After a crash and replay the device has all transactions up to one, whole,
//!   and none after it.
//! - *Durability.* [`Journal::wait_commit`] returns `Ok` only after the commit block, and all
//!   before it, was flushed.
//! - *No silent failure.* An error of the device during a commit or a checkpoint aborts the
//!   journal: all current and later callers get the cause, and the journal's superblock records it,
//!   if the device still takes it.
//! - *Freed blocks stay freed.* After the commit of the transaction that forgets a block, which is
//!   when it can be allocated again, no replay and no checkpoint writes it.
//!
//! # Performance
//! Starting a handle, changing a cached block and stopping take 276 instructions (cachegrind,
//! `handle_cost` benchmark), two changes of one shared word, and no lock but the block's shard and,
//! if the block is new to the transaction, a list.
//!
//! # Known limits
//! - A commit waits for a checkpoint in progress; checkpoints run without waiters while there is
//!   room.
//! - Fast commits are neither written nor replayed.
//! - Credits count the blocks that handles may change; revoke records are not counted, and take
//!   what the log has left.
//!
//! # Reading
//! [`replay`] writes the journal's content in place after a crash. [`recover`] returns the device
//! as it will be after a replay, without writing: a journalled block is read from the journal. The
//! file system's state stays as evidence.
//!
//! # The three passes
//! *Scan* follows the log from its tail to its end: the first block that is not the next part of
//! the next transaction. A transaction without a commit block does not count. *Revoke* collects
//! blocks that were freed after they were journalled, with the last transaction that says so:
//! earlier copies must not overwrite them. *Replay* finds the last journalled copy of each block,
//! and verifies its checksum.
//!
//! # Facts
//! Kernel document `filesystems/ext4/journal.rst`. What it omits, learnt from `debugfs`, `e2fsck`
//! and the kernel: tags of checksum version 2 are two bytes longer than their fields; checksums are
//! taken over blocks as they stand in the journal, escaped; sequence numbers wrap, and compare by
//! the sign of their difference; a block with a wrong checksum after the log's end is from an
//! earlier round, which the time in the commit block tells from damage; with fast commits the log
//! ends before the journal's end, by `s_num_fc_blks`.
//!
//! # Bounds on a hostile journal
//! No pass looks at more blocks than the journal has, or keeps more than a few words for each.
#![forbid(unsafe_code)]

mod before_commit;
mod checksum;
mod committer;
mod encode;
mod error;
mod fast_commit;
mod format;
mod handle;
mod history;
mod journal;
mod log;
mod log_writer;
mod overlay;
mod reader;
mod recover;
mod revoke;
mod shared;
mod superblock;
mod tid;
mod transaction;
mod write_back;

pub use before_commit::BeforeCommit;
pub use error::{Cause, Damage, Error};
pub use format::empty_journal;
pub use handle::Handle;
pub use history::{History, LoggedCopy, LoggedTransaction};
pub use journal::Journal;
pub use log::JournalOptions;
pub use reader::JournalLocation;
pub use recover::{Recovered, Replayed, recover, replay};
pub use tid::Tid;
