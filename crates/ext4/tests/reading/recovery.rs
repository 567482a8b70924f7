//! An image that needs recovery is shown as by the kernel after replay, and not changed.

use crate::common::{Image, compare};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Notice, Options};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// These changes stay in the journal.
fn work(tree: &Path, round: usize) {
    let dir = tree.join(format!("round {round}"));
    fs::create_dir(&dir).unwrap();
    for n in 0..300 {
        fs::write(dir.join(format!("file {n}")), format!("{n}").repeat(n)).unwrap();
    }
    for n in (0..300).step_by(3) {
        fs::remove_file(dir.join(format!("file {n}"))).unwrap();
    }
    if round > 0 {
        fs::remove_dir_all(tree.join(format!("round {}", round - 1))).unwrap();
    }
    let file = fs::File::create(tree.join("synced")).unwrap();
    fs::write(tree.join("synced"), vec![b'0' + u8::try_from(round).unwrap(); 100_000]).unwrap();
    file.sync_all().unwrap();
}

fn crash(options: &str, mount_options: &str) {
    let image = Image::new(options, "64M", |_| {});
    let crashed = image.beside("crashed");
    let made = image.change(mount_options, |tree| {
        for round in 0..4 {
            work(tree, round);
        }
        fs::copy(image.path(), crashed.path()).unwrap();
    });
    if made.is_none() {
        return;
    }
    let before = fs::read(crashed.path()).unwrap();
    let ours = crashed.open();
    let replayed = |notice: &Notice| matches!(notice, Notice::JournalReplayed { blocks, .. } if *blocks > 0);
    assert!(ours.notices().iter().any(replayed), "{:?}", ours.notices());
    let theirs = image.beside("theirs");
    fs::copy(crashed.path(), theirs.path()).unwrap();
    let mount = theirs.mount_and_replay().unwrap();
    compare(&ours, mount.path());
    assert!(fs::read(crashed.path()).unwrap() == before, "the image was changed");
}

#[test]
fn a_journal_with_checksums_is_replayed_as_by_the_kernel() {
    crash("-t ext4 -b 1024", "");
}

#[test]
fn a_data_journal_is_replayed_as_by_the_kernel() {
    crash("-t ext4 -b 4096", "data=journal");
}

#[test]
fn a_journal_without_checksums_is_replayed_as_by_the_kernel() {
    crash("-t ext3 -b 1024", "");
    crash("-t ext4 -b 1024 -O ^metadata_csum,^64bit", "");
}

#[test]
fn a_journal_with_fast_commits_is_replayed_or_refused_by_name() {
    let image = Image::new("-t ext4 -b 1024 -O fast_commit", "64M", |_| {});
    let crashed = image.beside("crashed");
    let made = image.change("", |tree| {
        work(tree, 0);
        fs::copy(image.path(), crashed.path()).unwrap();
    });
    if made.is_none() {
        return;
    }
    match crashed.try_open() {
        Ok(fs) => assert!(!fs.notices().is_empty()),
        Err(error) => assert!(error.to_string().contains("fast commit"), "{error}"),
    }
}

#[test]
fn without_replay_the_raw_image_is_shown() {
    let image = Image::new("-t ext4 -b 1024", "64M", |_| {});
    let crashed = image.beside("crashed");
    let made = image.change("", |tree| {
        work(tree, 0);
        fs::copy(image.path(), crashed.path()).unwrap();
    });
    if made.is_some() {
        let device = Arc::new(FileDevice::open(crashed.path(), Access::ReadOnly).unwrap());
        let fs = Ext4::open(device, Options { replay_journal: false, ..Options::default() }).unwrap();
        assert_eq!(fs.notices(), []);
    }
}
