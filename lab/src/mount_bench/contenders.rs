//! The contenders, and their mounts.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::load::Load;
use crate::leftovers::folder;
use crate::mounts::{HiddenMount, OpenMount, command};
use crate::outcome::OURS;
use crate::programs::Programs;
use crate::unavailable::Unavailable;

pub(super) const FUSE2FS: &str = "fuse2fs";
pub(super) const KERNEL: &str = "kernel";
pub(super) const LIMIT: &str = "limit";
/// Ours and the limit, with requests over io_uring.
pub(super) const RING: &str = "dentree-ring";
pub(super) const LIMIT_RING: &str = "limit-ring";
/// All of them.
pub(super) const CONTENDERS: [&str; 6] = [OURS, RING, FUSE2FS, KERNEL, LIMIT, LIMIT_RING];

const OVER_RING: [&str; 2] = ["-o", "io_uring"];
const NO_RING: [&str; 2] = ["-o", "no_io_uring"];

/// Why a contender is unavailable.
pub(super) fn missing(name: &str, programs: &Programs) -> Option<String> {
    let why = match name {
        OURS => programs.dentree().err()?,
        LIMIT => programs.limit().err()?,
        RING => programs.dentree().map(drop).and_then(|()| RingOffered::new().map(drop)).err()?,
        LIMIT_RING => programs.limit().map(drop).and_then(|()| RingOffered::new().map(drop)).err()?,
        FUSE2FS => command(Command::new(FUSE2FS).arg("--version")).err()?,
        _ => return None,
    };
    Some(why.to_string())
}

/// Whether a contender has no image.
fn is_limit(name: &str) -> bool {
    [LIMIT, LIMIT_RING].contains(&name)
}

/// The kernel offers io_uring to mounts, until this is dropped.
struct RingOffered;

impl RingOffered {
    const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

    fn new() -> Result<Self, Unavailable> {
        std::fs::write(Self::PARAMETER, "Y").map_err(|why| Unavailable::because(Self::PARAMETER, why))?;
        Ok(RingOffered)
    }
}

impl Drop for RingOffered {
    fn drop(&mut self) {
        // A connection keeps what was agreed.
        let _ = std::fs::write(Self::PARAMETER, "N");
    }
}

/// The image, filled by the kernel; each contender gets a copy in each round.
pub(super) struct Base {
    folder: TempDir,
}

impl Base {
    pub(super) fn new(load: &Load) -> Result<Self, Unavailable> {
        let base = Self { folder: folder()? };
        let file = std::fs::File::create(base.image());
        file.and_then(|file| file.set_len(load.image_bytes()))
            .map_err(|why| Unavailable::because("cannot make an image", why))?;
        let inodes = load.inodes().to_string();
        command(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-N", &inodes]).arg(base.image()))?;
        let mount = HiddenMount::image(&base.image(), "rw")?;
        load.fill(&mount.working_folder())?;
        rustix::fs::sync();
        drop(mount);
        Ok(base)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn copy(&self) -> Result<Copied, Unavailable> {
        let copy = Copied { folder: folder()? };
        command(Command::new("cp").arg("--sparse=always").arg(self.image()).arg(copy.path()))?;
        Ok(copy)
    }
}

/// A contender's own copy of the image.
pub(super) struct Copied {
    folder: TempDir,
}

impl Copied {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }
}

/// A file system, mounted by its server or by the kernel.
pub(super) struct Mounted<'a> {
    name: &'static str,
    programs: &'a Programs,
    /// `None` only if remounting has failed.
    mount: Option<OpenMount>,
    image: Option<Copied>,
}

/// Mounts a copy of the image. The limit has no image: fills its file system in memory.
pub(super) fn start<'a>(
    name: &'static str,
    programs: &'a Programs,
    base: &Base,
    load: &Load,
) -> Result<Mounted<'a>, Unavailable> {
    let image = if is_limit(name) { None } else { Some(base.copy()?) };
    let mut mounted = Mounted { name, programs, mount: None, image };
    mounted.mount()?;
    if is_limit(name) {
        load.fill(mounted.root())?;
    }
    Ok(mounted)
}

impl Mounted<'_> {
    /// The root of the mount.
    pub(super) fn root(&self) -> &Path {
        self.mount.as_ref().map_or(Path::new("/nonexistent"), OpenMount::root)
    }

    /// The contender's part of `count` operations, at least one.
    pub(super) fn part_of(&self, count: usize, fuse2fs_part: usize) -> usize {
        if self.name == FUSE2FS { (count / fuse2fs_part).max(1) } else { count }
    }

    /// Unmounts, drops the kernel's caches, and remounts. The limit, which would lose its content,
    /// only drops caches.
    pub(super) fn make_cold(&mut self) -> Result<(), Unavailable> {
        if !is_limit(self.name) {
            self.unmount()?;
        }
        rustix::fs::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .map_err(|why| Unavailable::because("cannot drop the kernel's caches (needs root)", why))?;
        if !is_limit(self.name) {
            self.mount()?;
        }
        Ok(())
    }

    /// Unmounts, which completes the image.
    pub(super) fn end(mut self) -> Result<Option<Copied>, Unavailable> {
        self.unmount()?;
        Ok(self.image.take())
    }

    fn mount(&mut self) -> Result<(), Unavailable> {
        let image = self.image.as_ref().map(Copied::path).unwrap_or_default();
        self.mount = Some(match self.name {
            KERNEL => OpenMount::kernel(&image)?,
            FUSE2FS => OpenMount::served(Command::new(FUSE2FS).arg("-f").arg(image))?,
            LIMIT => OpenMount::served(Command::new(self.programs.limit()?).args(NO_RING))?,
            LIMIT_RING => {
                let _offered = RingOffered::new()?;
                OpenMount::served(Command::new(self.programs.limit()?).args(OVER_RING))?
            }
            RING => {
                let _offered = RingOffered::new()?;
                let mut ours = Command::new(self.programs.dentree()?);
                OpenMount::served(ours.arg("mount").args(OVER_RING).arg(image))?
            }
            _ => {
                let mut ours = Command::new(self.programs.dentree()?);
                OpenMount::served(ours.arg("mount").args(NO_RING).arg(image))?
            }
        });
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Unavailable> {
        self.mount.take().map_or(Ok(()), OpenMount::end)
    }
}
