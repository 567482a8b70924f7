//! Progress of long commands, on a terminal that script(1) makes.

mod common;

use common::{dentree, succeeds, text};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a terminal shows during a command; `None` where there is no script(1).
fn on_a_terminal(args: &[&str]) -> Option<String> {
    let quoted = |arg: &&str| format!("'{arg}'");
    let command =
        [env!("CARGO_BIN_EXE_dentree")].iter().chain(args).map(quoted).collect::<Vec<_>>().join(" ");
    // Standard output is no terminal: lines on one are progress enough.
    let command = format!("{command} > /dev/null");
    let shown = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output();
    match shown {
        Ok(shown) => {
            assert!(shown.status.success(), "{args:?}: {}", text(&shown.stdout));
            Some(text(&shown.stdout))
        }
        Err(_) => {
            println!("skipped: no script(1)");
            None
        }
    }
}

fn filled(dir: &Path) -> String {
    fs::create_dir_all(dir.join("tree/sub")).unwrap();
    for number in 0..30 {
        fs::write(dir.join(format!("tree/sub/{number}")), vec![b'x'; 5_000]).unwrap();
    }
    File::create(dir.join("tree/hole")).unwrap().set_len(1 << 30).unwrap();
    let image = dir.join("disk.img").to_str().unwrap().to_owned();
    succeeds(["mkfs", &image, "--from", dir.join("tree").to_str().unwrap(), "--size", "64M"]);
    image
}

#[test]
fn long_commands_show_counts_and_what_is_known_of_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let image = filled(dir.path());
    let (root, at) = (format!("{image}:/"), |name: &str| dir.path().join(name).to_str().unwrap().to_owned());
    let tree = at("tree");
    let commands: [(&[&str], bool); 8] = [
        (&["checksum", &root], true),
        (&["tar", "c", "-f", &at("tar"), &root], true),
        (&["cp", "-a", &root, &at("out")], true),
        (&["dedup", &image], true),
        (&["mkfs", &at("other"), "--from", &tree, "--size", "64M"], true),
        (&["cp", "-r", &tree, &root], false),
        (&["tar", "x", "-f", &at("tar"), &root], false),
        (&["rm", "-r", &format!("{image}:/sub")], false),
    ];
    fs::create_dir(at("out")).unwrap();
    for (args, has_total) in commands {
        let Some(shown) = on_a_terminal(args) else { return };
        assert!(shown.contains(" files, "), "{args:?}: {shown}");
        assert_eq!(shown.contains('%') && shown.contains(" left"), has_total, "{args:?}: {shown}");
    }
}

#[test]
fn progress_is_shown_on_terminals_alone_and_not_where_it_is_unwanted() {
    let dir = tempfile::tempdir().unwrap();
    let image = filled(dir.path());
    let root = format!("{image}:/");
    assert_eq!(text(&dentree(["checksum", &root]).stderr), "");
    for args in
        [&["checksum", "--no-progress", &root][..], &["--no-progress", "rm", "-r", &format!("{image}:/sub")]]
    {
        let Some(shown) = on_a_terminal(args) else { return };
        assert_eq!(shown, "", "{args:?}");
    }
}
