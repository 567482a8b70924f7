//! Mounts and loop devices that end when their values are dropped.

use crate::{said, wait_until};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, thread};

/// Whether something is mounted at `path`.
///
/// # Panics
/// Without a mount table.
pub fn is_mount_point(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// Unmounts `path`, waiting until no file of it is open.
///
/// # Panics
/// Where that takes longer than [`PATIENCE`](crate::PATIENCE), or where nothing is mounted.
#[track_caller]
pub fn unmount(path: &Path) {
    wait_until(&format!("unmounted, {}", path.display()), || {
        match rustix::mount::unmount(path, UnmountFlags::empty()) {
            Ok(()) => true,
            Err(Errno::BUSY) => false,
            Err(error) => panic!("cannot unmount {}: {error}", path.display()),
        }
    });
}

/// Detaches a mount at `path`, if there is one, also while it is in use.
pub fn detach(path: &Path) {
    if is_mount_point(path) {
        let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
    }
}

/// A mount point that is detached on drop.
#[derive(Debug)]
pub struct MountPoint(pub PathBuf);

impl Drop for MountPoint {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

/// The kernel's mount of an image. Drop unmounts it, and writes it back unless the test failed.
#[derive(Debug)]
pub struct LoopMount {
    at: PathBuf,
}

impl LoopMount {
    /// Mounts `image` at `at`, made if missing, with `options` of mount(8).
    ///
    /// # Errors
    /// The output of mount(8).
    pub fn new(image: &Path, at: &Path, options: &str) -> Result<LoopMount, String> {
        fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let wants_to_write = !options.split(',').any(|option| option == "ro");
        let mut mount = Err(String::new());
        // The kernel reuses an existing, read-only loop device of the image.
        wait_until("mounted for writing", || {
            mount = Self::mount(image, at, &format!("loop,{options}"));
            !matches!(&mount, Ok(mount) if wants_to_write && mount.is_read_only())
        });
        mount
    }

    /// Mounts `device`, which must outlive the mount, at `at`.
    ///
    /// # Errors
    /// The output of mount(8).
    pub fn of(device: &LoopDevice, at: &Path, options: &str) -> Result<LoopMount, String> {
        Self::mount(device.path(), at, options)
    }

    fn mount(source: &Path, at: &Path, options: &str) -> Result<LoopMount, String> {
        // Forces the ext4 driver where there is one for ext2.
        let output = Command::new("mount").args(["-t", "ext4", "-o", options]).args([source, at]).output();
        let output = output.map_err(|error| format!("mount: {error}"))?;
        if !output.status.success() {
            return Err(said(&output));
        }
        Ok(LoopMount { at: at.to_owned() })
    }

    fn is_read_only(&self) -> bool {
        let flags = rustix::fs::statvfs(&self.at).map(|stat| stat.f_flag);
        flags.is_ok_and(|flags| flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // Detaches it also where a file of the test keeps it busy.
        let _gone = MountPoint(self.at.clone());
        if !thread::panicking() {
            unmount(&self.at);
        }
    }
}

/// A loop device on a file, detached on drop.
#[derive(Debug)]
pub struct LoopDevice(String);

impl LoopDevice {
    /// Attaches `file`, with more options of losetup(8).
    ///
    /// # Errors
    /// The output of losetup(8).
    pub fn new(file: &Path, options: &[&str]) -> Result<LoopDevice, String> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(said(&output));
        }
        Ok(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    /// The device's path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}
