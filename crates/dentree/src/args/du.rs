//! Arguments of `dentree du`, under the names of du(1).

use super::ls::Time;
use crate::output::size::Scale;
use clap::{ArgAction, Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct DuArgs {
    /// What to sum up
    #[arg(required_unless_present = "files0_from", value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Sum up what FILE names, each ended by a NUL byte; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "locations")]
    pub(crate) files0_from: Option<PathBuf>,
    /// Print files, too, not only directories
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print totals of the arguments only
    #[arg(short, long)]
    pub(crate) summarize: bool,
    /// Print what is at most N levels below an argument
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    pub(crate) max_depth: Option<usize>,
    /// Print a total of all arguments
    #[arg(short = 'c', long)]
    pub(crate) total: bool,
    /// Leave subdirectories out of the sums of their directories
    #[arg(short = 'S', long)]
    pub(crate) separate_dirs: bool,
    /// Count a file once for each of its names
    #[arg(short = 'l', long)]
    pub(crate) count_links: bool,
    /// Follow symbolic links among the arguments
    #[arg(short = 'D', long, short_alias = 'H', overrides_with = "no_dereference")]
    pub(crate) dereference_args: bool,
    /// Follow no symbolic links (the default)
    #[arg(short = 'P', long, overrides_with = "dereference_args")]
    pub(crate) no_dereference: bool,
    /// Accepted, as an image is one file system
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Leave out what matches a pattern
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<OsString>,
    /// Leave out what matches any pattern of FILE, one per line
    #[arg(short = 'X', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Leave out what is smaller than SIZE, or with a minus sign what is larger
    #[arg(short = 't', long, value_name = "SIZE", allow_hyphen_values = true, value_parser = Threshold::parse)]
    pub(crate) threshold: Option<Threshold>,
    /// Sum up lengths instead of allocated space
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// As --apparent-size --block-size=1
    #[arg(short, long, overrides_with_all = UNITS)]
    pub(crate) bytes: bool,
    /// Count inodes instead of space
    #[arg(long)]
    pub(crate) inodes: bool,
    /// Print sizes in units of this: 1K, M, MB, …
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = Scale::parse, overrides_with_all = UNITS)]
    pub(crate) block_size: Option<Scale>,
    /// Print sizes in KiB (the default)
    #[arg(short, overrides_with_all = UNITS)]
    pub(crate) kib: bool,
    /// Print sizes in MiB
    #[arg(short, overrides_with_all = UNITS)]
    pub(crate) mib: bool,
    /// Print sizes as 1.2K, 3.4M, …
    #[arg(short = 'h', long, overrides_with_all = UNITS)]
    pub(crate) human_readable: bool,
    /// The same by powers of 1000
    #[arg(long, overrides_with_all = UNITS)]
    pub(crate) si: bool,
    /// Print the newest time of what is summed up: of change, or another
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "mtime")]
    pub(crate) time: Option<Time>,
    /// full-iso, long-iso, iso, or +FORMAT as of date(1)
    #[arg(long, value_name = "STYLE", default_value = "long-iso", hide_default_value = true)]
    pub(crate) time_style: String,
    /// End each line with a NUL byte instead of a newline
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The options for units: the last one counts.
const UNITS: [&str; 6] = ["bytes", "block_size", "kib", "mib", "human_readable", "si"];

/// What is left out by its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threshold {
    Below(u64),
    Above(u64),
}

impl Threshold {
    fn parse(text: &str) -> Result<Threshold, String> {
        let size = |text: &str| match Scale::parse(text)? {
            Scale::Unit { bytes, .. } => Ok(bytes),
            Scale::Human { .. } => Err("not a size".to_owned()),
        };
        match text.strip_prefix('-') {
            Some(text) => size(text).map(Threshold::Above),
            None if text == "0" => Ok(Threshold::Below(0)),
            None => size(text).map(Threshold::Below),
        }
    }

    pub(crate) fn admits(self, size: u64) -> bool {
        match self {
            Threshold::Below(least) => size >= least,
            Threshold::Above(most) => size <= most,
        }
    }
}
