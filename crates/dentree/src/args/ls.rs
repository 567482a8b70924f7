//! Arguments of `dentree ls`, under the names of ls(1).

use crate::output::color::When;
use crate::output::quote::Quoting;
use crate::output::size::Scale;
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use dentree_vfs::{Attr, Timestamp};
use std::ffi::OsString;

#[derive(Debug, Default, Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct LsArgs {
    /// What to list
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    #[command(flatten)]
    pub(crate) select: Select,
    #[command(flatten)]
    pub(crate) order: Ordering,
    #[command(flatten)]
    pub(crate) layout: Layout,
    #[command(flatten)]
    pub(crate) columns: Columns,
    #[command(flatten)]
    pub(crate) names: Names,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What is listed.
#[derive(Debug, Default, Args)]
pub(crate) struct Select {
    /// Include names that begin with a dot, `.` and `..`
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Include names that begin with a dot, but not `.` and `..`
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// Leave out names that end with ~
    #[arg(short = 'B', long)]
    pub(crate) ignore_backups: bool,
    /// Leave out names that match a pattern
    #[arg(short = 'I', long, value_name = "GLOB")]
    pub(crate) ignore: Vec<OsString>,
    /// The same, unless -a or -A is given
    #[arg(long, value_name = "GLOB")]
    pub(crate) hide: Vec<OsString>,
    /// List directories themselves, not what is in them
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// List names that were removed: what is left of the file, its inode, its size, and the name.
    /// `dentree undelete` brings back what is free
    #[arg(long, conflicts_with_all = ["recursive", "directory"])]
    pub(crate) deleted: bool,
    /// Include directories below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Show what links lead to instead of the links
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// The same for links among the arguments
    #[arg(short = 'H', long)]
    pub(crate) dereference_command_line: bool,
    /// The same for links to directories among the arguments (the default without -d, -F, -l)
    #[arg(long)]
    pub(crate) dereference_command_line_symlink_to_dir: bool,
}

/// The order of names: by bytes, unless one of these is given.
#[derive(Debug, Default, Args)]
pub(crate) struct Ordering {
    /// The newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "by_extension", "by_version", "unsorted", "sort"])]
    pub(crate) by_time: bool,
    /// The largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "by_extension", "by_version", "unsorted", "sort"])]
    pub(crate) by_size: bool,
    /// By what follows the last dot
    #[arg(short = 'X', overrides_with_all = ["by_time", "by_size", "by_version", "unsorted", "sort"])]
    pub(crate) by_extension: bool,
    /// Numbers within names by their value
    #[arg(short = 'v', overrides_with_all = ["by_time", "by_size", "by_extension", "unsorted", "sort"])]
    pub(crate) by_version: bool,
    /// In the order of the directory
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size", "by_extension", "by_version", "sort"])]
    pub(crate) unsorted: bool,
    /// As -a -U, and without -l, -s and colours
    #[arg(short = 'f')]
    pub(crate) raw: bool,
    /// Sort by this
    #[arg(long, value_name = "WORD", overrides_with_all = ["by_time", "by_size", "by_extension", "by_version", "unsorted"])]
    pub(crate) sort: Option<Sort>,
    /// In reverse
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Directories before files
    #[arg(long)]
    pub(crate) group_directories_first: bool,
    /// Show and sort by the time of change of the inode
    #[arg(short = 'c', overrides_with_all = ["atime", "time"])]
    pub(crate) ctime: bool,
    /// Show and sort by the time of access
    #[arg(short = 'u', overrides_with_all = ["ctime", "time"])]
    pub(crate) atime: bool,
    /// Show and sort by this time
    #[arg(long, value_name = "WORD", overrides_with_all = ["ctime", "atime"])]
    pub(crate) time: Option<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sort {
    None,
    Name,
    Size,
    Time,
    Version,
    Extension,
    Width,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Time {
    #[value(alias = "modification")]
    Mtime,
    #[value(aliases = ["access", "use"])]
    Atime,
    #[value(alias = "status")]
    Ctime,
    #[value(alias = "creation")]
    Birth,
}

impl Time {
    pub(crate) fn of(self, attr: &Attr) -> Option<Timestamp> {
        match self {
            Time::Mtime => Some(attr.mtime),
            Time::Atime => Some(attr.atime),
            Time::Ctime => Some(attr.ctime),
            Time::Birth => attr.crtime,
        }
    }
}

/// How a listing is laid out.
#[derive(Debug, Default, Args)]
pub(crate) struct Layout {
    /// Print a line each: mode, links, owner, group, size, time, name
    #[arg(short, overrides_with_all = ["vertical", "across", "commas", "format"])]
    pub(crate) long: bool,
    /// Print a name per line (the default, unless to a terminal)
    #[arg(short = '1', overrides_with_all = ["vertical", "across", "commas", "format"])]
    pub(crate) single: bool,
    /// Print columns, filled downwards (the default to a terminal)
    #[arg(short = 'C', overrides_with_all = ["single", "long", "across", "commas", "format"])]
    pub(crate) vertical: bool,
    /// Print columns, filled line by line
    #[arg(short = 'x', overrides_with_all = ["single", "long", "vertical", "commas", "format"])]
    pub(crate) across: bool,
    /// Print names with commas between them
    #[arg(short = 'm', overrides_with_all = ["single", "long", "vertical", "across", "format"])]
    pub(crate) commas: bool,
    /// One of the above by name
    #[arg(long, value_name = "WORD", overrides_with_all = ["single", "long", "vertical", "across", "commas"])]
    pub(crate) format: Option<Format>,
    /// Width of the output in characters; 0 means no limit
    #[arg(short, long, value_name = "N")]
    pub(crate) width: Option<usize>,
    /// Distance of tab stops; 0 means no tabs
    #[arg(short = 'T', long, value_name = "N")]
    pub(crate) tabsize: Option<usize>,
    /// End each line with a NUL byte instead of a newline
    #[arg(short = '0', long = "zero", alias = "null")]
    pub(crate) null: bool,
    /// Print a JSON object per file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    #[value(alias = "verbose")]
    Long,
    SingleColumn,
    Vertical,
    #[value(alias = "horizontal")]
    Across,
    Commas,
    #[value(skip)]
    Json,
}

/// What a listing shows of each file.
#[derive(Debug, Default, Args)]
pub(crate) struct Columns {
    /// As -l, with owners and groups as numbers
    #[arg(short, long = "numeric-uid-gid", visible_alias = "numeric")]
    pub(crate) numeric: bool,
    /// As -l, without owners
    #[arg(short = 'g')]
    pub(crate) no_owner: bool,
    /// As -l, without groups
    #[arg(short = 'o')]
    pub(crate) no_group_long: bool,
    /// With -l, leave out groups
    #[arg(short = 'G', long)]
    pub(crate) no_group: bool,
    /// With -l, print the owner once more
    #[arg(long)]
    pub(crate) author: bool,
    /// As -l --time-style=full-iso
    #[arg(long)]
    pub(crate) full_time: bool,
    /// full-iso, long-iso, iso, locale, or +FORMAT as of date(1)
    #[arg(long, value_name = "STYLE")]
    pub(crate) time_style: Option<String>,
    /// Print the inode number before each name
    #[arg(short, long)]
    pub(crate) inode: bool,
    /// Print the allocated space before each name
    #[arg(short, long)]
    pub(crate) size: bool,
    /// Print sizes as 1.2K, 3.4M, …
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// The same by powers of 1000
    #[arg(long)]
    pub(crate) si: bool,
    /// Print sizes in units of this: 1K, M, MB, …
    #[arg(long, value_name = "SIZE", value_parser = Scale::parse)]
    pub(crate) block_size: Option<Scale>,
    /// Print allocated space in KiB (the default)
    #[arg(short, long)]
    pub(crate) kibibytes: bool,
    /// Print the security context of each file
    #[arg(short = 'Z', long)]
    pub(crate) context: bool,
}

/// How names are shown.
#[derive(Debug, Default, Args)]
pub(crate) struct Names {
    /// Append one of */=>@| to names, by their type
    #[arg(short = 'F', long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) classify: Option<When>,
    /// The same, without *
    #[arg(long)]
    pub(crate) file_type: bool,
    /// Append / to directories
    #[arg(short = 'p')]
    pub(crate) slash: bool,
    /// What to append: none, slash, file-type, classify
    #[arg(long, value_name = "WORD")]
    pub(crate) indicator_style: Option<Indicator>,
    /// Colour names by their type, as $LS_COLORS says
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) color: Option<When>,
    /// Print names as they are
    #[arg(short = 'N', long, overrides_with_all = ["quote_name", "escape", "quoting_style"])]
    pub(crate) literal: bool,
    /// Print names in double quotes
    #[arg(short = 'Q', long, overrides_with_all = ["literal", "escape", "quoting_style"])]
    pub(crate) quote_name: bool,
    /// Print names with the escapes of C
    #[arg(short = 'b', long, overrides_with_all = ["literal", "quote_name", "quoting_style"])]
    pub(crate) escape: bool,
    /// How names are quoted
    #[arg(long, value_name = "WORD", overrides_with_all = ["literal", "quote_name", "escape"])]
    pub(crate) quoting_style: Option<Quoting>,
    /// Print ? for characters that cannot be shown
    #[arg(short = 'q', long, overrides_with = "show_control_chars")]
    pub(crate) hide_control_chars: bool,
    /// Print characters that cannot be shown as they are
    #[arg(long, overrides_with = "hide_control_chars")]
    pub(crate) show_control_chars: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Indicator {
    None,
    Slash,
    FileType,
    Classify,
}
