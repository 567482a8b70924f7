//! The definitions of the commands for extended attributes.

use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;

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
