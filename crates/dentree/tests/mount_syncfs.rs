//! syncfs(2) on a mount: the kernel writes back, without telling the server why.

mod mounts;
mod writing;

use mounts::dentree;
use rustix::fs::syncfs;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};
use writing::Image;

/// Long for a commit within a second, and short of the kernel's write-back after half a minute.
const COMMIT_DEADLINE: Duration = Duration::from_secs(15);

/// The content of the image after journal replay.
fn stored(image: &Image) -> Vec<u8> {
    let copy = image.copy();
    let file = format!("{}:/dir/file", copy.path().display());
    dentree().args(["cat", &file]).output().unwrap().stdout
}

#[test]
fn what_syncfs_has_sent_outlives_a_kill_about_a_second_later() {
    for kind in ["-t ext4", "-t ext2"] {
        let Some(image) = Image::new(kind, "32M") else { return };
        let mut mounted = image.mount();
        let dir = mounted.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let mut file = File::create(dir.join("file")).unwrap();
        let content = [7; 100_000];
        file.write_all(&content).unwrap();
        syncfs(&file).unwrap();
        let begun = Instant::now();
        while stored(&image) != content {
            assert!(
                begun.elapsed() < COMMIT_DEADLINE,
                "on {kind}, it is not there after {COMMIT_DEADLINE:?}"
            );
        }
        mounted.signal(Signal::KILL);
        assert!(!mounted.wait().success());
        assert!(stored(&image) == content, "on {kind}");
    }
}
