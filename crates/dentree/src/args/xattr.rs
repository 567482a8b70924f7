//! The definitions of the commands for extended attributes.

use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct XattrArgs {
    #[command(subcommand)]
    pub(crate) command: XattrCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum XattrCommand {
    /// Print the names of attributes
    Ls(XattrLs),
    /// Print the value of an attribute as it is, or all attributes in getfattr's format
    Get(XattrGet),
    /// Set an attribute, or all that a dump of getfattr says
    Set(XattrSet),
    /// Remove attributes
    Rm(XattrRm),
}

#[derive(Debug, Args)]
pub(crate) struct XattrLs {
    /// Whose attributes
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct XattrGet {
    /// Whose
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// Which: user.comment
    #[arg(required_unless_present = "dump", conflicts_with = "dump")]
    pub(crate) name: Option<OsString>,
    /// All of them, as `getfattr -d -m -` does
    #[arg(short, long)]
    pub(crate) dump: bool,
    /// Those of all that is below, too
    #[arg(short = 'R', long, requires = "dump")]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct XattrSet {
    /// Whose; with --restore, the directory in which the files of the dump are
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// Which: user.comment
    #[arg(required_unless_present = "restore", conflicts_with = "restore")]
    pub(crate) name: Option<OsString>,
    /// Text, hexadecimal digits behind 0x, or Base64 behind 0s
    #[arg(allow_hyphen_values = true, conflicts_with = "restore")]
    pub(crate) value: Option<OsString>,
    /// Set what this dump of getfattr, or of `dentree xattr get --dump`, says (`-`: standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) restore: Option<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct XattrRm {
    /// Whose
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// Which
    #[arg(required = true)]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DedupArgs {
    /// The images
    #[arg(required = true, value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) images: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct XattrLabArgs {
    /// Clients: P of the tables
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    pub(crate) clients: Vec<u16>,
    /// Files of each client: F of the tables
    #[arg(long, value_name = "F,…", value_delimiter = ',', default_values_t = [10, 100, 1000])]
    pub(crate) files: Vec<u16>,
    /// Values that are drawn from: V of the tables
    #[arg(long, value_name = "V,…", value_delimiter = ',', default_values_t = [10, 100, 1000, 10_000, 100_000])]
    pub(crate) values: Vec<u32>,
    /// How often each client sets an attribute of a file in a run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sets: u32,
    /// How often each client sets an attribute in a run over blocks in memory
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sets_in_memory: u32,
    /// How often all clients together set an attribute in a run through FUSE, at most: such runs' times are scaled up
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sets_in_all: u32,
    /// Runs of each cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) runs: u16,
    /// Only the two caches, over blocks in memory
    #[arg(long)]
    pub(crate) caches_alone: bool,
    /// Write every figure as a JSON line to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}
