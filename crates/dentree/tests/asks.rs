//! `cp -i` and `mv -i`, `-n` and `-u` in an image: what is replaced, as by cp(1) and mv(1).

mod common;

use common::{assert_clean, succeeds, text};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

struct Case {
    dir: TempDir,
    image: String,
}

impl Case {
    /// An image with `old` of 2001, `new` of 2020 and a directory with an `old` of 2010.
    fn new() -> Case {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img").to_str().unwrap().to_owned();
        fs::create_dir_all(dir.path().join("tree/dir")).unwrap();
        for (name, year) in [("old", 2001), ("new", 2020), ("dir/old", 2010), ("dir/new", 2010)] {
            let path = dir.path().join("tree").join(name);
            fs::write(&path, name).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs((year - 1970) * 31_557_600);
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
        }
        succeeds(["mkfs", &image, "--from", dir.path().join("tree").to_str().unwrap(), "--size", "8M"]);
        Case { dir, image }
    }

    fn at(&self, path: &str) -> String {
        format!("{}:/{path}", self.image)
    }

    fn run(&self, args: &[&str], answers: &str) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_dentree"));
        program.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that asks nothing reads nothing.
        let _ = stdin.write_all(answers.as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// The content; `None` where there is no file.
    fn content(&self, path: &str) -> Option<String> {
        let done = common::dentree(["cat", &self.at(path)]);
        done.status.success().then(|| text(&done.stdout))
    }
}

#[test]
fn cp_asks_before_each_file_that_it_would_replace() {
    let case = Case::new();
    let local = case.dir.path().join("tree/old").to_str().unwrap().to_owned();
    let done = case.run(&["cp", "-i", &local, &case.at("new"), &case.at("dir")], "n\n");
    // The end of the answers is a no.
    assert_eq!((done.status.code(), text(&done.stderr).matches("overwrite").count()), (Some(0), 2));
    assert_eq!(case.content("dir/new").as_deref(), Some("dir/new"));
    let done = case.run(&["cp", "-i", &case.at("old"), &case.at("new"), &case.at("dir")], "n\ny\n");
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stderr).matches("overwrite").count(), 2);
    assert_eq!(case.content("dir/old").as_deref(), Some("dir/old"));
    assert_eq!(case.content("dir/new").as_deref(), Some("new"));
    // A new name is no question.
    let done = case.run(&["cp", "-i", &local, &case.at("fresh")], "");
    assert!(done.status.success() && done.stderr.is_empty());
    assert_eq!(case.content("fresh").as_deref(), Some("old"));
    assert_clean(&case.image);
}

#[test]
fn mv_asks_keeps_and_compares_as_told() {
    let case = Case::new();
    let (old, new, dir) = (case.at("old"), case.at("new"), case.at("dir"));
    let done = case.run(&["mv", "-i", &old, &dir], "n\n");
    assert_eq!(text(&done.stderr).matches("overwrite").count(), 1);
    assert_eq!(
        (case.content("old").as_deref(), case.content("dir/old").as_deref()),
        (Some("old"), Some("dir/old"))
    );
    let done = case.run(&["mv", "-n", &old, &new, &dir], "");
    assert!(done.stderr.is_empty(), "{}", text(&done.stderr));
    assert_eq!(
        (case.content("new").as_deref(), case.content("dir/new").as_deref()),
        (Some("new"), Some("dir/new"))
    );
    // Only what is newer than its target.
    assert!(case.run(&["mv", "-u", &old, &new, &dir], "").status.success());
    assert_eq!(
        (case.content("old").as_deref(), case.content("dir/old").as_deref()),
        (Some("old"), Some("dir/old"))
    );
    assert_eq!((case.content("new"), case.content("dir/new").as_deref()), (None, Some("new")));
    let done = case.run(&["mv", "-i", &old, &dir], "y\n");
    assert!(done.status.success());
    assert_eq!((case.content("old"), case.content("dir/old").as_deref()), (None, Some("old")));
    assert_clean(&case.image);
}
