//! `dentree rm`: what it asks and what it says.

mod common;

use common::{Image, dentree, succeeds, text};
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn image() -> Image {
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["mkdir", "-p", &image.at("/d/e"), &image.at("/empty")]);
    succeeds(["touch", &image.at("/a"), &image.at("/d/f")]);
    image
}

/// Runs `rm` with answers on its standard input.
fn answered(args: &[&str], answers: &str) -> Output {
    let program = Command::new(env!("CARGO_BIN_EXE_dentree"))
        .arg("rm")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut program = program.unwrap();
    program.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    program.wait_with_output().unwrap()
}

fn left(image: &Image) -> String {
    let listed = text(&succeeds(["ls", "-R", "-F", &image.at("/")]));
    listed.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_refused_stays_and_so_do_its_directories() {
    let image = image();
    let output = answered(&["-r", "-i", &image.at("/a"), &image.at("/d")], "n\ny\ny\ny\nn\n");
    assert_eq!(output.status.code(), Some(0));
    let asked = text(&output.stderr);
    assert!(asked.contains("remove regular file") && asked.contains("descend into directory"), "{asked}");
    assert!(left(&image).contains("a d/") && left(&image).contains("lost+found/"), "{}", left(&image));
    // The last option counts, and no answer is a no.
    answered(&["-f", "-i", &image.at("/a")], "");
    assert!(left(&image).contains("a "));
    answered(&["-i", "-f", &image.at("/a")], "");
    assert!(!left(&image).starts_with("a "));
}

#[test]
fn many_files_or_directories_are_asked_for_once() {
    let image = image();
    let output = answered(&["-I", "-r", &image.at("/d")], "n\n");
    assert_eq!(text(&output.stderr), "dentree: remove 1 arguments recursively? ");
    assert!(left(&image).contains("d/"));
    answered(&["-I", &image.at("/a")], "");
    answered(&["-I", "-r", &image.at("/d")], "y\n");
    assert_eq!(left(&image), "empty/ lost+found/");
}

#[test]
fn what_is_removed_is_told_and_empty_directories_need_no_r() {
    let image = image();
    let told = text(&succeeds(["rm", "-v", "-d", &image.at("/a"), &image.at("/empty")]));
    assert_eq!(told, format!("removed '{}'\nremoved directory '{}'\n", image.at("/a"), image.at("/empty")));
    let full = dentree(["rm", "-d", &image.at("/d")]);
    assert!(
        full.status.code() == Some(1) && text(&full.stderr).contains("not empty"),
        "{}",
        text(&full.stderr)
    );
    assert_eq!(dentree(["rm", "-f"]).status.code(), Some(0));
    assert_eq!(dentree(["rm"]).status.code(), Some(2));
}
