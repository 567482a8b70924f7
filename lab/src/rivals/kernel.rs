//! The kernel's own name cache: `stat(2)` of the same paths on a tree made for it.
//!
//! Paths are resolved from an open root, so that only the tree's own components are walked. A small
//! tree is on a loop-mounted ext4, which keeps negative entries; tmpfs keeps none, but takes
//! millions of files in seconds.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, mknodat, openat, renameat, statat};
use rustix::io::Result as SysResult;

use super::NameCache;
use crate::mounts::{HiddenMount, Image};
use crate::paths::{Path, Rename};
use crate::tree::{NodeId, Tree};
use crate::unavailable::Unavailable;

/// Trees of at most this many entries are made on ext4.
const LARGEST_ON_EXT4: usize = 200_000;
/// Kernel memory per file on tmpfs: dentry, inode, security label and directory entry, with a
/// margin.
const BYTES_PER_FILE: usize = 1400;

/// A tree in the kernel.
#[derive(Debug)]
pub struct KernelStat {
    mount: HiddenMount,
    inodes: Vec<u64>,
}

impl KernelStat {
    /// Makes every entry of a tree.
    ///
    /// # Errors
    /// Needs root, and about 1.4 kB of free memory per entry.
    pub fn build(tree: &Tree) -> Result<Self, Unavailable> {
        let needed = tree.len() * BYTES_PER_FILE;
        if let Some(free) = available_memory().filter(|&free| free < needed) {
            let why = format!("{} MiB of memory free, {} needed", free >> 20, needed >> 20);
            return Err(Unavailable::because("kernel tree", why));
        }
        let mount = if tree.len() <= LARGEST_ON_EXT4 {
            HiddenMount::image(Image::ext4(tree.len() * 5 / 4)?.path(), "rw")?
        } else {
            HiddenMount::tmpfs()?
        };
        let inodes = create_below(&mount, tree)?;
        Ok(Self { mount, inodes })
    }

    /// Bytes of a dentry in this kernel, by `/proc/slabinfo` (needs root), without the table of
    /// heads.
    pub fn bytes_per_dentry() -> Option<usize> {
        let slabs = std::fs::read_to_string("/proc/slabinfo").ok()?;
        let line = slabs.lines().find(|line| line.starts_with("dentry "))?;
        line.split_whitespace().nth(3)?.parse().ok()
    }
}

/// Makes a tree on an empty file system and returns the inode number of every node.
///
/// # Errors
/// Those of the system calls.
pub fn create_below(mount: &HiddenMount, tree: &Tree) -> Result<Vec<u64>, Unavailable> {
    create_in(mount.root(), tree)
}

/// As [`create_below`], in any directory.
pub(crate) fn create_in(folder: BorrowedFd<'_>, tree: &Tree) -> Result<Vec<u64>, Unavailable> {
    create(folder, tree).map_err(|why| Unavailable::because("cannot make the tree", why))
}

fn create(root: BorrowedFd<'_>, tree: &Tree) -> SysResult<Vec<u64>> {
    let mut inodes = vec![statat(root, c"", AtFlags::EMPTY_PATH)?.st_ino];
    let mut path = Vec::new();
    let mut open = None;
    for (node, parent, name) in tree.entries() {
        let directory = match open.take() {
            Some((at, directory)) if at == parent => directory,
            _ => {
                path.clear();
                path.extend_from_slice(b"./");
                tree.push_path(parent, &mut path);
                openat(root, path.as_slice(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?
            }
        };
        if tree.is_directory(node) {
            mkdirat(&directory, name, Mode::RWXU)?;
        } else {
            mknodat(&directory, name, FileType::RegularFile, Mode::RUSR, 0)?;
        }
        inodes.push(statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino);
        open = Some((parent, directory));
    }
    Ok(inodes)
}

fn available_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

impl NameCache for KernelStat {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        statat(self.mount.root(), path.c_str(), AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino)
    }

    fn token(&self, node: NodeId) -> u64 {
        self.inodes[node.index()]
    }

    fn rename(&self, rename: &Rename) {
        renameat(self.mount.root(), rename.from().c_str(), self.mount.root(), rename.to().c_str())
            .expect("entries of a rename load are there, and their new names are free");
    }
}
