//! Mounts and processes that end with their test.

#![allow(dead_code)] // each test binary uses a part

use dentree_testing::{LoopMount, OverIoUring, detach, is_mount_point, said, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use tempfile::TempDir;

pub fn dentree() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dentree"))
}

/// Whether mounts are possible here; prints why not.
pub fn mountable() -> bool {
    let root = rustix::process::geteuid().is_root();
    let fuse = Path::new("/dev/fuse").exists();
    let loops = Path::new("/dev/loop-control").exists();
    let can = root && fuse && loops;
    if !can {
        println!("skipped: needs root ({root}), /dev/fuse ({fuse}) and loop devices ({loops})");
    }
    can
}

/// The kernel's mount of an image.
pub struct Loop {
    mount: LoopMount,
    _dir: TempDir,
}

impl Loop {
    pub fn new(image: &Path, options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mount = LoopMount::new(image, dir.path(), options).unwrap();
        Loop { mount, _dir: dir }
    }

    pub fn path(&self) -> &Path {
        self.mount.path()
    }
}

pub struct Mounted {
    child: Child,
    path: PathBuf,
    /// Dropped, and so removed, after the mount in it.
    _dir: Option<TempDir>,
    _ring: Option<OverIoUring>,
}

/// With `DENTREE_TEST_OVER=io_uring`, has the kernel offer io_uring, which mounts then use.
fn ring() -> Option<OverIoUring> {
    let wanted = std::env::var_os("DENTREE_TEST_OVER").is_some_and(|over| over == "io_uring");
    wanted.then(OverIoUring::enable).flatten()
}

impl Mounted {
    /// Mounts `image` with `options` in a fresh directory.
    pub fn new(image: &Path, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Other users may access the mount.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = dentree();
        command.arg("mount").args(options).args([image, dir.path()]);
        let path = dir.path().to_owned();
        let mut mounted = Self::start(command, &path);
        mounted._dir = Some(dir);
        mounted
    }

    /// Runs `command`, which mounts at `path`, and waits for the mount.
    pub fn start(mut command: Command, path: &Path) -> Self {
        let ring = ring();
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut mounted = Mounted { child, path: path.to_owned(), _dir: None, _ring: ring };
        wait_until("mounted", || {
            if mounted.child.try_wait().unwrap().is_some() {
                panic!("it ended instead of mounting: {}", mounted.told());
            }
            is_mount_point(&mounted.path)
        });
        // The mount appears before kernel and server have agreed on a protocol, which `umount`
        // would interrupt. Any reply comes after that.
        let _ = fs::metadata(path);
        mounted
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Standard error of the ended program.
    pub fn told(&mut self) -> String {
        let mut text = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_end(&mut text).unwrap();
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        detach(&self.path);
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            println!("the mount has told: {}", self.told());
        }
    }
}

/// A small tmpfs, unmounted on drop.
pub struct Small(PathBuf);

impl Small {
    /// Mounts it at `at`, which it makes.
    pub fn new(at: &Path, mib: u32) -> Small {
        fs::create_dir(at).unwrap();
        let size = format!("size={mib}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at).output().unwrap();
        assert!(mount.status.success(), "{}", said(&mount));
        Small(at.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

/// The background server of a mount.
pub struct Background {
    pid: Pid,
    place: PathBuf,
}

impl Background {
    /// Finds the process whose last argument is `place`.
    pub fn find(place: &Path) -> Self {
        let ending = [place.as_os_str().as_encoded_bytes(), b"\0"].concat();
        let found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            line.ends_with(&ending).then(|| Pid::from_raw(pid))?
        });
        Background { pid: found.expect("a process serves the mount"), place: place.to_owned() }
    }

    pub fn wait(&self) {
        wait_until("ended", || !self.is_running());
    }

    fn is_running(&self) -> bool {
        // Without a parent that waits it stays as a zombie, without arguments.
        let line = fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_pid())).unwrap_or_default();
        !line.is_empty()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        detach(&self.place);
        if self.is_running() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}
