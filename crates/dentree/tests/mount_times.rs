//! Times on the mount: it shows what the image holds, so they are the same after the next mount.
//!
//! The bug: inodes of 128 bytes showed nanoseconds until the next mount, and those of 256 the years
//! 1800 and 2600.

mod common;
mod mounts;

use common::{Image, assert_clean};
use dentree_testing::{Global, drop_caches, wait_until};
use mounts::{Mounted, mountable};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// The years 1800, 1960, 2020, 2100 and 2600.
const SECONDS: [i64; 5] = [-5_364_662_400, -315_619_200, 1_577_836_800, 4_102_444_800, 19_880_899_200];

fn make(root: &Path) {
    for seconds in SECONDS {
        fs::write(root.join(format!("file{seconds}")), "x").unwrap();
        fs::create_dir(root.join(format!("dir{seconds}"))).unwrap();
        symlink("file0", root.join(format!("link{seconds}"))).unwrap();
        for kind in ["file", "dir", "link"] {
            let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
            let times = Timestamps { last_access: time, last_modification: time };
            let path = root.join(format!("{kind}{seconds}"));
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
    // With times of the local clock.
    fs::write(root.join("written"), "x").unwrap();
}

/// Access, modification and change time of everything.
fn times(root: &Path) -> Vec<(String, [(i64, i64); 3])> {
    let mut all: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            let times = [
                (found.atime(), found.atime_nsec()),
                (found.mtime(), found.mtime_nsec()),
                (found.ctime(), found.ctime_nsec()),
            ];
            (entry.file_name().into_string().unwrap(), times)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn times_are_the_same_after_the_next_mount() {
    if !mountable() {
        return;
    }
    let alone = Global::caches_go();
    for (inode_size, last) in [("128", 0x7FFF_FFFF), ("256", 0x3_7FFF_FFFF)] {
        let image = Image::new(32, &["-t", "ext4", "-I", inode_size]);
        let mut ours = Mounted::new(&image.file, &[]);
        make(ours.path());
        let mut shown = times(ours.path());
        // For a cached regular file the kernel keeps the modification time that was set.
        for (_, [_, mtime, _]) in shown.iter_mut().filter(|(name, _)| name.starts_with("file")) {
            let seconds = mtime.0.clamp(-0x8000_0000, last);
            *mtime = (seconds, if seconds == mtime.0 { mtime.1 } else { 0 });
        }
        wait_until("forgotten by the kernel and shown as it is stored", || {
            drop_caches(&alone);
            times(ours.path()) == shown
        });
        ours.signal(Signal::INT);
        assert!(ours.wait().success());
        assert_clean(&image.file);
        let kernels = image.mount("ro").unwrap();
        assert_eq!(shown, times(&kernels.at), "inodes of {inode_size} bytes");
    }
}
