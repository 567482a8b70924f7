//! `dentree cp` compared with cp(1): what happens to an existing target, and what is read from a
//! source that is no regular file.
//!
//! A case is a shell script. It runs once with the system's cp on local files, and once with
//! `dentree cp` where one side is an image. Both must end alike, print alike and leave the same.

mod common;

use common::{Image, assert_clean, assert_same_lines, succeeds, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Sources in the image.
const SOURCES: &str = "
mkdir src src/dir src/other; printf new >src/file; chmod 640 src/file; printf sub >src/dir/sub; ln -s file src/link
ln -s nowhere src/dangling; printf other >src/other/file; ln -s /dev/null src/other/link; printf second >src/dir/link
truncate -s 300000 src/holes; printf end >>src/holes; ln -s dir src/dirlink; touch src/empty";

/// Existing targets.
const TARGETS: &str = "
printf old-and-longer >file; chmod 604 file; ln file hard; ln -s file link; ln -s nowhere dangling; ln -s self self
mkdir dir dir/full; printf old >dir/file; ln dir/file dir/hard; ln -s dir dirlink; printf kept >alone; mkfifo pipe; ln -s pipe pipelink
mkdir links; printf kept >victim; ln -s ../victim links/file; ln -s ../nowhere links/empty; mkdir tree; printf kept >tree/sub";

fn has_bash() -> bool {
    let has = Command::new("bash").arg("--version").output().is_ok();
    if !has {
        println!("skipped: bash is not installed");
    }
    has
}

fn bash(dir: &Path, script: &str, words: &[(&str, &str)]) -> Output {
    let mut script = script.to_owned();
    for (word, meaning) in words {
        script = script.replace(word, meaning);
    }
    // Ends commands that a failure leaves waiting on a pipe.
    Command::new("timeout").args(["60", "bash", "-c", &script]).current_dir(dir).output().unwrap()
}

fn prepare(dir: &Path, script: &str) {
    let done = bash(dir, &format!("set -e\n{script}"), &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// Type, mode, number of names, target and content of everything below `dir`.
fn description(dir: &Path) -> Vec<u8> {
    let script = r"find . -mindepth 1 -printf '%P|%y|%m|%n|%l\n' | sort
        find . -type f -print0 | sort -z | xargs -0 -r sha256sum";
    bash(dir, script, &[]).stdout
}

/// The value of `CP` for `dentree cp`, which is always recursive.
const OURS: [(&str, &str); 3] = [("CP -rH", PROGRAM), ("CP -r", PROGRAM), ("CP", PROGRAM)];
const PROGRAM: &str = concat!(env!("CARGO_BIN_EXE_dentree"), " cp");
const THEIRS: [(&str, &str); 1] = [("CP", "cp")];

fn same_end(case: &str, ours: &Output, theirs: &Output) {
    let codes = (ours.status.code(), theirs.status.code());
    assert_eq!(codes.0, codes.1, "{case}\nours: {}theirs: {}", text(&ours.stderr), text(&theirs.stderr));
    assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{case}");
}

/// Runs each case with the sources in an image (`SRC/`) and local targets.
fn out_of_an_image(cases: &[&str]) {
    let image = Image::new(32, &["-t", "ext4"]);
    prepare(image.dir.path(), SOURCES);
    let sources = image.dir.path().join("src");
    succeeds(["cp", "-a", sources.to_str().unwrap(), &image.at("/")]);
    for case in cases {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = |dir: &Path, cp: &[(&str, &str)], src: &str| {
            prepare(dir, TARGETS);
            (bash(dir, case, &[cp, &[("SRC", src)]].concat()), description(dir))
        };
        let (ended, shown) = run(here.path(), &OURS, &image.at("/src"));
        let (expected, expected_shown) = run(there.path(), &THEIRS, sources.to_str().unwrap());
        println!("{case}: {}{}", text(&ended.stderr), text(&expected.stderr));
        same_end(case, &ended, &expected);
        assert_same_lines(&shown, &expected_shown);
    }
}

#[test]
fn a_target_on_this_machine_is_written_as_cp_writes_it() {
    if !has_bash() {
        return;
    }
    out_of_an_image(&[
        "CP SRC/file file",
        "CP SRC/file hard",
        "CP SRC/file link",
        "CP SRC/file dangling",
        "CP SRC/file self",
        "CP SRC/empty file",
        "CP SRC/holes file",
        "CP SRC/file dir",
        "CP SRC/file dir/",
        "CP SRC/file dirlink",
        "CP SRC/file fresh",
        "CP SRC/file nowhere/",
        "CP SRC/file links",
        "CP SRC/empty links",
        "CP SRC/link link",
        "CP SRC/link fresh",
        "CP SRC/dangling fresh",
        "CP -r SRC/dir file",
        "CP -r SRC/dir tree",
        "CP -r SRC/dir/. tree",
        "CP -rH SRC/dirlink fresh",
        "CP SRC/file SRC/other/file links",
        "CP SRC/file SRC/other/file dir",
        "mkdir new; CP SRC/file SRC/other/file new",
        "mkdir new; CP SRC/file SRC/empty new",
        "CP --remove-destination SRC/file file",
        "CP --remove-destination SRC/file link",
        "CP --remove-destination SRC/file dangling",
        "CP --remove-destination SRC/file pipe",
        "CP --remove-destination SRC/file links",
        "CP --remove-destination SRC/file dir",
        "CP -r --remove-destination SRC/dir/. tree",
    ]);
}

#[test]
fn an_archive_copy_treats_a_target_on_this_machine_as_cp_does() {
    if !has_bash() {
        return;
    }
    out_of_an_image(&[
        "CP -a SRC/file file",
        "CP -a SRC/file alone",
        "CP -a SRC/file dangling",
        "CP -a SRC/link fresh",
        "CP -a SRC/link file",
        "CP -a SRC/link link",
        "CP -a SRC/link dangling",
        "CP -a SRC/link pipe",
        "CP -a SRC/link dir/full",
        "CP -a SRC/dangling fresh",
        "mkdir new; CP -a SRC/link SRC/dir/link new",
        "mkdir new; CP -a SRC/other/link SRC/dir/link new",
        "CP -a --remove-destination SRC/file link",
    ]);
}

/// Links to devices stand for devices, which a replaced target would destroy.
#[test]
fn a_pipe_a_device_and_standard_output_are_written_to() {
    if !has_bash() {
        return;
    }
    out_of_an_image(&[
        "ln -s /dev/stdout out; CP SRC/file out",
        "ln -s /dev/stdout out; CP SRC/holes out | sha256sum",
        "ln -s /dev/stdout out; CP SRC/file out >file",
        "ln -s /dev/null null; CP SRC/file null; CP SRC/file SRC/empty null",
        "CP SRC/file /proc/self/fd/1",
        "cat pipe >got & CP SRC/file pipe; wait",
        "cat pipe >got & CP SRC/holes pipe; wait",
        "cat pipe >got & CP SRC/file pipelink; wait",
        "CP SRC/file >(cat >got); wait; sync; until test -s got; do :; done",
    ]);
    // cp(1) gives a pipe the mode of the source; ours changes regular files only.
    let image = Image::new(8, &["-t", "ext4"]);
    prepare(image.dir.path(), TARGETS);
    succeeds(["cp", "-a", image.dir.path().join("file").to_str().unwrap(), &image.at("/file")]);
    let script = "chmod 622 pipe; cat pipe & CP -a SRC/file pipe; wait; stat -c %a pipe";
    let done = bash(image.dir.path(), script, &[OURS[2], ("SRC", &image.at(""))]);
    assert_eq!(text(&done.stdout), "old-and-longer622\n", "{}", text(&done.stderr));
}

#[test]
fn the_image_is_not_written_over_by_what_is_in_it() {
    let image = Image::new(8, &["-t", "ext4"]);
    let local = image.dir.path().join("local");
    fs::write(&local, "local").unwrap();
    succeeds(["cp", local.to_str().unwrap(), &image.at("/file")]);
    let link = image.dir.path().join("link");
    std::os::unix::fs::symlink(&image.file, &link).unwrap();
    let before = fs::read(&image.file).unwrap();
    for target in [&image.file, &link] {
        let refused = common::dentree(["cp", &image.at("/file"), target.to_str().unwrap()]);
        let message = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && message.contains("the image itself"), "{message}");
        assert!(fs::read(&image.file).unwrap() == before);
    }
}

/// Runs each case with local sources (`SRC/`) and the targets in an image (`DST/`).
fn into_an_image(cases: &[&str]) {
    let top = tempfile::tempdir().unwrap();
    prepare(top.path(), SOURCES);
    prepare(top.path(), "mkfifo src/pipe");
    let sources = top.path().join("src");
    for case in cases {
        let image = Image::new(32, &["-t", "ext4"]);
        let dir = |name: &str| {
            let dir = image.dir.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        };
        let (twin, back) = (dir("twin"), dir("back"));
        prepare(&twin, TARGETS);
        succeeds(["cp", "-a", &format!("{}/.", twin.display()), &image.at("/")]);
        let run = |cp: &[(&str, &str)], target: &str| {
            let words = [("SRC", sources.to_str().unwrap()), ("DST", target)];
            bash(top.path(), case, &[cp, &words].concat())
        };
        let ended = run(&OURS, &image.at(""));
        let expected = run(&THEIRS, twin.to_str().unwrap());
        println!("{case}: {}{}", text(&ended.stderr), text(&expected.stderr));
        same_end(case, &ended, &expected);
        succeeds(["cp", "-a", &image.at("/"), back.to_str().unwrap()]);
        fs::remove_dir(back.join("lost+found")).unwrap();
        assert_same_lines(&description(&back), &description(&twin));
        assert_clean(&image.file);
    }
}

#[test]
fn a_target_in_an_image_is_written_as_cp_writes_it() {
    if !has_bash() {
        return;
    }
    into_an_image(&[
        "CP SRC/file DST/file",
        "CP SRC/file DST/hard",
        "CP SRC/file DST/link",
        "CP SRC/file DST/dangling",
        "CP SRC/file DST/self",
        "CP SRC/empty DST/file",
        "CP SRC/holes DST/file",
        "CP SRC/file DST/dir",
        "CP SRC/file DST/dir/",
        "CP SRC/file DST/fresh",
        "CP SRC/file DST/nowhere/",
        "CP SRC/file DST/links",
        "CP SRC/empty DST/links",
        "CP -r SRC/dir DST/file",
        "CP -r SRC/dir/. DST/tree",
        "CP -rH SRC/dirlink DST/fresh",
        "CP SRC/file SRC/other/file DST/dir",
        "CP SRC/file SRC/other/file DST/tree",
        "CP --remove-destination SRC/file DST/file",
        "CP --remove-destination SRC/file DST/link",
        "CP --remove-destination SRC/file DST/pipe",
        "CP --remove-destination SRC/file DST/links",
        "CP --remove-destination SRC/file DST/dir",
        "CP -a SRC/file DST/file",
        "CP -a SRC/file DST/alone",
        "CP -a SRC/file DST/dangling",
        "CP -a SRC/link DST/file",
        "CP -a SRC/link DST/dangling",
        "CP -a SRC/link DST/dir/full",
        "CP -a SRC/other/link SRC/dir/link DST/tree",
    ]);
}

#[test]
fn an_operand_is_followed_unless_archived() {
    if !has_bash() {
        return;
    }
    into_an_image(&[
        "echo piped | CP /dev/stdin DST/fresh",
        "echo piped | CP /dev/stdin DST/file",
        "CP /dev/stdin DST/fresh <SRC/file",
        "CP <(echo substituted) DST/fresh",
        "CP <(seq 100000) DST/fresh",
        "CP <(true) DST/fresh",
        "echo named >SRC/pipe & CP SRC/pipe DST/fresh; wait",
        "CP SRC/link DST/fresh",
        "CP SRC/link DST/dir",
        "CP SRC/dangling DST/fresh",
        "CP /dev/null DST/fresh",
        "CP /dev/null DST/file",
        "CP /proc/version DST/fresh",
        "CP -a SRC/link DST/fresh",
        "CP -a SRC/pipe DST/fresh",
        "CP -a /dev/null DST/fresh",
    ]);
}

#[test]
fn a_dash_is_standard_input_or_output() {
    let image = Image::new(16, &["-t", "ext4"]);
    let to = image.at("/file");
    let from_us = |args: &[&str], input: &'static [u8]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dentree"));
        command.args(args).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}");
        output.stdout
    };
    assert!(from_us(&["cp", "-", &to], b"streamed").is_empty());
    assert_eq!(from_us(&["cp", &to, "-"], b""), b"streamed");
    assert_eq!(from_us(&["cat", &to, "-", &to], b" and "), b"streamed and streamed");
}
