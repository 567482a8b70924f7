//! Who is mounted, and how.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::cases::Load;
use crate::mounts::{HiddenMount, Unavailable, command};
use crate::outcome::OURS;

pub(super) const FUSE2FS: &str = "fuse2fs";
pub(super) const KERNEL: &str = "kernel";
pub(super) const LIMIT: &str = "limit";
/// All of them.
pub(super) const CONTENDERS: [&str; 4] = [OURS, FUSE2FS, KERNEL, LIMIT];

/// How long a mount may take to appear, or a server to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the programs are.
pub(super) struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Why a contender cannot take part.
    pub(super) fn missing(&self, name: &str) -> Option<String> {
        let ours = |path: PathBuf| (!path.exists()).then(|| format!("{} is not built", path.display()));
        match name {
            OURS => ours(self.dentree()),
            LIMIT => ours(self.limit()),
            FUSE2FS => Command::new("fuse2fs")
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .err()
                .map(|why| format!("fuse2fs: {why}")),
            _ => None,
        }
    }

    fn dentree(&self) -> PathBuf {
        self.folder.join("dentree")
    }

    fn limit(&self) -> PathBuf {
        self.folder.join("examples/limit")
    }
}

/// The image that each contender gets a copy of in each round: filled by the kernel.
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

/// A file system that is mounted, by its server or by the kernel.
pub(super) struct Mounted<'a> {
    name: &'static str,
    programs: &'a Programs,
    point: Option<TempDir>,
    server: Option<Child>,
    image: Option<Copied>,
}

/// Mounts a copy of the image; for the limit, which has none, fills a file system in memory likewise.
pub(super) fn start<'a>(
    name: &'static str,
    programs: &'a Programs,
    base: &Base,
    load: &Load,
) -> Result<Mounted<'a>, Unavailable> {
    let image = if name == LIMIT { None } else { Some(base.copy()?) };
    let mut mounted = Mounted { name, programs, point: Some(folder()?), server: None, image };
    mounted.mount()?;
    if name == LIMIT {
        load.fill(mounted.root())?;
    }
    Ok(mounted)
}

impl Mounted<'_> {
    /// The root of the mount.
    pub(super) fn root(&self) -> &Path {
        self.point.as_ref().map_or(Path::new("/nonexistent"), TempDir::path)
    }

    /// How many of `count` pieces of work it does, and at least one.
    pub(super) fn part_of(&self, count: usize, fuse2fs_part: usize) -> usize {
        if self.name == FUSE2FS { (count / fuse2fs_part).max(1) } else { count }
    }

    /// Unmounts, drops the kernel's caches, and mounts again. The limit, whose content would be gone, only drops caches.
    pub(super) fn make_cold(&mut self) -> Result<(), Unavailable> {
        if self.name != LIMIT {
            self.unmount()?;
        }
        rustix::fs::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .map_err(|why| Unavailable::because("cannot drop the kernel's caches (needs root)", why))?;
        if self.name != LIMIT {
            self.mount()?;
        }
        Ok(())
    }

    /// Unmounts for good. The image, if there is one, is whole then.
    pub(super) fn end(mut self) -> Result<Option<Copied>, Unavailable> {
        self.unmount()?;
        Ok(self.image.take())
    }

    fn mount(&mut self) -> Result<(), Unavailable> {
        let image = self.image.as_ref().map(Copied::path).unwrap_or_default();
        let root = self.root().to_owned();
        let mut mount = match self.name {
            KERNEL => {
                return command(Command::new("mount").args(["-o", "loop"]).arg(image).arg(root));
            }
            FUSE2FS => {
                let mut mount = Command::new("fuse2fs");
                mount.arg("-f").arg(image).arg(&root);
                mount
            }
            LIMIT => {
                let mut mount = Command::new(self.programs.limit());
                mount.arg(&root);
                mount
            }
            _ => {
                let mut mount = Command::new(self.programs.dentree());
                mount.arg("mount").arg(image).arg(&root);
                mount
            }
        };
        let outside = device(&root)?;
        let server = mount.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.server = Some(server.map_err(|why| Unavailable::because(self.name, why))?);
        let begin = Instant::now();
        while device(&root)? == outside {
            if begin.elapsed() > PATIENCE {
                return Err(Unavailable::because(self.name, "the mount does not appear"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The server has written everything when it has ended.
    fn unmount(&mut self) -> Result<(), Unavailable> {
        let failed = |why: &dyn std::fmt::Display| Unavailable::because(self.name, why);
        unmount(self.root(), UnmountFlags::empty()).map_err(|why| failed(&why))?;
        if let Some(mut server) = self.server.take() {
            server.wait().map_err(|why| failed(&why))?;
        }
        Ok(())
    }
}

/// A contender that failed on its way must not leave a mount behind.
impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.root(), UnmountFlags::DETACH);
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn device(root: &Path) -> Result<u64, Unavailable> {
    use std::os::unix::fs::MetadataExt;
    // A FUSE mount whose server has not answered yet, or is gone, is no root to be looked at.
    Ok(std::fs::metadata(root).map_or(0, |metadata| metadata.dev()))
}

fn folder() -> Result<TempDir, Unavailable> {
    tempfile::Builder::new()
        .prefix("dentree-lab")
        .tempdir()
        .map_err(|why| Unavailable::because("cannot make a temporary folder", why))
}
