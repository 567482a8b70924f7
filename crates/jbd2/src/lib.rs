//! The journal of ext3 and ext4: transactions, and replay after a crash.
//!
//! # Writing
//! A [`Journal`] makes changes of many blocks atomic. An operation starts a [`Handle`], changes
//! blocks of a [`BufCache`](dentree_bufcache::BufCache) through it, and stops it. A transaction
//! consists of many handles. A commit waits until they have stopped, takes the blocks' versions
//! from the cache, and starts the next transaction before it writes. A pin with the transaction's
//! number keeps each changed block in the cache.
//!
//! # Commit and checkpoint
//! A commit appends to the *log*: descriptors, copies and revokes, flush, commit block, flush. A
//! checkpoint writes the blocks in place, when the log or the cache fills up. An image without a
//! journal has the same transactions; their commit writes in place.
//!
//! ```text
//!   threads                        one of them, or the journal's thread               device
//!   start ── update… ── stop ──►   lock · versions · next ── log ── flush ── commit ── flush  log
//!   wait_commit ◄───────────────────────────────── actions ── wake ◄┘
//!                                  blocks ── flush ── superblock ── flush               in place
//! ```
//!
//! | one transaction, by type | holds                                       | until          |
//! |--------------------------|---------------------------------------------|----------------|
//! | `TransactionState`       | count of handles, credits, the locked flag  | locked         |
//! | `BufferList`             | block numbers of stopped handles            | locked         |
//! | `LockedTransaction`      | the blocks' versions                        | commit record  |
//! | `LogRecord`              | that, its revokes and its length in the log | commit record  |
//! | `CommittingTransaction`  | progress of its commit, actions to call     | last flush     |
//! | `CheckpointTransaction`  | its range of the log, its block numbers     | checkpoint     |
//!
//! # Guarantees
//! - J1: after a crash and replay the device has all transactions up to one, whole, and none later.
//! - J2: [`Journal::wait_commit`] returns `Ok` only after the commit block, and all before it, was
//!   flushed.
//! - J3: an I/O error in a commit or checkpoint aborts the journal. All callers get the cause, and
//!   the journal's superblock records it if the device still works.
//! - J4: after the commit that frees a block, no replay and no checkpoint writes it.
//!
//! # Performance
//! Start, change of a cached block and stop take 276 instructions (cachegrind, `handle_cost`
//! benchmark), two updates of one shared word, and the lock of the block's shard.
//!
//! # Known limits
//! - A commit waits for a checkpoint in progress.
//! - Fast commits are neither written nor replayed.
//! - Credits do not count revoke records.
//!
//! # Reading
//! [`replay`] writes the log's content in place. [`recover`] returns a device that reads as after a
//! replay, and writes nothing, to preserve evidence.
//!
//! *Scan* finds the end of the log: the first block that does not continue a committed transaction.
//! *Revoke* collects freed blocks, whose earlier copies must not be replayed. *Replay* finds the
//! last copy of each block, and verifies its checksum. No pass reads more blocks than the journal
//! has, or stores more than a few words for each.
//!
//! # Source
//! Kernel document `filesystems/ext4/journal.rst`. Learnt from `debugfs`, `e2fsck` and the kernel:
//! - Tags of checksum version 2 are two bytes longer than their fields.
//! - Checksums cover blocks as stored, escaped.
//! - Sequence numbers wrap, and compare by the sign of their difference.
//! - A wrong checksum after the log's end may be left from an earlier round. The time in the commit
//!   block tells it from damage.
//! - With fast commits, the log ends `s_num_fc_blks` before the journal's end.
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
pub use journal::{Frozen, Journal};
pub use log::JournalOptions;
pub use reader::JournalLocation;
pub use recover::{Recovered, Replayed, recover, replay};
pub use tid::Tid;
