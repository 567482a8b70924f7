//! What the journal holds, against `debugfs logdump`.

mod common;

use common::{Image, can_mount, dentree, succeeds, text, tool};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn sync(root: &Path) {
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

/// Transaction and block of each copy that debugfs prints of the whole log.
fn logdump(image: &Image) -> BTreeSet<(u32, u64)> {
    let said = text(&tool("debugfs", ["-R", "logdump -aO", image.file.to_str().unwrap()]));
    let (mut transaction, mut found) = (0, BTreeSet::new());
    for line in said.lines() {
        if let Some(rest) = line.strip_prefix("Found expected sequence ") {
            transaction = rest.split(',').next().unwrap().parse().unwrap();
        } else if let Some(rest) = line.trim().strip_prefix("FS block ") {
            found.insert((transaction, rest.split(' ').next().unwrap().parse().unwrap()));
        }
    }
    found
}

#[test]
fn the_log_has_the_transactions_and_blocks_that_debugfs_finds() {
    if !can_mount() {
        return;
    }
    for options in
        [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024", "-O", "^64bit"], &["-t", "ext3", "-b", "1024"]]
    {
        let image = Image::new(64, options);
        let mount = image.mount("rw").unwrap();
        for round in 0..6 {
            for n in 0..20 {
                fs::write(mount.at.join(format!("file-{round}-{n}")), vec![1; 3000]).unwrap();
            }
            sync(&mount.at);
        }
        drop(mount);
        let theirs = logdump(&image);
        let shown = text(&succeeds(["journal", "show", image.file.to_str().unwrap()]));
        let number = |line: &str, at: usize| line.split('\t').nth(at).unwrap().parse::<u64>().unwrap();
        let ours: BTreeSet<(u32, u64)> =
            shown.lines().map(|line| (u32::try_from(number(line, 0)).unwrap(), number(line, 1))).collect();
        assert!(theirs.len() > 20, "{options:?}: {theirs:?}");
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{options:?}: {missing:?}");
        let listed = text(&succeeds(["journal", "ls", image.file.to_str().unwrap()]));
        let all: BTreeSet<u32> =
            listed.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect();
        assert!(theirs.iter().all(|(transaction, _)| all.contains(transaction)), "{listed}");
        assert!(listed.lines().all(|line| line.contains("\told\t")), "{listed}");
    }
}

#[test]
fn the_versions_of_an_inode_are_what_it_was() {
    if !can_mount() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    let mount = image.mount("rw").unwrap();
    let path = mount.at.join("file");
    let mut sizes = Vec::new();
    for len in [100, 20_000, 50_000] {
        fs::write(&path, vec![1; len]).unwrap();
        sync(&mount.at);
        sizes.push(len.to_string());
    }
    let ino = fs::metadata(&path).unwrap().ino().to_string();
    drop(mount);
    let show = |words: &[&str]| {
        let image = image.file.to_str().unwrap();
        dentree([&["journal", "show", image][..], words].concat())
    };
    let versions = text(&show(&["--inode", &ino]).stdout);
    let mut found: Vec<String> =
        versions.lines().map(|line| line.split('\t').nth(3).unwrap().to_owned()).collect();
    found.dedup();
    assert!(sizes.iter().all(|size| found.contains(size)), "{versions}");
    let superblock = show(&["--block", "1"]);
    assert!(superblock.status.success(), "{}", text(&superblock.stderr));
    let dumped = show(&["--block", "1", "--dump"]).stdout;
    assert_eq!(dumped.len(), 1024);
    let none = show(&["--inode", "900"]);
    assert!(text(&none.stderr).contains("holds no version of inode 900"), "{}", text(&none.stderr));
    let plain = Image::new(8, &["-t", "ext2"]);
    let refused = dentree(["journal".as_ref(), "ls".as_ref(), plain.file.as_os_str()]);
    assert!(text(&refused.stderr).contains("no journal"), "{}", text(&refused.stderr));
}
