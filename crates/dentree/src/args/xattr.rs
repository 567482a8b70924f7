//! Arguments of the commands for extended attributes.

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
    /// Set an attribute, or all of a getfattr dump
    Set(XattrSet),
    /// Remove attributes
    Rm(XattrRm),
}

#[derive(Debug, Args)]
pub(crate) struct XattrLs {
    /// The files
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct XattrGet {
    /// The file
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// The attribute: user.comment
    #[arg(required_unless_present = "dump", conflicts_with = "dump")]
    pub(crate) name: Option<OsString>,
    /// Print all attributes, as `getfattr -d -m -` does
    #[arg(short, long)]
    pub(crate) dump: bool,
    /// Include all files below
    #[arg(short = 'R', long, requires = "dump")]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct XattrSet {
    /// The file; with --restore, the directory of the files in the dump
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// The attribute: user.comment
    #[arg(required_unless_present = "restore", conflicts_with = "restore")]
    pub(crate) name: Option<OsString>,
    /// Text, hexadecimal digits behind 0x, or Base64 behind 0s
    #[arg(allow_hyphen_values = true, conflicts_with = "restore")]
    pub(crate) value: Option<OsString>,
    /// Set the attributes of a dump of getfattr or `dentree xattr get --dump` (`-`: standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) restore: Option<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct XattrRm {
    /// The file
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// The attributes
    #[arg(required = true)]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DedupArgs {
    /// The images
    #[arg(required = true, value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) images: Vec<OsString>,
}
