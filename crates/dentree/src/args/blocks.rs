//! Arguments of the commands about blocks.

use clap::{ArgGroup, Args, ValueHint};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct BlocksArgs {
    /// The files; a symbolic link at the end is not followed
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Print a JSON object per extent
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["block", "inode"]))]
pub(crate) struct WhichArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// A block, counted from the beginning of the file system (may be repeated)
    #[arg(long, value_name = "N")]
    pub(crate) block: Vec<u64>,
    /// An inode (may be repeated)
    #[arg(long, value_name = "N")]
    pub(crate) inode: Vec<u32>,
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FreeArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Write the content of the blocks to standard output
    #[arg(long)]
    pub(crate) dump: bool,
    /// Print a JSON object per run
    #[arg(long, conflicts_with = "dump")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FragArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
