//! Arguments of `dentree check`.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const EXIT_CODES: &str = "\
Exit status, as of e2fsck:
  0  no damage
  4  damage
  8  the image could not be read, or is not supported
  16 wrong usage";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Check superblock, descriptors, bitmaps and checksums of inodes only
    #[arg(long, conflicts_with = "paths")]
    pub(crate) quick: bool,
    /// Check only the inodes and directories of the paths in FILE, one a line; `-` for standard
    /// input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) paths: Option<PathBuf>,
    /// Print a JSON object per problem
    #[arg(long)]
    pub(crate) json: bool,
}
