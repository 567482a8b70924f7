//! Images that are mounted for writing, and what must hold of them afterwards.

#![allow(dead_code)] // each test binary uses a part

use crate::mounts::{Loop, Mounted, mountable};
use dentree_testing::{said, unmount};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// mke2fs options: its defaults, what upstream's newer defaults add, and images of the ancestors.
pub const KINDS: [&str; 5] = [
    "-t ext4",
    "-t ext4 -O metadata_csum_seed,orphan_file",
    "-t ext4 -b 1024 -O inline_data -I 256",
    "-t ext3",
    "-t ext2",
];

/// An image in a folder of its own.
pub struct Image {
    folder: TempDir,
}

impl Image {
    /// Made by mke2fs with `options`, and empty; `None`, with the reason printed, where nothing can be mounted here.
    pub fn new(options: &str, size: &str) -> Option<Image> {
        if !mountable() {
            return None;
        }
        let image = Image { folder: folder() };
        shell(image.folder.path(), &format!("mke2fs -q -F {options} image {size}"));
        Some(image)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Mounts it for writing, by the program under test.
    pub fn mount(&self) -> Mounted {
        Mounted::new(&self.path(), &[])
    }

    /// A copy as it is now.
    pub fn copy(&self) -> Image {
        let copy = Image { folder: folder() };
        shell(copy.folder.path(), &format!("cp --sparse=always {} image", self.path().display()));
        copy
    }

    /// Fails where `e2fsck` finds anything to repair.
    pub fn check(&self) {
        let check = tool("e2fsck").arg("-fn").arg(self.path()).output().unwrap();
        let said = said(&check);
        // Of some repairs that it is not allowed it asks, and calls the image clean all the same; a tree that could be less deep is none.
        let asks = said.replace("Optimize? no", "").contains("? no");
        assert!(check.status.success() && !asks, "e2fsck: {said}");
    }

    /// Ends the mount and checks the image; then the kernel's mount must show what ours showed.
    pub fn finish(&self, mounted: Mounted, description: impl Fn(&Path) -> String) {
        let shown = description(mounted.path());
        end(mounted);
        self.check();
        let kernel = Loop::new(&self.path(), "ro");
        same_trees(&shown, &description(kernel.path()));
    }
}

/// In memory where there is such a place: what is tested is not the disk below.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Unmounts, and waits until the program has closed the image, which must succeed.
pub fn end(mut mounted: Mounted) {
    unmount(mounted.path());
    let status = mounted.wait();
    assert!(status.success(), "the mount ended with {status}");
}

/// Whether a program is here; prints where not.
pub fn has(program: &str) -> bool {
    let found = tool(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// A program that may lie where administrators have theirs.
fn tool(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs a shell script in `dir`; fails the test with what it said where it fails.
pub fn shell(dir: &Path, script: &str) -> String {
    let output = tool("sh")
        .args(["-euc", script])
        .current_dir(dir)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("LC_ALL", "C")])
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.org")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.org")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Numbers that are the same in every run.
pub struct Dice(pub u64);

impl Dice {
    /// The next number (splitmix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        (self.next() % sides.max(1) as u64) as usize
    }
}

/// Everything about a tree that two mounts of it must agree on, one line each. Not when inodes last changed: of files the kernel has
/// that time in memory, by its clock, and of a link or a rename we by ours.
pub fn tree(top: &Path) -> String {
    shell(
        top,
        r"find . -printf '%P|%y|%m|%U|%G|%n|%s|%i|%T@|%l\n' | sort
          find . \( -type b -o -type c \) -exec stat -c '%n %t %T' {} + | sort
          find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex
          find . -type f -print0 | sort -z | xargs -0 -r sha256sum",
    )
}

/// Fails with the first line that differs.
pub fn same_trees(ours: &str, theirs: &str) {
    let differing = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
    let lines = (ours.lines().count(), theirs.lines().count());
    assert!(ours == theirs, "ours and the kernel's differ: {differing:?}; lines: {lines:?}");
}
