//! Images that are mounted for writing, and checks afterwards.

#![allow(dead_code)] // each test binary uses a part

use crate::mounts::{Loop, Mounted, mountable};
use dentree_testing::{said, unmount};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Options of mke2fs: its defaults, newer defaults of upstream, ext2 and ext3.
pub const KINDS: [&str; 5] = [
    "-t ext4",
    "-t ext4 -O metadata_csum_seed,orphan_file",
    "-t ext4 -b 1024 -O inline_data -I 256",
    "-t ext3",
    "-t ext2",
];

/// An image in a temporary directory.
pub struct Image {
    folder: TempDir,
}

impl Image {
    /// Made by mke2fs with `options`; `None`, with the reason printed, where mounting is
    /// impossible.
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

    /// Mounts it for writing by the program under test.
    pub fn mount(&self) -> Mounted {
        Mounted::new(&self.path(), &[])
    }

    /// A copy of its present state.
    pub fn copy(&self) -> Image {
        let copy = Image { folder: folder() };
        shell(copy.folder.path(), &format!("cp --sparse=always {} image", self.path().display()));
        copy
    }

    /// Panics where `e2fsck` finds anything to repair.
    pub fn check(&self) {
        let check = tool("e2fsck").arg("-fn").arg(self.path()).output().unwrap();
        let said = said(&check);
        // e2fsck calls an image clean although it proposes repairs; a shallower tree is none.
        let asks = said.replace("Optimize? no", "").contains("? no");
        assert!(check.status.success() && !asks, "e2fsck: {said}");
    }

    /// Unmounts and checks the image; the kernel's mount must show what ours showed.
    pub fn finish(&self, mounted: Mounted, description: impl Fn(&Path) -> String) {
        let shown = description(mounted.path());
        end(mounted);
        self.check();
        let kernel = Loop::new(&self.path(), "ro");
        same_trees(&shown, &description(kernel.path()));
    }
}

/// In memory where possible: the local disk is not under test.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Unmounts, and waits until the program has closed the image successfully.
pub fn end(mut mounted: Mounted) {
    unmount(mounted.path());
    let status = mounted.wait();
    assert!(status.success(), "the mount ended with {status}");
}

/// Whether a program is installed; prints if not.
pub fn has(program: &str) -> bool {
    let found = tool(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// A program, also searched in sbin.
fn tool(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs a shell script in `dir`; panics with its output where it fails.
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

/// Reproducible random numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        (self.next() % sides.max(1) as u64) as usize
    }
}

/// What two mounts of a tree must agree on. Not the change times of inodes: those of the kernel's
/// writes and of our links and renames come from two clocks.
pub fn tree(top: &Path) -> String {
    shell(
        top,
        r"find . -printf '%P|%y|%m|%U|%G|%n|%s|%i|%T@|%l\n' | sort
          find . \( -type b -o -type c \) -exec stat -c '%n %t %T' {} + | sort
          find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex
          find . -type f -print0 | sort -z | xargs -0 -r sha256sum",
    )
}

/// Panics with the first line that differs.
pub fn same_trees(ours: &str, theirs: &str) {
    let differing = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
    let lines = (ours.lines().count(), theirs.lines().count());
    assert!(ours == theirs, "ours and the kernel's differ: {differing:?}; lines: {lines:?}");
}
