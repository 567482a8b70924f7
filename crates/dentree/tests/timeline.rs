//! `dentree find --timeline` beside fls(1) and mactime(1) of The Sleuth Kit, where they are
//! installed.

mod common;

use common::{Image, succeeds, text, tool};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

fn is_installed(program: &str) -> bool {
    let run = Command::new(program).arg("-V").output();
    if let Err(error) = &run {
        println!("skipped: {program}: {error}");
    }
    run.is_ok()
}

/// An image with all kinds of files, special permissions and times of four different years.
fn image() -> Image {
    let image = Image::new(16, &["-t", "ext4", "-I", "256"]);
    fs::write(image.dir.path().join("content"), "content").unwrap();
    let content = image.dir.path().join("content");
    image.debugfs(&[
        "mkdir dir",
        "cd dir",
        "mkdir below",
        &format!("write {} file", content.display()),
        &format!("write {} other", content.display()),
        "symlink link ../dir/file",
        "ln file again",
        "mknod pipe p",
        "mknod char c 1 3",
        "mknod block b 7 0",
        "cd /",
        "set_inode_field dir/file mode 0104751",
        "set_inode_field dir/file uid 1000",
        "set_inode_field dir/file gid 100",
        "set_inode_field dir/file atime 20010909014640",
        "set_inode_field dir/file mtime 20020909014640",
        "set_inode_field dir/file ctime 20030909014640",
        "set_inode_field dir/file crtime 20040909014640",
        "set_inode_field dir mode 041777",
    ]);
    image
}

#[test]
fn a_bodyfile_is_the_one_of_fls() {
    if !is_installed("fls") {
        return;
    }
    let image = image();
    let theirs = text(&tool("fls", ["-r", "-m", "/", image.file.to_str().unwrap()]));
    // The directory of orphans is fls's own.
    let theirs: BTreeSet<&str> = theirs.lines().filter(|line| !line.contains("$OrphanFiles")).collect();
    let ours = text(&succeeds(["find", &image.at("/"), "-mindepth", "1", "--timeline"]));
    assert_eq!(ours.lines().collect::<BTreeSet<_>>(), theirs);
    assert!(theirs.len() >= 10);
}

#[test]
fn mactime_has_a_line_for_each_time_of_a_bodyfile() {
    if !is_installed("mactime") {
        return;
    }
    let image = image();
    let body = image.dir.path().join("body");
    fs::write(&body, succeeds(["find", &image.at("/dir/file"), "--timeline"])).unwrap();
    let lines = text(&tool("mactime", ["-d", "-z", "UTC", "-b", body.to_str().unwrap()]));
    let found: Vec<(&str, &str)> = lines
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .map(|fields| (fields[0], fields[2]))
        .collect();
    let expected = [
        ("Sun Sep 09 2001 01:46:40", ".a.."),
        ("Mon Sep 09 2002 01:46:40", "m..."),
        ("Tue Sep 09 2003 01:46:40", "..c."),
        ("Thu Sep 09 2004 01:46:40", "...b"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn names_stay_in_their_field_of_a_bodyfile() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("disk.img"));
    fs::create_dir(&tree).unwrap();
    for name in ["bar|r", "new\nline", "escape\x1b[2J"] {
        fs::write(tree.join(name), "").unwrap();
    }
    let (tree, image) = (tree.to_str().unwrap(), image.to_str().unwrap());
    succeeds(["mkfs", image, "--from", tree, "--size", "8M"]);
    let body = text(&succeeds(["find", image, "--timeline", "-type", "f"]));
    assert_eq!(body.lines().count(), 3);
    assert!(body.lines().all(|line| line.split('|').count() == 11), "{body}");
}

#[cfg(feature = "formats")]
#[test]
fn a_table_of_a_timeline_has_a_row_for_each_time_in_their_order() {
    let image = image();
    let words = ["find", &image.at("/dir/file"), "--timeline", "--format", "csv", "--columns", "path"];
    let expected = "time,stamp,path\n\
        2001-09-09T01:46:40Z,a,/dir/file\n\
        2002-09-09T01:46:40Z,m,/dir/file\n\
        2003-09-09T01:46:40Z,c,/dir/file\n\
        2004-09-09T01:46:40Z,b,/dir/file\n";
    assert_eq!(text(&succeeds(words)), expected);
}
