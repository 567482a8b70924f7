//! Images of every kind that is written, and their checks: e2fsck, and the kernel's mount.

#![allow(dead_code)] // each test binary uses a part

pub use crate::common::assert_clean;
use crate::common::{Image, Mount, assert_same_lines, dentree, succeeds, text, tool};
use dentree_testing::wait_until;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output};

/// Names and makers of images.
pub const KINDS: &[(&str, Maker)] = &[
    ("mke2fs", Maker::Mke2fs(&["-t", "ext4"])),
    ("mke2fs upstream", Maker::Mke2fs(&["-t", "ext4", "-O", "orphan_file,metadata_csum_seed"])),
    ("mke2fs ext2", Maker::Mke2fs(&["-t", "ext2"])),
    ("mke2fs ext3", Maker::Mke2fs(&["-t", "ext3"])),
    ("mke2fs 1 KiB", Maker::Mke2fs(&["-t", "ext4", "-b", "1024"])),
    ("mke2fs 4 KiB", Maker::Mke2fs(&["-t", "ext4", "-b", "4096"])),
    ("mke2fs inline_data", Maker::Mke2fs(&["-t", "ext4", "-O", "inline_data"])),
    ("mke2fs no journal", Maker::Mke2fs(&["-t", "ext4", "-O", "^has_journal"])),
    ("mkfs", Maker::Ours(&[])),
    ("mkfs upstream", Maker::Ours(&["-O", "orphan_file,metadata_csum_seed"])),
    ("mkfs ext2", Maker::Ours(&["-O", "ext2"])),
];

/// The program that makes an image, with its options.
pub enum Maker {
    Mke2fs(&'static [&'static str]),
    Ours(&'static [&'static str]),
}

impl Maker {
    /// A new image of `mib` MiB.
    pub fn make(&self, mib: u64) -> Image {
        match self {
            Maker::Mke2fs(options) => Image::new(mib, options),
            Maker::Ours(options) => {
                let dir = tempfile::tempdir().unwrap();
                let file = dir.path().join("disk.img");
                let size = format!("{mib}M");
                let args = [OsStr::new("mkfs"), file.as_os_str(), OsStr::new("--size"), OsStr::new(&size)];
                succeeds(args.into_iter().chain(options.iter().map(OsStr::new)));
                Image { dir, file }
            }
        }
    }
}

/// Runs `test` on an image of each kind.
pub fn on_each_kind(mib: u64, test: impl Fn(&Image)) {
    for (name, maker) in KINDS {
        println!("on {name}");
        test(&maker.make(mib));
    }
}

/// Checks that e2fsck finds nothing wrong, that the kernel sees what Dentree sees, and the other
/// way round after the kernel has written.
pub fn assert_kernel_agrees(image: &Image) {
    assert_clean(&image.file);
    {
        let mount = image.mount("rw").unwrap();
        compare(image, &mount);
        kernel_writes(&mount.at);
    }
    assert_clean(&image.file);
    compare(image, &image.mount("ro").unwrap());
    assert_eq!(succeeds(["cat", &image.at("/of-the-kernel/large")]), large());
}

fn compare(image: &Image, mount: &Mount) {
    let ours = succeeds(["checksum".as_ref(), image.file.as_os_str()]);
    let theirs = succeeds(["checksum".as_ref(), mount.at.as_os_str()]);
    assert_same_lines(&ours, &theirs);
}

fn large() -> Vec<u8> {
    (0..300_000_u32).flat_map(|n| (n / 3).to_le_bytes()).collect()
}

/// Changes that would fail on wrong bitmaps or directories.
fn kernel_writes(root: &Path) {
    let dir = root.join("of-the-kernel");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("large"), large()).unwrap();
    for n in 0..200 {
        File::create(dir.join(format!("name-{n}"))).unwrap();
    }
    for n in (0..200).step_by(2) {
        fs::remove_file(dir.join(format!("name-{n}"))).unwrap();
    }
    fs::rename(dir.join("name-1"), root.join("moved-by-the-kernel")).unwrap();
}

/// A tree without its times, a line per file.
pub fn tree(root: &Path) -> String {
    let find = r"find . -path ./lost+found -prune -o -path ./of-the-kernel -prune -o \( ! -type d -printf '%P|%y|%m|%U|%G|%n|%s|%l\n' , -type d -printf '%P|%y|%m|%U|%G\n' , -type f -exec sha256sum {} + \)";
    let output = Command::new("sh")
        .args(["-ec", &format!("{find} | LC_ALL=C sort")])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs commands with the local programs here and with ours on the image, and compares exit status
/// and results. `@` stands for the root of the tree.
pub fn assert_same_as_coreutils(image: &Image, commands: &[&str]) {
    let twin = image.dir.path().join("twin");
    fs::create_dir(&twin).unwrap();
    for command in commands {
        let words = |root: &str| -> Vec<String> {
            command.split_whitespace().map(|word| word.replace('@', root)).collect()
        };
        let theirs = words(twin.to_str().unwrap());
        let status = Command::new(&theirs[0]).args(&theirs[1..]).output().unwrap();
        let ours = dentree(words(&image.at("")));
        let said = text(&ours.stderr);
        assert_eq!(
            ours.status.success(),
            status.status.success(),
            "{command}: {said}{}",
            text(&status.stderr)
        );
        assert_eq!(said.is_empty(), ours.status.success(), "{command}: {said}");
        assert!(ours.status.success() || ours.status.code() == Some(1), "{command}: {said}");
    }
    let mount = image.mount("ro").unwrap();
    // The mount point has the root's attributes, the twin its own.
    let shown = |root: &Path| -> Vec<u8> {
        let lines = tree(root);
        lines
            .lines()
            .filter(|line| !line.starts_with('|'))
            .flat_map(|line| [line.as_bytes(), b"\n"].concat())
            .collect()
    };
    assert_same_lines(&shown(&mount.at), &shown(&twin));
    drop(mount);
    assert_kernel_agrees(image);
}

/// The next transaction number of the image's journal.
pub fn journal_sequence(image: &Path) -> u64 {
    let shown = text(&tool("dumpe2fs", ["-h".as_ref(), image.as_os_str()]));
    let line = shown.lines().find(|line| line.starts_with("Journal sequence:")).unwrap();
    let hex = line.split("0x").nth(1).unwrap().trim();
    u64::from_str_radix(hex, 16).unwrap()
}

/// A process of `start`, which will read 300 MiB, stopped after some of it.
pub fn stopped_midway(start: impl Fn() -> Child) -> Child {
    loop {
        let mut child = start();
        let pid = Pid::from_child(&child);
        let about = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
        let read_so_far = || -> u64 {
            about("io").lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
        };
        // Only we wait for it, so it exists until then, if only as a zombie.
        let is =
            |states: [&str; 2]| states.iter().any(|state| about("stat").contains(&format!(") {state} ")));
        wait_until("midway", || is(["Z", "Z"]) || read_so_far() >= 30 << 20);
        kill_process(pid, Signal::STOP).unwrap();
        wait_until("stopped", || is(["T", "Z"]));
        if is(["T", "T"]) && read_so_far() < 250 << 20 {
            return child;
        }
        // It was faster than the signal.
        kill_process(pid, Signal::CONT).unwrap();
        child.wait().unwrap();
    }
}

/// Whether the file system of `dir` supports `O_TMPFILE`; prints if not.
pub fn makes_files_without_names(dir: &Path) -> bool {
    let made = rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RWXU);
    if let Err(error) = &made {
        println!("skipped: files without names cannot be made in {}: {error}", dir.display());
    }
    made.is_ok()
}

/// Sends a stopped process a signal; returns its output.
pub fn end_with(child: Child, signal: Signal) -> Output {
    let pid = Pid::from_child(&child);
    kill_process(pid, signal).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    child.wait_with_output().unwrap()
}
