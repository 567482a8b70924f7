//! Options of `dentree tar`.

use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;

const EXIT_CODES: &str = "\
Exit status, as of tar(1):
  0  done
  1  an attribute was not kept
  2  an error, or wrong usage
  3  the image is damaged
  4  the image uses a feature that is not supported";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct TarArgs {
    #[command(subcommand)]
    pub(crate) command: TarCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TarCommand {
    /// Write an archive of files and directories in an image
    #[command(name = "c", visible_alias = "create")]
    Create(TarCreate),
    /// Extract an archive into a directory of an image
    #[command(name = "x", visible_alias = "extract")]
    Extract(TarExtract),
    /// List the members of an archive
    #[command(name = "t", visible_alias = "list")]
    List(TarList),
}

/// The words for letters as tar(1) takes them together, such as `xvf`; `None` for other words.
pub(super) fn letters(word: &str) -> Option<Vec<&'static str>> {
    let letters = word.strip_prefix('-').unwrap_or(word);
    let mut commands = ["c", "x", "t"].into_iter().filter(|command| letters.contains(command));
    let (command, None) = (commands.next()?, commands.next()) else { return None };
    // Whether an archive is compressed shows when it is read; permissions are always kept.
    let meant = if command == "c" { "cvfp" } else { "xtvfpz" };
    if !letters.chars().all(|letter| meant.contains(letter)) {
        return None;
    }
    let options = [("v", "-v"), ("f", "-f")].into_iter().filter(|(letter, _)| letters.contains(letter));
    Some(std::iter::once(command).chain(options.map(|(_, option)| option)).collect())
}

#[derive(Debug, Args)]
pub(crate) struct TarCreate {
    /// What to archive; directories with their contents
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    /// The archive (default: standard output, as does `-`)
    #[arg(short, long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<OsString>,
    /// Print each member's name on standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TarExtract {
    /// The directory to extract into
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// The archive (default: standard input, as does `-`), which may be compressed by gzip or zstd
    #[arg(short, long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<OsString>,
    /// Print each member's name on standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TarList {
    /// The archive (default: standard input, as does `-`), which may be compressed by gzip or zstd
    #[arg(short, long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<OsString>,
    /// Print type, permissions, owner, size and time, too
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
