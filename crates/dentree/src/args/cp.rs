//! Arguments of `dentree cp`, under the names of cp(1).

use super::backup::BackupArgs;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Default, Args)]
#[command(args_override_self = true)]
pub(crate) struct CpArgs {
    /// What to copy, and last, without -t, the target: a directory to copy into, or the new name;
    /// `-` is standard input or output
    #[arg(required = true, value_name = "SOURCE|TARGET", value_hint = ValueHint::AnyPath)]
    pub(crate) locations: Vec<OsString>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Read paths from FILE, one per line, relative to the one SOURCE; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,
    /// Paths in FILE end with a NUL byte instead of a newline
    #[arg(long, requires = "files_from")]
    pub(crate) null: bool,
    /// Keep owners, exact modes and times, extended attributes, hard links, and links as links
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy directories with their contents, as is done without it; SOURCE links stay links
    #[arg(short, long, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Follow all symbolic links
    #[arg(short = 'L', long, overrides_with_all = LINKS)]
    pub(crate) dereference: bool,
    /// Follow no symbolic links
    #[arg(short = 'P', long, overrides_with_all = LINKS)]
    pub(crate) no_dereference: bool,
    /// Follow each SOURCE that is a symbolic link
    #[arg(short = 'H', overrides_with_all = LINKS)]
    pub(crate) dereference_sources: bool,
    /// As -P --preserve=links
    #[arg(short = 'd')]
    pub(crate) keep_links: bool,
    /// As --preserve=mode,ownership,timestamps
    #[arg(short = 'p')]
    pub(crate) keep_common: bool,
    /// Keep attributes: mode, ownership, timestamps, links, xattr, context, all
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1, require_equals = true,
          default_missing_values = ["mode", "ownership", "timestamps"])]
    pub(crate) preserve: Vec<Attribute>,
    /// Do not keep these attributes
    #[arg(long, value_name = "LIST", value_delimiter = ',', require_equals = true)]
    pub(crate) no_preserve: Vec<Attribute>,
    /// Copy attributes only, no content
    #[arg(long)]
    pub(crate) attributes_only: bool,
    /// Copy bytes of pipes and devices of directories, too
    #[arg(long)]
    pub(crate) copy_contents: bool,
    /// Give the copies this owner: USER, USER:GROUP or :GROUP, numbers or names of the image
    #[arg(long, value_name = "OWNER")]
    pub(crate) chown: Option<String>,
    /// Give the copies these permissions, as for chmod
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) chmod: Option<String>,
    /// Holes of copies: those of the source, wherever there are zeros, or none
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) sparse: Sparse,
    /// Replace an existing target, whatever it is, instead of writing to it
    #[arg(long)]
    pub(crate) remove_destination: bool,
    /// Replace a file of this machine that cannot be written to
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Ask before an existing file is written to
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) interactive: bool,
    /// Leave existing files alone
    #[arg(short, long, overrides_with = "interactive")]
    pub(crate) no_clobber: bool,
    /// Write only to files that are older
    #[arg(short, long)]
    pub(crate) update: bool,
    /// Say what is copied
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) backup: BackupArgs,
    /// Make hard links instead of copies, within an image
    #[arg(short, long, conflicts_with = "symbolic_link")]
    pub(crate) link: bool,
    /// Make symbolic links instead of copies, within an image
    #[arg(short, long)]
    pub(crate) symbolic_link: bool,
    /// Enter no other file system below a SOURCE
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Accepted but for `always`, as contents are copied
    #[arg(long, value_name = "WHEN", require_equals = true, value_parser = ["auto", "never"])]
    reflink: Option<String>,
}

impl CpArgs {
    /// A plain copy of the first to the second.
    pub(crate) fn of(from: OsString, to: OsString) -> CpArgs {
        CpArgs { locations: vec![from, to], ..CpArgs::default() }
    }

    /// The options by which mv(1) copies: -a, and existing files are replaced.
    pub(crate) fn for_moving() -> CpArgs {
        CpArgs { archive: true, remove_destination: true, ..CpArgs::default() }
    }
}

/// How the target is taken.
#[derive(Debug, Default, Args)]
pub(crate) struct TargetArgs {
    /// Copy into this directory
    #[arg(short, long, value_name = "DIRECTORY", value_hint = ValueHint::AnyPath)]
    pub(crate) target_directory: Option<OsString>,
    /// The target is the new name, also where it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub(crate) no_target_directory: bool,
    /// Make the directories of SOURCE's path below the target
    #[arg(long, conflicts_with = "no_target_directory")]
    pub(crate) parents: bool,
    /// Remove slashes at the end of each SOURCE
    #[arg(long)]
    pub(crate) strip_trailing_slashes: bool,
}

/// The options for links: the last one counts.
const LINKS: [&str; 3] = ["dereference", "no_dereference", "dereference_sources"];

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    #[value(alias = "context")]
    Xattr,
    All,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sparse {
    #[default]
    Auto,
    Always,
    Never,
}
