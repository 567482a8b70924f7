//! Arguments of the commands that change an image.

use super::backup::BackupArgs;
use super::mkfs::parse_size;
use clap::{ArgAction, Args, ValueEnum, ValueHint};
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

#[derive(Debug, Default, Args)]
#[command(args_override_self = true)]
pub(crate) struct RmArgs {
    /// What to remove
    #[arg(required_unless_present = "force", value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Remove directories with their contents
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short, long = "dir")]
    pub(crate) directories: bool,
    /// Ignore what does not exist, and ask nothing
    #[arg(short, long, overrides_with_all = ["ask", "ask_once", "interactive"])]
    pub(crate) force: bool,
    /// Ask before each removal
    #[arg(short = 'i', overrides_with_all = ["force", "ask_once", "interactive"])]
    pub(crate) ask: bool,
    /// Ask once before removing more than three files, or directories with their contents
    #[arg(short = 'I', overrides_with_all = ["force", "ask", "interactive"])]
    pub(crate) ask_once: bool,
    /// When to ask
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always", overrides_with_all = ["force", "ask", "ask_once"])]
    pub(crate) interactive: Option<Ask>,
    /// Say what is removed
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Accepted, as an image is one file system
    #[arg(long)]
    one_file_system: bool,
    /// Accepted, as the root of an image is never removed
    #[arg(long, value_name = "all", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    preserve_root: Option<String>,
}

/// When `rm` asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Ask {
    #[value(aliases = ["no", "none"])]
    Never,
    Once,
    #[value(alias = "yes")]
    Always,
}

impl RmArgs {
    /// The options by which mv(1) removes what it has copied.
    pub(crate) fn for_moving() -> RmArgs {
        RmArgs { recursive: true, ..RmArgs::default() }
    }

    pub(crate) fn asks(&self) -> Ask {
        match self.interactive {
            Some(when) => when,
            None if self.ask => Ask::Always,
            None if self.ask_once => Ask::Once,
            None => Ask::Never,
        }
    }
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct MvArgs {
    /// What to move, and last, without -t, the target: a directory to move into, or the new name
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Move into this directory
    #[arg(short, long, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) target_directory: Option<OsString>,
    /// The target is the new name, also where it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub(crate) no_target_directory: bool,
    /// Replace nothing: source and target stay as they are
    #[arg(short, long, overrides_with_all = ["interactive", "force"])]
    pub(crate) no_clobber: bool,
    /// Ask before something is replaced
    #[arg(short, long, overrides_with_all = ["no_clobber", "force"])]
    pub(crate) interactive: bool,
    /// Ask nothing (the default)
    #[arg(short, long, overrides_with_all = ["no_clobber", "interactive"])]
    pub(crate) force: bool,
    /// Replace only what is older
    #[arg(short, long)]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) backup: BackupArgs,
    /// Say what is moved
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Accepted, as slashes at the end of a source mean nothing but a directory
    #[arg(long)]
    strip_trailing_slashes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LnArgs {
    /// The files that get another name; last, without -t, the new name, or a directory for links
    /// with the names of the targets
    #[arg(required = true, value_name = "TARGET", value_hint = ValueHint::FilePath)]
    pub(crate) operands: Vec<OsString>,
    /// Make links in this directory
    #[arg(short, long, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) target_directory: Option<OsString>,
    /// The last operand is the new name, also where it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub(crate) no_target_directory: bool,
    /// The last operand is the new name, also where it is a link to a directory
    #[arg(short, long)]
    pub(crate) no_dereference: bool,
    /// Make symbolic links
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace an existing target, unless it is a directory
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Give the target of a symbolic link another name, not the link itself
    #[arg(short = 'L', long, overrides_with = "physical")]
    pub(crate) logical: bool,
    /// Give a symbolic link itself another name (the default)
    #[arg(short = 'P', long)]
    physical: bool,
    /// Say what is made
    #[arg(short, long)]
    pub(crate) verbose: bool,
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
    /// Set this time only
    #[arg(long, value_name = "WORD")]
    pub(crate) time: Option<WhichTime>,
    /// Accepted, and ignored
    #[arg(short)]
    force: bool,
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

/// A time that `touch` sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WhichTime {
    #[value(aliases = ["atime", "use"])]
    Access,
    #[value(alias = "mtime")]
    Modify,
}

#[derive(Debug, Args)]
pub(crate) struct TruncateArgs {
    /// The files; missing ones are made
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    #[arg(help = "The size in bytes, or with K, M, G, T; +N and -N are relative, <N and >N at most and \
                at least, /N and %N round down and up to a multiple")]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, value_parser = NewSize::parse, required_unless_present = "reference")]
    pub(crate) size: Option<NewSize>,
    /// Begin with the size of this file, on this machine or in an image (IMAGE:PATH)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<OsString>,
    /// The size counts blocks of the file system
    #[arg(short = 'o', long, requires = "size")]
    pub(crate) io_blocks: bool,
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

    /// The same in units of so many bytes; saturates.
    pub(crate) fn times(self, unit: u64) -> NewSize {
        let of = |count: u64| count.saturating_mul(unit);
        match self {
            NewSize::Exactly(count) => NewSize::Exactly(of(count)),
            NewSize::More(count) => NewSize::More(of(count)),
            NewSize::Less(count) => NewSize::Less(of(count)),
            NewSize::AtMost(count) => NewSize::AtMost(of(count)),
            NewSize::AtLeast(count) => NewSize::AtLeast(of(count)),
            NewSize::RoundDown(count) => NewSize::RoundDown(of(count)),
            NewSize::RoundUp(count) => NewSize::RoundUp(of(count)),
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
