//! The kernel's tools read attributes set here, and `e2fsck` finds nothing.

use crate::common::Image;
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use dentree_vfs::{FileSystem, SetAttr, SetTime, Timestamp};
use std::process::Command;
use std::sync::Arc;

#[test]
fn attributes_are_set_without_a_journal() {
    let image =
        Image::new("-t ext4 -O ^has_journal", "8M", |tree| std::fs::write(tree.join("file"), "x").unwrap());
    let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let clock = Clock::Fixed(InodeTime { seconds: 1_700_000_000, nanos: 7 });
    let fs = Ext4::open(Arc::new(device), Options { writable: true, clock, ..Options::default() }).unwrap();
    let root = fs.load(fs.root()).unwrap();
    let file = fs.lookup(&root, b"file").unwrap().unwrap();
    let node = fs.load(file.ino).unwrap();
    let mtime = Timestamp { seconds: 5_000_000_000, nanos: 123_456_789 };
    let changes = SetAttr {
        permissions: Some(0o4751),
        uid: Some(70_000),
        gid: Some(80_000),
        mtime: Some(SetTime::At(mtime)),
        ..SetAttr::default()
    };
    fs.set_attr(&node, &changes).unwrap();
    assert_eq!(fs.attr(&node).permissions, 0o4751);
    fs.sync().unwrap();
    drop(fs);

    let check = Command::new("e2fsck").arg("-fn").arg(image.path()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    let stat = image.debugfs("stat /file\n");
    assert!(stat.contains("Mode:  04751"), "{stat}");
    assert!(stat.contains("User: 70000   Group: 80000"), "{stat}");
    let again = image.open();
    let attr = again.attr(&again.load(file.ino).unwrap());
    assert_eq!((attr.mtime, attr.ctime.seconds, attr.ctime.nanos), (mtime, 1_700_000_000, 7));
}
