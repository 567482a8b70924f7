//! `dentree du` against du(1) on the kernel's mount.

mod common;
mod varied;

use common::{succeeds, text};
use std::process::Command;
use varied::varied;

/// Each line holds options of one run.
const OPTIONS: &str = "\
-a
-s
-d 0
--max-depth=1 -a
-k
-m
-b -a
-h
-h -a
--si -a
-c
-S -a
-l
--apparent-size -a
--inodes -a
-B 1000 -a
-B M -a
-BKB -a
-a --exclude=f*
-a --exclude=dir/sub
-a -t 2K
-a -t -2K
--time
--time=atime -a
--time=ctime --time-style=full-iso
--time --time-style=+%s
-a -b -c
-k -h
-x -P -D";

#[test]
fn sums_are_those_of_du() {
    let Some(image) = varied() else { return };
    // Which of its names a file counts under depends on the order of the directory.
    succeeds(["rm", &image.at("/dir/hard")]);
    let mount = image.mount("ro").unwrap();
    let sorted = |output: &[u8]| {
        let shown = text(output).replace(mount.at.to_str().unwrap(), "");
        let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    for line in OPTIONS.lines() {
        let options: Vec<&str> = line.split(' ').collect();
        let theirs = Command::new("du")
            .args(&options)
            .arg(mount.at.join("dir"))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .output()
            .unwrap();
        let at = image.at("/dir");
        let ours = succeeds(["du"].into_iter().chain(options).chain([&*at]));
        assert_eq!(sorted(&ours), sorted(&theirs.stdout), "du {line}");
    }
}

#[test]
fn what_arguments_have_in_common_counts_once() {
    let Some(image) = varied() else { return };
    let mount = image.mount("ro").unwrap();
    for arguments in
        ["-s dir/sub dir", "-c dir dir/sub", "-a dir/f1 dir/hard dir/f10 dir/f1", "-l dir/f1 dir/hard"]
    {
        let words = |place: &str| -> Vec<String> {
            let place =
                |word: &str| if word.starts_with('-') { word.to_owned() } else { format!("{place}/{word}") };
            arguments.split(' ').map(place).collect()
        };
        let ours = text(&succeeds(["du".to_owned()].into_iter().chain(words(&image.at("")))));
        let theirs = common::tool("du", words(mount.at.to_str().unwrap()));
        let theirs = text(&theirs).replace(mount.at.to_str().unwrap(), "");
        let lines = |text: &str| {
            text.lines()
                .filter(|line| !line.contains("with space") && !line.contains("sub"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&ours), lines(&theirs), "du {arguments}");
    }
}

#[test]
fn json_and_names_from_a_file_and_several_images() {
    let (Some(one), Some(two)) = (varied(), varied()) else { return };
    let list = one.dir.path().join("list");
    std::fs::write(&list, format!("{}\0{}\0", one.at("/dir/f10"), two.at("/dir/f10"))).unwrap();
    let shown = text(&succeeds(["du", "--files0-from", list.to_str().unwrap(), "-b"]));
    assert_eq!(shown, format!("12345\t{}\n12345\t{}\n", one.at("/dir/f10"), two.at("/dir/f10")));
    assert_eq!(
        text(&succeeds(["du", "--json", "-b", &one.at("/dir/f10")])),
        "{\"path\":\"/dir/f10\",\"bytes\":12345}\n"
    );
}
