//! A directory's times follow the coarse clock: one tick writes its inode once.

use crate::common::writing::{OURS, new_image};
use dentree_blockdev::{MemoryDevice, RecordingDevice, Survivors};
use dentree_ext4::{Clock, Ext4, InodeTime, Node, Options};
use dentree_vfs::{Durability, FileSystem, NewInode, NewKind};
use std::sync::Arc;

const NOON: Clock = Clock::Fixed(InodeTime { seconds: 1_700_000_000, nanos: 7 });

fn options(clock: Clock) -> Options {
    Options { writable: true, clock, ..Options::default() }
}

fn image() -> Vec<u8> {
    std::fs::read(new_image(OURS, "32M").path()).unwrap()
}

fn open(clock: Clock) -> Ext4 {
    Ext4::open(Arc::new(MemoryDevice::from(image())), options(clock)).unwrap()
}

fn make_as(fs: &Ext4, dir: &Node, name: &str, kind: NewKind<'_>) -> Node {
    let new = NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] };
    fs.create(dir, name.as_bytes(), &new).unwrap()
}

fn make_dir(fs: &Ext4) -> Node {
    make_as(fs, &fs.load(fs.root()).unwrap(), "dir", NewKind::Directory)
}

fn make(fs: &Ext4, dir: &Node, name: &str) -> Node {
    make_as(fs, dir, name, NewKind::Regular)
}

/// A name changes a leaf, an inode and a bitmap. The directory's inode would be a fourth block.
#[test]
fn names_made_in_one_tick_write_the_inode_of_their_directory_once() {
    let fs = open(NOON);
    let dir = make_dir(&fs);
    make(&fs, &dir, "first");
    let before = fs.buffer_stats().changes;
    for number in 0..50 {
        make(&fs, &dir, &format!("{number}"));
    }
    let changes = fs.buffer_stats().changes - before;
    assert!((3 * 50..3 * 50 + 25).contains(&changes), "{changes} changes for 50 files");
}

/// The second name does not change the directory's inode; fsync must wait for it all the same.
#[test]
fn an_fsync_of_a_directory_waits_for_entries_that_did_not_change_its_inode() {
    let device = Arc::new(RecordingDevice::new(image()));
    let fs = Ext4::open(device.clone(), options(NOON)).unwrap();
    let dir = make_dir(&fs);
    for name in ["first", "second"] {
        make(&fs, &dir, name);
        fs.fsync(&dir, Durability::Full).unwrap();
    }
    let left = device.recording().replay().image(usize::MAX, Survivors::None);
    let again = Ext4::open(Arc::new(MemoryDevice::from(left)), options(NOON)).unwrap();
    let root = again.load(again.root()).unwrap();
    let dir = again.load(again.lookup(&root, b"dir").unwrap().expect("the directory was lost").ino).unwrap();
    for name in ["first", "second"] {
        assert!(again.lookup(&dir, name.as_bytes()).unwrap().is_some(), "{name} was lost");
    }
}

#[test]
fn a_later_tick_shows_in_the_directory() {
    let fs = open(Clock::System);
    let dir = make_dir(&fs);
    make(&fs, &dir, "first");
    let before = fs.attr(&dir);
    assert_eq!(before.mtime, before.ctime);
    let mut number = 0;
    // Some file is in a later tick.
    while fs.attr(&make(&fs, &dir, &format!("{number}"))).mtime <= before.mtime {
        number += 1;
    }
    let after = fs.attr(&dir);
    assert!(after.mtime > before.mtime && after.ctime == after.mtime, "{before:?}, then {after:?}");
}

#[test]
fn directory_times_never_go_back() {
    let fs = &open(Clock::System);
    let dir = &make_dir(fs);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut before = fs.attr(dir);
                for number in 0..300 {
                    let made = fs.attr(&make(fs, dir, &format!("{thread}.{number}")));
                    let now = fs.attr(dir);
                    assert!(
                        now.mtime >= before.mtime && now.ctime >= before.ctime,
                        "{before:?}, then {now:?}"
                    );
                    assert!(now.mtime >= made.mtime, "{made:?} is younger than its directory: {now:?}");
                    before = now;
                }
            });
        }
    });
}
