//! Mounts and loop devices that end with the values that stand for them.

use crate::{said, wait_until};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, thread};

/// Whether something is mounted at `path`.
///
/// # Panics
/// Where there is no mount table.
pub fn is_mount_point(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// Unmounts what is mounted at `path`, once nobody has a file of it open.
///
/// # Panics
/// Where that takes longer than [`PATIENCE`](crate::PATIENCE), and where nothing is mounted there.
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

/// Takes away what is mounted at `path`, if anything, whoever uses it.
pub fn detach(path: &Path) {
    if is_mount_point(path) {
        let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
    }
}

/// A place where nothing is mounted once this value is gone.
#[derive(Debug)]
pub struct Place(pub PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

/// The kernel's own mount of an image. It ends with this value: what was written is in the image
/// then, unless the test has failed.
#[derive(Debug)]
pub struct LoopMount {
    at: PathBuf,
}

impl LoopMount {
    /// Mounts `image` at `at`, which is made where it is missing, with `options` of mount(8).
    ///
    /// # Errors
    /// What mount(8) says.
    pub fn new(image: &Path, at: &Path, options: &str) -> Result<LoopMount, String> {
        fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let wants_to_write = !options.split(',').any(|option| option == "ro");
        let mut mount = Err(String::new());
        // A loop device of an earlier, read-only mount, as long as it is there, is taken again.
        wait_until("mounted for writing", || {
            mount = Self::mount(image, at, &format!("loop,{options}"));
            !matches!(&mount, Ok(mount) if wants_to_write && mount.is_read_only())
        });
        mount
    }

    /// Mounts what is on `device`, which must outlive the mount, at `at`.
    ///
    /// # Errors
    /// What mount(8) says.
    pub fn of(device: &LoopDevice, at: &Path, options: &str) -> Result<LoopMount, String> {
        Self::mount(device.path(), at, options)
    }

    fn mount(source: &Path, at: &Path, options: &str) -> Result<LoopMount, String> {
        // The ext4 driver, also where there is one for ext2.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // Also where a file of the test itself keeps it from being unmounted.
        let _gone = Place(self.at.clone());
        if !thread::panicking() {
            unmount(&self.at);
        }
    }
}

/// A loop device on a file. It is detached with this value.
#[derive(Debug)]
pub struct LoopDevice(String);

impl LoopDevice {
    /// Attaches `file`, with further options of losetup(8).
    ///
    /// # Errors
    /// What losetup(8) says.
    pub fn new(file: &Path, options: &[&str]) -> Result<LoopDevice, String> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(said(&output));
        }
        Ok(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    /// The device's file.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}
