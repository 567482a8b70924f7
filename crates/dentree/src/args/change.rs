//! Arguments of the commands that change an image.

use super::parse_size;
use clap::{ArgAction, Args, ValueHint};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Make missing parents, and accept directories that exist
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions as for chmod (default: 755, less the umask)
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    /// Lay each out for N entries: contiguous space, and an index that need not grow
    #[arg(long, value_name = "N")]
    pub(crate) expect: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Remove directories with their contents
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Ignore what does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// What to move, and last the target: a directory to move into, or the new name
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Replace nothing: source and target stay as they are
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LnArgs {
    /// The files that get another name
    #[arg(required = true, value_name = "TARGET", value_hint = ValueHint::FilePath)]
    pub(crate) targets: Vec<OsString>,
    /// The new name, or a directory for links with the names of the targets
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) link: OsString,
    /// Make symbolic links
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace an existing target, unless it is a directory
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChmodArgs {
    /// The new permissions
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// The files
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Include all files below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ChownArgs {
    /// OWNER, OWNER:GROUP, OWNER: (with its login group) or :GROUP
    #[arg(value_name = "OWNER")]
    pub(crate) owner: String,
    /// The files
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Include all files below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change a symbolic link itself, not its target
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct TouchArgs {
    /// The files; missing ones are made
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Make no files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Set the access time only
    #[arg(short)]
    pub(crate) access: bool,
    /// Set the modification time only
    #[arg(short)]
    pub(crate) modification: bool,
    /// Use this time instead of now: 2026-11-21, '2026-11-21 09:34:43.5', 2026-11-21T09:34:43Z,
    /// @SECONDS
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true, conflicts_with_all = ["stamp", "reference"])]
    pub(crate) date: Option<String>,
    /// Use this time: `[[CC]YY]MMDDhhmm[.ss]`
    #[arg(short = 't', value_name = "STAMP", conflicts_with = "reference")]
    pub(crate) stamp: Option<String>,
    /// Use the times of this file, on this machine or in an image (IMAGE:PATH)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<OsString>,
    /// Change a symbolic link itself, not its target
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct TruncateArgs {
    /// The files; missing ones are made
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    #[arg(help = "The size in bytes, or with K, M, G, T; +N and -N are relative, <N and >N at most and \
                at least, /N and %N round down and up to a multiple")]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, value_parser = NewSize::parse)]
    pub(crate) size: NewSize,
    /// Make no files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
}

/// A new size, or a change of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NewSize {
    Exactly(u64),
    More(u64),
    Less(u64),
    AtMost(u64),
    AtLeast(u64),
    RoundDown(u64),
    RoundUp(u64),
}

impl NewSize {
    fn parse(text: &str) -> Result<NewSize, String> {
        let behind = || parse_size(text.get(1..).unwrap_or(""));
        let multiple = || {
            behind().and_then(|size| if size == 0 { Err("no multiple of 0".to_owned()) } else { Ok(size) })
        };
        match text.as_bytes().first() {
            Some(b'+') => behind().map(NewSize::More),
            Some(b'-') => behind().map(NewSize::Less),
            Some(b'<') => behind().map(NewSize::AtMost),
            Some(b'>') => behind().map(NewSize::AtLeast),
            Some(b'/') => multiple().map(NewSize::RoundDown),
            Some(b'%') => multiple().map(NewSize::RoundUp),
            _ => parse_size(text).map(NewSize::Exactly),
        }
    }

    /// The new size of a file of `size` bytes; saturates.
    pub(crate) fn of(self, size: u64) -> u64 {
        match self {
            NewSize::Exactly(bytes) => bytes,
            NewSize::More(bytes) => size.saturating_add(bytes),
            NewSize::Less(bytes) => size.saturating_sub(bytes),
            NewSize::AtMost(bytes) => size.min(bytes),
            NewSize::AtLeast(bytes) => size.max(bytes),
            NewSize::RoundDown(bytes) => size - size % bytes,
            NewSize::RoundUp(bytes) => size.checked_next_multiple_of(bytes).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_can_be_relative() {
        let of = |text: &str| NewSize::parse(text).unwrap().of(1500);
        assert_eq!([of("7"), of("+1K"), of("-500"), of("-2K")], [7, 2524, 1000, 0]);
        assert_eq!([of("<1K"), of(">2K"), of("/1K"), of("%1K")], [1024, 2048, 1024, 2048]);
        for wrong in ["", "+", "/0", "1Q", "--1"] {
            assert!(NewSize::parse(wrong).is_err(), "{wrong}");
        }
    }
}
