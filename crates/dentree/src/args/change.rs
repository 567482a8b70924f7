//! The definitions of the commands that change an image.

use super::parse_size;
use clap::{ArgAction, Args, ValueHint};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Those above them too, as needed; nothing is wrong where they are there
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions as chmod has them (default: 755, less the umask)
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    /// Lay each out for N entries from the start: space in one piece, and an index that need not grow
    #[arg(long, value_name = "N")]
    pub(crate) expect: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Directories too, with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Nothing is wrong where there is nothing
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// What to move, and behind that where to: into it where it is a directory, else under this name
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Replace nothing: what would have to be replaced stays, and so does what would replace it
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Give a file another name, or make symbolic links\n\nWithout -s TARGET is IMAGE:PATH too, and gets one more name in \
                  the same image. With -s TARGET is the text of the link, which leads to a path in the image: /bin/busybox or \
                  ../lib."
)]
pub(crate) struct LnArgs {
    /// What the new names are for
    #[arg(required = true, value_name = "TARGET", value_hint = ValueHint::FilePath)]
    pub(crate) targets: Vec<OsString>,
    /// The new name, or a directory that gets names as the targets have them
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) link: OsString,
    /// Make symbolic links
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace what has the name, unless it is a directory
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Change permissions\n\nMODE is octal (0755), or a list with commas of [ugoa…][+-=][rwxXst…|u|g|o], as chmod(1) has it: \
                  u+rwX,go-w. Symbolic links are followed, but not those that -R meets."
)]
pub(crate) struct ChmodArgs {
    /// The permissions
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// Whose
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Those of all that is below, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    long_about = "Change owner and group\n\nBoth are numbers: the names that belong to them are in the image, not on this machine. Symbolic \
                  links are followed, but with -h, or where -R meets them, their own owner is changed. As always, a file loses its \
                  set-user-ID and set-group-ID bits."
)]
pub(crate) struct ChownArgs {
    /// UID, UID:GID or :GID
    #[arg(value_name = "OWNER")]
    pub(crate) owner: String,
    /// Whose
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Those of all that is below, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// A symbolic link's own, not those of what it leads to
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct TouchArgs {
    /// The files; made where they are not there
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// Make no file
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Set the time of access only
    #[arg(short)]
    pub(crate) access: bool,
    /// Set the time of modification only
    #[arg(short)]
    pub(crate) modification: bool,
    /// To this time instead of now: 2026-11-21, '2026-11-21 09:34:43.5', 2026-11-21T09:34:43Z, @SECONDS
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true, conflicts_with_all = ["stamp", "reference"])]
    pub(crate) date: Option<String>,
    /// To this time: `[[CC]YY]MMDDhhmm[.ss]`
    #[arg(short = 't', value_name = "STAMP", conflicts_with = "reference")]
    pub(crate) stamp: Option<String>,
    /// To the times of this file, on this machine or in an image (IMAGE:PATH)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<OsString>,
    /// A symbolic link's own times, not those of what it leads to
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct TruncateArgs {
    /// The files; made where they are not there
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    #[arg(
        help = "How long: bytes, or K, M, G, T behind the number; + and - in front are for so much more and less, < and > for at most and \
                at least, / and % round down and up to a multiple"
    )]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, value_parser = NewSize::parse)]
    pub(crate) size: NewSize,
    /// Make no file
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
}

/// How long a file is to be.
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

    /// What becomes of `size`; more than a file can have where it does not fit.
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
