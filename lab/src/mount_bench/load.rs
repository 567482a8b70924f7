//! The files of the measurements.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};
use tempfile::TempDir;

use super::Size;
use crate::leftovers::folder;
use crate::mounts::command;
use crate::rivals::create_in;
use crate::tree::{Shape, Tree};
use crate::unavailable::Unavailable;

/// 22,222 entries in 1,223 directories.
const TREE: Shape = Shape { name: "mount", fans: &[2, 10, 10, 10, 10] };
/// 2,110 entries.
const ARCHIVED: Shape = Shape { name: "archived", fans: &[10, 10, 20] };
pub(super) const SEED: u64 = 20_02;
/// Directories of `create-many`.
pub(super) const DIRECTORIES: usize = 16;
/// A tree, an archive, and the size of everything.
pub(super) struct Load {
    pub(super) size: Size,
    pub(super) tree: Tree,
    pub(super) archive: PathBuf,
    pub(super) archived: usize,
    _folder: TempDir,
}

impl Load {
    /// Makes the archive.
    pub(super) fn new(size: Size) -> Result<Self, Unavailable> {
        let folder = folder()?;
        let source = folder.path().join("source");
        let archived = Tree::generate(ARCHIVED, SEED);
        std::fs::create_dir(&source).map_err(failed("a temporary folder"))?;
        create_in(open(&source)?.as_fd(), &archived)?;
        let archive = folder.path().join("archive.tar");
        command(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg("."))?;
        let tree = Tree::generate(TREE, SEED);
        Ok(Load { size, tree, archive, archived: archived.len(), _folder: folder })
    }

    pub(super) fn image_bytes(&self) -> u64 {
        (512 << 20) + (self.inodes() * 2048 + 6 * self.size.streamed) as u64
    }

    pub(super) fn inodes(&self) -> usize {
        self.size.large
            + self.size.created
            + DIRECTORIES * self.size.created_each
            + 2 * self.tree.len()
            + 40_000
    }

    /// Makes the initial state: a tree, and the large directory.
    pub(super) fn fill(&self, root: &Path) -> Result<(), Unavailable> {
        for name in ["tree", "large", "many", "untar", "dbench"] {
            std::fs::create_dir(root.join(name)).map_err(failed("cannot fill a file system"))?;
        }
        create_in(open(&root.join("tree"))?.as_fd(), &self.tree)?;
        let large = open(&root.join("large"))?;
        for number in 0..self.size.large {
            mknodat(&large, entry(number), FileType::RegularFile, Mode::RUSR, 0)
                .map_err(failed("cannot fill a file system"))?;
        }
        Ok(())
    }
}

pub(super) fn entry(number: usize) -> String {
    format!("entry-{number:06}")
}

pub(super) fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Unavailable {
    move |why| Unavailable::because(what, why)
}

pub(super) fn open(path: &Path) -> Result<rustix::fd::OwnedFd, Unavailable> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed(&path.display().to_string()))
}
