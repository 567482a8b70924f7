//! Which of the options of every command mean something to one. The others are left out of its
//! help. Those that say which bytes are read or written are refused: `--overlay` protects an image
//! only where it is not ignored.

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;

const IMAGE: &[&str] =
    &["partition", "offset", "dx_read_ahead", "stats", "endpoint", "cache_dir", "cache_size", "overlay"];
/// Those that say which bytes are read or written.
const REFUSED: &[&str] = &["partition", "offset", "overlay"];
const PROGRESS: &str = "no_progress";
/// The commands that show progress.
const WITH_PROGRESS: &[&str] = &[
    "check", "checksum", "cp", "dedup", "diff", "mkfs", "mv", "rm", "salvage", "shell", "tar", "tar c",
    "tar x", "undelete",
];

/// The ids of the options that a command, such as `tar t`, has no use for.
fn useless(command: &str) -> impl Iterator<Item = &'static str> {
    let of_image: &[&str] = match command {
        "umount" | "tar t" | "demo" | "completions" | "man" => IMAGE,
        "cache" | "cache ls" | "cache rm" => {
            &["partition", "offset", "dx_read_ahead", "stats", "endpoint", "cache_size", "overlay"]
        }
        "mkfs" => &["offset", "dx_read_ahead", "stats", "endpoint", "cache_dir", "cache_size", "overlay"],
        // The image itself becomes longer or shorter.
        "resize" => &["dx_read_ahead", "stats", "endpoint", "cache_dir", "cache_size", "overlay"],
        "salvage" => &["dx_read_ahead", "stats"],
        "check" => &["dx_read_ahead", "stats"],
        "tune" => &["dx_read_ahead", "stats"],
        _ => &[],
    };
    let progress = (!WITH_PROGRESS.contains(&command)).then_some(PROGRESS);
    of_image.iter().copied().chain(progress)
}

/// Leaves out of each command's help the options that mean nothing to it.
pub(super) fn hide_useless(mut dentree: clap::Command) -> clap::Command {
    let options: Vec<clap::Arg> =
        dentree.get_arguments().filter(|option| option.is_global_set()).cloned().collect();
    let names: Vec<String> = dentree.get_subcommands().map(|command| command.get_name().into()).collect();
    for name in names {
        dentree = dentree.mut_subcommand(&name, |command| hide_in(command, &name, &options));
    }
    dentree
}

fn hide_in(mut command: clap::Command, path: &str, options: &[clap::Arg]) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().into()).collect();
    for name in names {
        command = command.mut_subcommand(&name, |below| hide_in(below, &format!("{path} {name}"), options));
    }
    // An option that a command has already is not passed down to it.
    let hidden = useless(path).filter_map(|id| options.iter().find(|option| option.get_id() == id));
    hidden.cloned().fold(command, |command, option| command.arg(option.hide(true)))
}

/// Refuses an option that says which bytes are meant, and means nothing to the command.
pub(super) fn refuse_useless(matches: &ArgMatches) -> Result<(), clap::Error> {
    let (mut path, mut leaf) = (String::new(), matches);
    while let Some((name, below)) = leaf.subcommand() {
        path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        leaf = below;
    }
    let given = |id: &&str| leaf.value_source(id) == Some(ValueSource::CommandLine);
    match useless(&path).filter(|id| REFUSED.contains(id)).find(given) {
        None => Ok(()),
        Some(id) => {
            let message =
                format!("the option '--{}' means nothing to 'dentree {path}'", id.replace('_', "-"));
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, message + "\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, command, normalise};
    use super::*;
    use clap::CommandFactory;

    fn parsed(line: &str) -> Result<(), clap::Error> {
        let words = normalise(line.split(' ').map(Into::into));
        refuse_useless(&Cli::command().try_get_matches_from(words)?)
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for line in [
            "dentree resize --overlay o.qcow2 disk.img 8G",
            "dentree --overlay o.qcow2 mkfs new.img --size 1G",
            "dentree tar t --partition 1",
            "dentree cache ls --offset 4096",
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains("means nothing to"), "{line}: {error}");
        }
        for line in ["dentree --overlay o.qcow2 cp a disk.img:/", "dentree --no-progress ls disk.img:/"] {
            parsed(line).unwrap();
        }
    }

    #[test]
    fn help_shows_what_has_a_meaning() {
        let shown = |path: &[&str], option: &str| {
            let mut dentree = command();
            dentree.build();
            let start = &mut dentree;
            let found = path.iter().fold(start, |above, name| above.find_subcommand_mut(name).unwrap());
            found.render_long_help().to_string().contains(option)
        };
        assert!(shown(&["ls"], "--overlay") && shown(&["tar", "c"], "--partition"));
        assert!(shown(&["cp"], "--no-progress") && shown(&["cache", "ls"], "--cache-dir"));
        assert!(!shown(&["resize"], "--overlay") && !shown(&["tar", "t"], "--partition"));
        assert!(!shown(&["ls"], "--no-progress") && !shown(&["completions"], "--stats"));
    }

    #[test]
    fn every_option_and_command_that_is_named_exists() {
        let dentree = Cli::command();
        let has =
            |id: &str| dentree.get_arguments().any(|option| option.get_id() == id && option.is_global_set());
        assert!(IMAGE.iter().all(|id| has(id)) && has(PROGRESS));
        for path in WITH_PROGRESS {
            assert!(path.split(' ').try_fold(&dentree, |above, name| above.find_subcommand(name)).is_some());
        }
    }
}
