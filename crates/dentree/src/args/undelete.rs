//! Arguments of `dentree undelete`.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct UndeleteArgs {
    /// The image, or a deleted file in it: its path, or its inode as `<N>`
    #[arg(value_name = "IMAGE[:PATH]", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// Write the file to FILE, or with --all the files below this directory
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) output: Option<PathBuf>,
    /// Bring back all files none of whose blocks is reused
    #[arg(long, requires = "output")]
    pub(crate) all: bool,
    /// Only files that were removed at TIME or later: a date as of touch -d, or @SECONDS
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Print a JSON object per file
    #[arg(long)]
    pub(crate) json: bool,
}
