//! Times that an inode cannot hold are stored as by the kernel, and shown so.
//!
//! The bug: in inodes of 128 bytes the year 2100 became 1963, and years before 1901 or after 2446
//! were shown until the next mount.

use crate::common::fsck::is_clean;
use crate::common::writing::{node, open};
use crate::common::{Image, compare};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use dentree_vfs::{Attr, FileSystem, NewInode, NewKind, SetAttr, SetTime, SetXattr, Timestamp};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::sync::Arc;

/// The limits of inodes, and beyond; 1800, 2100 and 2600.
const SECONDS: [i64; 14] = [
    -5_364_662_400,
    -0x8000_0001,
    -0x8000_0000,
    -0x7FFF_FFFF,
    -1,
    0,
    0x7FFF_FFFE,
    0x7FFF_FFFF,
    0x8000_0000,
    4_102_444_800,
    0x3_7FFF_FFFE,
    0x3_7FFF_FFFF,
    0x3_8000_0000,
    19_880_899_200,
];

const NANOS: u32 = 123_456_789;

const KINDS: [&str; 4] =
    ["-t ext4 -I 128", "-t ext2 -I 128", "-t ext4 -I 256 -b 1024", "-t ext4 -I 1024 -O inline_data"];

fn name(seconds: i64) -> String {
    format!("at{seconds}")
}

fn at(seconds: i64) -> Option<SetTime> {
    Some(SetTime::At(Timestamp { seconds, nanos: NANOS }))
}

/// The time of change is the machine's.
fn set(attr: &Attr) -> [Timestamp; 2] {
    [attr.atime, attr.mtime]
}

fn image(options: &str) -> Image {
    Image::new(options, "16M", |tree| {
        for seconds in SECONDS {
            std::fs::write(tree.join(name(seconds)), "x").unwrap();
        }
    })
}

#[test]
fn a_set_time_is_shown_as_stored_and_clamped_like_the_kernels() {
    for options in KINDS {
        let (ours, theirs) = (image(options), image(options));
        let fs = open(&ours);
        let shown = SECONDS.map(|seconds| {
            let file = node(&fs, &name(seconds));
            let changes = SetAttr { atime: at(seconds), mtime: at(seconds), ..SetAttr::default() };
            fs.set_attr(&file, &changes).unwrap();
            fs.attr(&file)
        });
        fs.close().unwrap();
        drop(fs);
        is_clean(&ours.path()).unwrap();
        let again = ours.open();
        for (seconds, shown) in SECONDS.into_iter().zip(&shown) {
            assert_eq!(*shown, again.attr(&node(&again, &name(seconds))), "{options}: {seconds}");
        }
        ours.agrees_with_the_kernel();
        let kernels = theirs.change("noatime", |mount| {
            for seconds in SECONDS {
                let time = Timespec { tv_sec: seconds, tv_nsec: NANOS.into() };
                let times = Timestamps { last_access: time, last_modification: time };
                utimensat(CWD, mount.join(name(seconds)), &times, AtFlags::empty()).unwrap();
            }
        });
        if kernels.is_none() {
            continue;
        }
        let kernels = theirs.open();
        for (seconds, shown) in SECONDS.into_iter().zip(&shown) {
            let theirs = kernels.attr(&node(&kernels, &name(seconds)));
            assert_eq!(set(shown), set(&theirs), "{options}: {seconds}");
        }
    }
}

#[test]
fn an_inode_of_128_bytes_shows_the_times_it_can_hold() {
    let image = image("-t ext4 -I 256");
    let old = name(0);
    image.debugfs(&format!("sif {old} extra_isize 0\n"));
    let fs = open(&image);
    let file = node(&fs, &old);
    fs.set_attr(&file, &SetAttr { mtime: at(4_102_444_800), ..SetAttr::default() }).unwrap();
    let shown = fs.attr(&file);
    assert_eq!(shown.mtime, Timestamp { seconds: 0x7FFF_FFFF, nanos: 0 });
    fs.close().unwrap();
    drop(fs);
    is_clean(&image.path()).unwrap();
    let again = image.open();
    assert_eq!(shown, again.attr(&node(&again, &old)));
    image.agrees_with_the_kernel();
}

#[test]
fn changes_of_an_inode_past_2038_keep_its_times() {
    let clock = Clock::Fixed(InodeTime { seconds: 4_102_444_800, nanos: NANOS });
    for options in KINDS {
        let image = image(options);
        let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
        let options_of_fs = Options { writable: true, clock, ..Options::default() };
        let fs = Ext4::open(Arc::new(device), options_of_fs).unwrap();
        let root = fs.load(fs.root()).unwrap();
        let file = node(&fs, &name(0));
        fs.write(&file, 5000, b"more").unwrap();
        fs.link(&root, b"link", &file).unwrap();
        fs.setxattr(&file, b"user.name", b"value", SetXattr::Any).unwrap();
        let new = NewInode { kind: NewKind::Directory, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] };
        let dir = fs.create(&root, b"dir", &new).unwrap();
        let shown = [&root, &file, &dir].map(|node| fs.attr(node));
        fs.close().unwrap();
        drop((root, file, dir, fs));
        let again = image.open();
        let stored = ["", &name(0), "dir"].map(|path| again.attr(&crate::common::find(&again, path)));
        assert_eq!(shown, stored, "{options}");
        if let Some(mount) = image.mount() {
            compare(&again, mount.path());
        }
    }
}
