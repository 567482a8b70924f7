//! Mounts that the kernel's side of a comparison needs; each is undone when its guard is dropped.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// Why something cannot be measured on this machine, for people to read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

impl Unavailable {
    /// "`what`: `why`".
    pub fn because(what: &str, why: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// A file system mounted on a folder of its own; unmounted and removed on drop.
#[derive(Debug)]
pub struct TempMount {
    point: PathBuf,
    _folder: TempDir,
}

impl TempMount {
    /// An empty tmpfs without limits on size and inodes.
    ///
    /// # Errors
    /// Needs root.
    pub fn tmpfs() -> Result<Self, Unavailable> {
        let folder = folder()?;
        let point = make(&folder, "tree")?;
        mount("tmpfs", &point, "tmpfs", MountFlags::empty(), c"size=0,nr_inodes=0")
            .map_err(|why| Unavailable::because("cannot mount a tmpfs (needs root)", why))?;
        Ok(Self { point, _folder: folder })
    }

    /// An ext4 image, loop-mounted with the given options.
    ///
    /// # Errors
    /// Needs root and a loop device.
    pub fn image(image: &Path, options: &str) -> Result<Self, Unavailable> {
        let folder = folder()?;
        let point = make(&folder, "tree")?;
        command(Command::new("mount").arg("-o").arg(format!("loop,{options}")).arg(image).arg(&point))?;
        Ok(Self { point, _folder: folder })
    }

    /// Opens the root and takes the mount out of everyone's sight. It lives as long as the descriptor: nothing is left
    /// behind, however the process ends.
    ///
    /// # Errors
    /// Those of opening the folder.
    pub fn into_root(self) -> Result<OwnedFd, Unavailable> {
        openat(CWD, &self.point, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
            .map_err(|why| Unavailable::because("cannot open the mounted folder", why))
    }

    /// The folder that it is mounted on.
    pub fn path(&self) -> &Path {
        &self.point
    }
}

impl Drop for TempMount {
    fn drop(&mut self) {
        // Detached, it is gone from sight at once, and from memory when the last file on it is closed.
        let _detached = unmount(&self.point, UnmountFlags::DETACH);
    }
}

/// An empty ext4 in a file of its own, removed on drop. A mount of it outlives the file's name.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    _folder: TempDir,
}

impl Image {
    /// Makes one with room for `inodes` small files.
    ///
    /// # Errors
    /// Needs `mke2fs`.
    pub fn ext4(inodes: usize) -> Result<Self, Unavailable> {
        let folder = folder()?;
        let path = folder.path().join("image");
        let bytes = (64 << 20) + (inodes as u64 * 2048).next_multiple_of(1 << 20);
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .map_err(|why| Unavailable::because("cannot make an image", why))?;
        let inodes = inodes.to_string();
        command(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-N", &inodes]).arg(&path))?;
        Ok(Self { path, _folder: folder })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn folder() -> Result<TempDir, Unavailable> {
    tempfile::Builder::new()
        .prefix("dentree-lab")
        .tempdir()
        .map_err(|why| Unavailable::because("cannot make a temporary folder", why))
}

fn make(folder: &TempDir, name: &str) -> Result<PathBuf, Unavailable> {
    let path = folder.path().join(name);
    std::fs::create_dir(&path).map_err(|why| Unavailable::because("cannot make a mount point", why))?;
    Ok(path)
}

fn command(command: &mut Command) -> Result<(), Unavailable> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| Unavailable::because(&name, why))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Unavailable::because(&name, String::from_utf8_lossy(&output.stderr).trim()))
}
