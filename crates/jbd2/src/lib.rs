//! The journal of ext3 and ext4: replay of what a crash left in it.
//!
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
mod error;
mod fast_commit;
mod format;
mod journal;
mod overlay;
mod recover;
mod revoke;

pub use error::{Damage, Error};
pub use format::{Tid, empty_journal};
pub use journal::JournalLocation;
pub use recover::{Recovered, recover};
