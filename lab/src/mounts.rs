//! Mounts for the kernel's side of a comparison. Each ends when its guard is dropped or the process
//! ends (`leftovers`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::leftovers::folder;
use crate::unavailable::Unavailable;

/// Timeout for a mount to appear or to become idle.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The root of a file system without a visible mount point: it is detached right after it was
/// opened, and lives as long as this does. Nothing remains, however the process ends.
#[derive(Debug)]
pub struct HiddenMount {
    root: OwnedFd,
}

impl HiddenMount {
    /// An empty tmpfs without limits on size and inodes.
    ///
    /// # Errors
    /// Needs root.
    pub fn tmpfs() -> Result<Self, Unavailable> {
        Self::at(&folder()?, |point| {
            mount("tmpfs", point, "tmpfs", MountFlags::empty(), c"size=0,nr_inodes=0")
                .map_err(|why| Unavailable::because("cannot mount a tmpfs (needs root)", why))
        })
    }

    /// An ext4 image, loop-mounted with the given options.
    ///
    /// # Errors
    /// Needs root and a loop device.
    pub fn image(image: &Path, options: &str) -> Result<Self, Unavailable> {
        Self::at(&folder()?, |point| {
            command(Command::new("mount").arg("-o").arg(format!("loop,{options}")).arg(image).arg(point))
        })
    }

    fn at(
        folder: &TempDir,
        mount: impl FnOnce(&Path) -> Result<(), Unavailable>,
    ) -> Result<Self, Unavailable> {
        mount(folder.path())?;
        let root =
            openat(CWD, folder.path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let detached = unmount(folder.path(), UnmountFlags::DETACH);
        detached.map_err(|why| Unavailable::because("cannot detach a mount", why))?;
        Ok(Self { root: root.map_err(|why| Unavailable::because("cannot open a mounted folder", why))? })
    }

    /// The root, for `*at` system calls.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A path to the root, valid in this process and as the working directory of a child.
    pub fn working_folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }
}

/// A file system mounted at a directory of its own, visible to every process. Unmounted on drop.
#[derive(Debug)]
pub struct OpenMount {
    point: TempDir,
    server: Option<Child>,
}

impl OpenMount {
    /// An image, loop-mounted by the kernel.
    ///
    /// # Errors
    /// Needs root and a loop device.
    pub fn kernel(image: &Path) -> Result<Self, Unavailable> {
        let point = folder()?;
        command(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point.path()))?;
        Ok(Self { point, server: None })
    }

    /// A file system that `program` mounts, and serves until it is unmounted. The mount point is
    /// added as its last argument.
    ///
    /// # Errors
    /// If the program cannot be started, exits, or does not mount within a minute.
    pub fn served(program: &mut Command) -> Result<Self, Unavailable> {
        let name = program.get_program().to_string_lossy().into_owned();
        let failed = |why: &dyn std::fmt::Display| Unavailable::because(&name, why);
        let point = folder()?;
        // 0 for a FUSE mount whose server does not respond yet, or is gone.
        let device = |root: &Path| std::fs::metadata(root).map_or(0, |metadata| metadata.dev());
        let outside = device(point.path());
        let server = program.arg(point.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut mount = Self { point, server: Some(server.map_err(|why| failed(&why))?) };
        let begin = Instant::now();
        while [0, outside].contains(&device(mount.point.path())) {
            let ended = mount.server.as_mut().is_some_and(|server| !matches!(server.try_wait(), Ok(None)));
            if ended || begin.elapsed() > TIMEOUT {
                return Err(failed(&"the mount does not appear"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(mount)
    }

    /// The mount point.
    pub fn root(&self) -> &Path {
        self.point.path()
    }

    /// Unmounts and waits for the server, which completes the image.
    ///
    /// # Errors
    /// If the mount is busy, or its server failed.
    pub fn end(mut self) -> Result<(), Unavailable> {
        let failed = |why: &dyn std::fmt::Display| Unavailable::because("cannot unmount", why);
        let begin = Instant::now();
        // Until its exec a program that another thread starts has this process's files open.
        while let Err(why) = unmount(self.root(), UnmountFlags::empty()) {
            if why != Errno::BUSY || begin.elapsed() > TIMEOUT {
                return Err(failed(&why));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let status = server.wait().map_err(|why| failed(&why))?;
        if status.success() { Ok(()) } else { Err(failed(&status)) }
    }
}

impl Drop for OpenMount {
    fn drop(&mut self) {
        // Fails harmlessly after `end`.
        let _ = unmount(self.root(), UnmountFlags::DETACH);
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// An empty ext4 in a file, removed on drop. A mount of it outlives the file's name.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    _folder: TempDir,
}

impl Image {
    /// An image for `inodes` small files.
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

    /// The image's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Runs a program; its error output is the error.
pub(crate) fn command(command: &mut Command) -> Result<(), Unavailable> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| Unavailable::because(&name, why))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Unavailable::because(&name, String::from_utf8_lossy(&output.stderr).trim()))
}
