//! Arguments of `dentree salvage`.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const EXIT_CODES: &str = "\
Exit status:
  0  all that was found is whole
  4  something is partial or lost, or could not be kept
  8  nothing could be read
  16 wrong usage";

#[derive(Debug, Args)]
pub(crate) struct SalvageArgs {
    /// The damaged image; it is not changed
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Where the files go: a directory that is empty or does not exist
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Do not read what this map file of GNU ddrescue calls bad
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) map: Option<PathBuf>,
    /// Print a JSON object per file
    #[arg(long)]
    pub(crate) json: bool,
}
