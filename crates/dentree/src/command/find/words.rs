//! The words of a command line of find(1): which take an argument, and which are our own options.

use dentree_find::is_newer;
use std::ffi::OsString;

/// Words of an expression that take one argument.
const WITH_ARGUMENT: [&str; 44] = [
    "-amin",
    "-anewer",
    "-atime",
    "-cmin",
    "-cnewer",
    "-context",
    "-ctime",
    "-files0-from",
    "-fls",
    "-fprint",
    "-fprint0",
    "-fprintf",
    "-fstype",
    "-gid",
    "-group",
    "-ilname",
    "-iname",
    "-inum",
    "-ipath",
    "-iregex",
    "-iwholename",
    "-links",
    "-lname",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mtime",
    "-name",
    "-newer",
    "-path",
    "-perm",
    "-printf",
    "-regex",
    "-regextype",
    "-samefile",
    "-size",
    "-type",
    "-uid",
    "-used",
    "-user",
    "-wholename",
    "-xtype",
    "-D",
    "-newerXY",
];

/// Words of an expression before a command, which `;` or `{} +` ends.
const WITH_COMMAND: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// Our own options, which find(1) has no equivalent for; the flag marks those with a value.
const OWN: [(&str, bool); 17] = [
    ("--json", false),
    ("--format", true),
    ("--output", true),
    ("--columns", true),
    ("--timeline", false),
    ("--sort", false),
    ("--stats", false),
    ("--no-progress", false),
    ("--partition", true),
    ("--offset", true),
    ("--dx-read-ahead", true),
    ("--endpoint", true),
    ("--cache-dir", true),
    ("--cache-size", true),
    ("--overlay", true),
    ("--help", false),
    ("--version", false),
];

/// Takes our own options from the words after `find`, wherever they stand. The value of another
/// option, and a command of `-exec`, are no options.
pub(crate) fn take_own(words: Vec<OsString>) -> (Vec<OsString>, Vec<OsString>) {
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or("").to_owned();
        let name = text.split('=').next().unwrap_or("");
        if let Some((_, takes)) = OWN.iter().find(|(own, _)| *own == name) {
            own.push(word);
            if *takes && !text.contains('=') {
                own.extend(words.next());
            }
            if name == "--format" && names_output(words.as_slice()) {
                own.extend(words.by_ref().take(2));
            }
            continue;
        }
        if matches!(&*text, "-help" | "-version") {
            own.push(format!("-{text}").into());
            continue;
        }
        rest.push(word);
        if WITH_COMMAND.contains(&&*text) {
            let mut before = OsString::new();
            for word in words.by_ref() {
                let ends = word == ";" || word == "+" && before == "{}";
                before = word.clone();
                rest.push(word);
                if ends {
                    break;
                }
            }
        } else if WITH_ARGUMENT.contains(&&*text) || is_newer(&text) {
            rest.extend(words.next());
        }
    }
    (own, rest)
}

/// Whether `-o` comes next and names a file: elsewhere, and before an expression, it means or.
fn names_output(words: &[OsString]) -> bool {
    let [option, file, ..] = words else { return false };
    let is_file = |file: &str| file == "-" || !file.starts_with('-') && !matches!(file, "(" | "!");
    option == "-o" && file.to_str().is_none_or(is_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn taken(line: &str) -> String {
        let (own, rest) = take_own(line.split(' ').map(OsString::from).collect());
        let line = |words: Vec<OsString>| words.join(" ".as_ref()).into_string().unwrap();
        format!("{} | {}", line(own), line(rest))
    }

    #[test]
    fn our_own_options_may_stand_anywhere() {
        assert_eq!(taken("a:/ -name *.c --json --offset 5"), "--json --offset 5 | a:/ -name *.c");
        assert_eq!(taken("--partition=2 a:/ --sort ( -true )"), "--partition=2 --sort | a:/ ( -true )");
    }

    #[test]
    fn the_output_is_named_behind_the_format_and_elsewhere_o_is_or() {
        assert_eq!(taken("a:/ -empty --format csv -o -name x"), "--format csv | a:/ -empty -o -name x");
        assert_eq!(
            taken("a:/ --format csv -o f -name x -o -empty"),
            "--format csv -o f | a:/ -name x -o -empty"
        );
        assert_eq!(
            taken("a:/ -name x -o -empty --format=csv -o -"),
            "--format=csv -o - | a:/ -name x -o -empty"
        );
    }

    #[test]
    fn options_of_all_commands_are_options_of_find() {
        let command = Cli::command();
        for option in command.get_arguments().filter(|option| option.is_global_set()) {
            let name = format!("--{}", option.get_long().unwrap());
            let takes = option.get_action().takes_values();
            assert!(OWN.contains(&(&*name, takes)), "{name} is missing");
        }
    }

    #[test]
    fn a_value_and_a_command_stay_what_they_are() {
        assert_eq!(taken("a:/ -name --json"), " | a:/ -name --json");
        assert_eq!(taken("a:/ -newermt --json -newerXX --json"), " | a:/ -newermt --json -newerXX --json");
        assert_eq!(taken("a:/ -exec x --json ; --json"), "--json | a:/ -exec x --json ;");
        assert_eq!(taken("a:/ -exec x + --json {} + --json"), "--json | a:/ -exec x + --json {} +");
    }
}
