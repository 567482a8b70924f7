//! Arguments of `dentree shell`, and what a line of it may say.

use super::Command;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Open the image for changes, too
    #[arg(short, long)]
    pub(crate) write: bool,
}

/// Commands on the open image.
#[derive(Debug, Parser)]
#[command(name = "dentree", multicall = true, disable_version_flag = true, max_term_width = 100)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: LineCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LineCommand {
    /// Change the current directory of the image
    Cd {
        /// The new one
        #[arg(default_value = "/")]
        directory: OsString,
    },
    /// Print the current directory of the image
    Pwd,
    /// Change the current directory of this machine
    Lcd {
        /// The new one (default: the home directory)
        directory: Option<PathBuf>,
    },
    /// Print the current directory of this machine
    Lpwd,
    /// Copy a file or directory of the image to this machine
    Get {
        /// What to copy
        file: OsString,
        /// A directory to copy into, or the new name
        #[arg(default_value = ".")]
        local: OsString,
    },
    /// Copy a file or directory of this machine into the image
    Put {
        /// What to copy
        local: OsString,
        /// A directory to copy into, or the new name
        #[arg(default_value = ".")]
        path: OsString,
    },
    /// End the shell
    #[command(visible_alias = "exit")]
    Quit,
    #[command(flatten)]
    Dentree(Box<Command>),
}

/// Whether a command does not run on an open image.
pub(crate) fn is_outside(name: &str) -> bool {
    ["mount", "umount", "serve", "shell", "resize", "cache", "demo", "completions", "man"].contains(&name)
}

/// Whether a command takes a whole image.
pub(crate) fn takes_image(name: &str) -> bool {
    ["info", "label", "uuid", "tune", "dedup"].contains(&name)
}

impl Command {
    /// Whether operands are paths in an image.
    pub(crate) fn has_paths(&self) -> bool {
        !matches!(
            self,
            Command::Info(_)
                | Command::Check(_)
                | Command::Journal(_)
                | Command::Which(_)
                | Command::Free(_)
                | Command::Frag(_)
                | Command::Label(_)
                | Command::Uuid(_)
                | Command::Tune(_)
                | Command::Dedup(_)
                | Command::Mkfs(_)
        )
    }
}

impl Line {
    /// The commands as a shell takes them: some begin in the current directory where nothing is
    /// named.
    pub(crate) fn commands() -> clap::Command {
        let default = |operand: clap::Arg| operand.required(false).default_value(".");
        Line::command().mut_subcommands(|command| match command.get_name() {
            name if is_outside(name) => command.hide(true),
            "ls" | "du" => command.mut_arg("locations", default),
            "tree" => command.mut_arg("location", default),
            "checksum" => command.mut_arg("trees", default),
            "find" => command.mut_arg("words", |words| words.required(false)),
            _ => command,
        })
    }

    /// Reads the words of a line.
    pub(crate) fn read(words: Vec<OsString>) -> Result<LineCommand, clap::Error> {
        let words = super::normalise(std::iter::once("dentree".into()).chain(words));
        let mut commands = Line::commands();
        let matches = commands.try_get_matches_from_mut(&words[1..])?;
        let line = Line::from_arg_matches(&matches).map_err(|error| error.format(&mut commands))?;
        Ok(line.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Line::commands().debug_assert();
    }
}
