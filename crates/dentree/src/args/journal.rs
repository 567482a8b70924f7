//! Arguments of `dentree journal`.

use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    #[command(subcommand)]
    pub(crate) command: JournalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Print a line per transaction: number, time, state, blocks, revoked blocks
    ///
    /// The state is `old` (its blocks are in place), `pending` (a replay brings it) or
    /// `uncommitted` (its commit block is missing: it does not count).
    Ls(JournalLs),
    /// Print the blocks of transactions, or the versions of an inode
    Show(JournalShow),
}

#[derive(Debug, Args)]
pub(crate) struct JournalLs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Print a JSON object per transaction
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JournalShow {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Only this transaction
    #[arg(long, value_name = "N")]
    pub(crate) transaction: Option<u32>,
    /// Only copies of this block of the file system
    #[arg(long, value_name = "N", conflicts_with = "inode")]
    pub(crate) block: Option<u64>,
    /// The versions of this inode
    #[arg(long, value_name = "N")]
    pub(crate) inode: Option<u32>,
    /// Write the last copy to standard output
    #[arg(long, requires = "block")]
    pub(crate) dump: bool,
    /// Print a JSON object per line
    #[arg(long, conflicts_with = "dump")]
    pub(crate) json: bool,
}
