//! Images made by mke2fs and filled through the kernel, and runs of the program.
//!
//! The kernel is the oracle. Where this machine cannot mount, tests skip with a message.

#![allow(dead_code)] // each test binary uses a part

use dentree_testing::LoopMount;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub fn dentree<I: AsRef<OsStr>>(args: impl IntoIterator<Item = I>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dentree")).args(args).env("TZ", "UTC").output().unwrap()
}

/// The program with default signal handling: background jobs and nohup(1) ignore signals, which it
/// respects.
pub fn from_a_terminal() -> Command {
    let mut program = Command::new("env");
    program.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_dentree")]);
    program
}

/// The output of a run that succeeds without messages.
pub fn succeeds<I: AsRef<OsStr>>(args: impl IntoIterator<Item = I>) -> Vec<u8> {
    let output = dentree(args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    output.stdout
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn tool<I: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = I>) -> Vec<u8> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output =
        Command::new(name).env("PATH", path).args(args).output().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(output.status.success(), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
    output.stdout
}

/// Panics unless e2fsck finds nothing wrong, and `dentree check` neither.
pub fn assert_clean(image: impl AsRef<Path>) {
    let said = text(&tool("e2fsck", ["-fn".as_ref(), image.as_ref().as_os_str()]));
    // e2fsck calls an image clean although it proposes repairs; a shallower tree is none.
    assert!(!said.replace("Optimize? no", "").contains("? no"), "{said}");
    succeeds(["check".as_ref(), image.as_ref().as_os_str()]);
}

/// Whether images can be mounted here; prints why not.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !can {
        println!("skipped: needs root and loop devices");
    }
    can
}

/// An image in a temporary directory.
pub struct Image {
    pub dir: TempDir,
    pub file: PathBuf,
}

impl Image {
    /// `mke2fs` with `options`, in a sparse file of `mib` MiB.
    pub fn new(mib: u64, options: &[&str]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk.img");
        File::create(&file).unwrap().set_len(mib << 20).unwrap();
        let args = ["-q", "-F"].iter().chain(options).map(OsStr::new);
        tool("mke2fs", args.chain([file.as_os_str()]));
        Image { dir, file }
    }

    /// `disk.img:path` as an argument.
    pub fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.file.display())
    }

    /// The kernel's mount; fails with the output of mount(8).
    pub fn mount(&self, options: &str) -> Result<Mount, String> {
        Mount::new(&self.file, self.dir.path().join("mnt"), options)
    }

    /// An image filled through the kernel.
    pub fn filled(options: &[&str], fill: impl FnOnce(&Path)) -> Image {
        let image = Image::new(64, options);
        fill(&image.mount("rw").unwrap().at);
        image
    }

    pub fn debugfs(&self, commands: &[&str]) {
        let script = self.dir.path().join("debugfs-script");
        fs::write(&script, commands.join("\n")).unwrap();
        tool("debugfs", [OsStr::new("-w"), OsStr::new("-f"), script.as_os_str(), self.file.as_os_str()]);
    }
}

/// A loop mount, ended on drop.
pub struct Mount {
    pub at: PathBuf,
    _mount: LoopMount,
}

impl Mount {
    pub fn new(image: &Path, at: PathBuf, options: &str) -> Result<Mount, String> {
        let mount = LoopMount::new(image, &at, options)?;
        Ok(Mount { at, _mount: mount })
    }
}

/// Panics with the first lines that differ.
pub fn assert_same_lines(ours: &[u8], theirs: &[u8]) {
    if ours == theirs {
        return;
    }
    let (ours, theirs) = (text(ours), text(theirs));
    let differing = ours.lines().zip(theirs.lines()).filter(|(a, b)| a != b).take(5);
    let shown: Vec<String> = differing.map(|(a, b)| format!("dentree: {a}\n kernel: {b}")).collect();
    panic!(
        "{} lines against {} of the kernel's; first differences:\n{}",
        ours.lines().count(),
        theirs.lines().count(),
        shown.join("\n")
    );
}
