//! Programs whose standard error is gone.
//!
//! The bug: `eprintln!` panics then, so a notice on opening an image ended the command.

mod common;

use common::{Image, text};
use std::fs::File;
use std::io::pipe;
use std::process::{Command, Output, Stdio};

/// Runs the program with `args`; with `unread` standard error has no reader.
fn run(args: &[&str], stdout: Stdio, unread: bool) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_dentree"));
    let stderr = if unread { Stdio::from(pipe().unwrap().1) } else { Stdio::piped() };
    program.args(args).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    program.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn unread_messages_change_neither_output_nor_exit_status() {
    let image = Image::new(8, &["-t", "ext4"]);
    // Opening it prints a notice.
    File::options().write(true).open(&image.file).unwrap().set_len(7 << 20).unwrap();
    let root = image.at("/");
    for args in [&["ls", &root][..], &["ls", "--stats", &root], &["ls", &image.at("/none")], &["ls", "/none"]]
    {
        let read = run(args, Stdio::piped(), false);
        assert!(!read.stderr.is_empty(), "{args:?}");
        let unread = run(args, Stdio::piped(), true);
        assert_eq!(unread.status.code(), read.status.code(), "{args:?}");
        assert_eq!(text(&unread.stdout), text(&read.stdout), "{args:?}");
    }
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    assert_eq!(run(&["ls", &root], full(), false).status.code(), Some(1));
    assert_eq!(run(&["ls", &root], full(), true).status.code(), Some(1));
}
