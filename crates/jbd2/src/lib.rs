//! The journal of ext3 and ext4: transactions, and the replay of what a crash left of them.
//!
//! # Writing
//! A [`Journal`] makes changes of many blocks atomic. An operation starts a [`Handle`], changes blocks of a
//! [`BufCache`](dentree_bufcache::BufCache) through it, and stops it; a transaction is what the handles of some time did. One
//! thread commits transactions, for all who ask.
//!
//! Who changes a block pins it in the cache with the transaction's number as its stamp. So the stamp also tells whether the transaction has
//! the block already: no set of blocks is looked up. A handle collects its blocks by itself, and leaves them at one of several seats when
//! it stops. A commit shuts the gate, waits until no handle is inside, takes the blocks from the seats and their
//! versions from the cache, and opens the gate for the next transaction before it writes.
//!
//! # Reading
//! [`recover`] reads the journal, and returns the device as it will be once the journal has been written back, without
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
mod log;
mod overlay;
mod reader;
mod recover;
mod revoke;
mod shared;
mod superblock;
mod sync;

pub use error::{Cause, Damage, Error};
pub use format::{Tid, empty_journal};
pub use handle::Handle;
pub use journal::{Journal, JournalOptions};
pub use reader::JournalLocation;
pub use recover::{Recovered, Replayed, recover, replay};
