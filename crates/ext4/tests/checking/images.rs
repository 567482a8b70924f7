//! Images of every kind of file system, filled by mke2fs.

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Options of mke2fs.
pub const KINDS: [&str; 24] = [
    "-t ext2",
    "-t ext2 -b 1024 -I 128",
    "-t ext3 -b 1024",
    "-t ext4",
    "-t ext4 -b 1024",
    "-t ext4 -b 1024 -O ^metadata_csum",
    "-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg",
    "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit",
    "-t ext4 -b 1024 -O ^metadata_csum,inline_data",
    "-t ext4 -b 1024 -O ^metadata_csum,ea_inode,^resize_inode,meta_bg",
    "-t ext4 -b 1024 -O ^metadata_csum,bigalloc,^resize_inode -C 4096",
    "-t ext4 -b 1024 -O ^metadata_csum,orphan_file",
    "-t ext4 -b 1024 -O ^metadata_csum,casefold,large_dir",
    "-t ext4 -b 2048 -O ^metadata_csum,^dir_index,^extent,^64bit,^filetype",
    "-t ext4 -O orphan_file,metadata_csum_seed",
    "-t ext4 -b 1024 -O inline_data",
    "-t ext4 -b 1024 -I 1024 -O inline_data,ea_inode",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4 -b 1024 -O ^flex_bg,^resize_inode",
    "-t ext4 -b 1024 -O quota,project",
    "-t ext4 -b 1024 -O mmp,encrypt,verity",
    "-t ext4 -b 1024 -O sparse_super2,^resize_inode",
    "-t ext4 -b 65536 -O ^has_journal",
    "-t ext4 -b 2048 -O ^has_journal,extent,^dir_index",
];

/// An image in a directory of its own.
pub struct Image {
    _dir: TempDir,
    pub file: PathBuf,
}

pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn run(command: &mut Command, codes: &[i32]) {
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some_and(|code| codes.contains(&code)), "{command:?}: {said}");
}

impl Image {
    /// mke2fs with `options`, from the tree at `tree`; directories get an index.
    pub fn new(options: &str, size: &str, tree: &Path) -> Image {
        let dir = scratch();
        let file = dir.path().join("image");
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F"]).args(options.split_whitespace()).arg("-d").arg(tree);
        run(mke2fs.arg(&file).arg(size), &[0]);
        run(Command::new("e2fsck").arg("-fyD").arg(&file), &[0, 1]);
        Image { _dir: dir, file }
    }
}

/// A tree with one of each kind of structure.
pub fn fill(root: &Path) {
    for (dir, count, len) in [("many", 300, 40), ("deep", 450, 240), ("few", 3, 5)] {
        let dir = root.join(dir);
        fs::create_dir(&dir).unwrap();
        for n in 0..count {
            let name = format!("{n:0>len$}");
            if n % 50 == 0 {
                fs::write(dir.join(&name), name.repeat(n % 7)).unwrap();
            } else {
                let first = dir.join(format!("{:0>len$}", n / 50 * 50));
                fs::hard_link(first, dir.join(name)).unwrap();
            }
        }
    }
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for len in [1, 59, 60, 254, 1000] {
        symlink("t".repeat(len), root.join(format!("a/symlink-{len}"))).unwrap();
    }
    for (name, kind) in
        [("fifo", FileType::Fifo), ("socket", FileType::Socket), ("null", FileType::CharacterDevice)]
    {
        // Devices are for root.
        let device = rustix::fs::makedev(1, 3);
        let _ = rustix::fs::mknodat(CWD, root.join("a").join(name), kind, Mode::RUSR, device);
    }
    for len in [0, 10, 100, 1024, 5000, 70_000] {
        fs::write(root.join(format!("a/b/bytes-{len}")), "x".repeat(len)).unwrap();
    }
    for (name, len) in [("small", 5), ("block", 300), ("same", 300), ("large", 400)] {
        let path = root.join("a/b/c").join(name);
        fs::write(&path, name).unwrap();
        for n in 0..3 {
            let value = vec![b'a'; len / (n + 1)];
            // Not every file system has attributes.
            let _ = rustix::fs::setxattr(&path, format!("user.name-{n}"), &value, XattrFlags::empty());
        }
    }
    let extents = File::create(root.join("extents")).unwrap();
    for n in 0..300 {
        extents.write_all_at(b"x", n * 8192).unwrap();
    }
}
