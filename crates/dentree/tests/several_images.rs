//! Commands with paths in several images say of which image each line is.

mod common;

use common::{dentree, succeeds, text};
use std::fs;
use std::path::Path;

/// Two images with a directory and a file each, and the directory that the second is made from.
fn two(dir: &Path) -> [String; 3] {
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    for name in ["a", "b"] {
        fs::create_dir_all(dir.join(name).join("sub")).unwrap();
        fs::write(dir.join(name).join("sub/file"), name).unwrap();
        succeeds(["mkfs", &at(&format!("{name}.img")), "--from", &at(name), "--size", "8M"]);
    }
    [at("a.img"), at("b.img"), at("b")]
}

#[test]
fn find_names_the_image_where_there_are_several() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b, _] = two(dir.path());
    let places = [format!("{a}:/sub"), format!("{b}:/sub")];
    let find = |rest: &[&str]| {
        let words = ["find", "--sort"].iter().copied().chain(places.iter().map(String::as_str));
        text(&succeeds(words.chain(rest.iter().copied())))
    };
    let expected = format!("{a}:/sub\n{a}:/sub/file\n{b}:/sub\n{b}:/sub/file\n");
    assert_eq!(find(&[]), expected);
    assert_eq!(find(&["-path", "/sub/file"]), format!("{a}:/sub/file\n{b}:/sub/file\n"));
    assert_eq!(find(&["-printf", "%p %H %P\n", "-quit"]), format!("{a}:/sub {a}:/sub \n"));
    assert!(find(&["-name", "file", "-ls"]).lines().all(|line| line.contains(".img:/sub/file")));
    assert_eq!(
        text(&succeeds(["find", "--sort", &places[0], &format!("{a}:/sub/file")])),
        "/sub\n/sub/file\n/sub/file\n"
    );
    // What is printed is an operand again.
    let file = find(&["-type", "f"]);
    assert_eq!(text(&succeeds([&["cat"], &file.lines().collect::<Vec<_>>()[..]].concat())), "ab");
}

#[test]
fn checksum_names_the_tree_where_there_are_several() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b, local] = two(dir.path());
    let lines = text(&succeeds(["checksum", &format!("{a}:/sub"), &format!("{b}:/sub/"), &local]));
    let paths: Vec<&str> = lines.lines().map(|line| line.split('\t').next().unwrap()).collect();
    let expected = [
        format!("{a}:/sub"),
        format!("{a}:/sub/file"),
        format!("{b}:/sub"),
        format!("{b}:/sub/file"),
        local.clone(),
        format!("{local}/sub"),
        format!("{local}/sub/file"),
    ];
    assert_eq!(paths, expected);
    let single = text(&succeeds(["checksum", &format!("{a}:/sub")]));
    assert!(single.starts_with(".\td\t") && single.contains("\n./file\tf\t"), "{single}");
    // One that is missing does not keep the others from their lines.
    let done = dentree(["checksum", &format!("{a}:/gone"), &b]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stdout).contains(&format!("{b}:/sub/file\t")));
}
