//! Small images by e2fsprogs and, through a loop mount, by the kernel.

use dentree_ext4_format::{BlockNumber, Inode, InodeNumber, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// An image and its source directory.
pub struct Image {
    folder: TempDir,
}

/// Prints the reason for `None`: the program is missing or fails.
pub fn run(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        // 1: errors corrected.
        Ok(output) if output.status.success() || (program == "e2fsck" && output.status.code() == Some(1)) => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            eprintln!("skipped: {program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

impl Image {
    /// `size` as for mke2fs; `fill` creates the content.
    pub fn new(size: &str, mke2fs: &[&str], fill: impl FnOnce(&Path)) -> Option<Self> {
        let image = Self { folder: TempDir::new().unwrap() };
        let source = image.folder.path().join("source");
        std::fs::create_dir(&source).unwrap();
        fill(&source);
        let (path, source) = (image.path(), source.to_str().unwrap().to_owned());
        let arguments = [&["-q", "-F", "-d", &source], mke2fs, &[path.to_str().unwrap(), size]].concat();
        run("mke2fs", &arguments)?;
        Some(image)
    }

    /// Removed with the image.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self) -> PathBuf {
        self.folder().join("image")
    }

    /// Runs a debugfs command.
    pub fn debugfs(&self, command: &str) -> Option<String> {
        run("debugfs", &["-w", "-R", command, self.path().to_str().unwrap()])
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// Inode, its number, its bytes.
    pub fn inode(&self, path: &str) -> Option<(Inode, InodeNumber, Vec<u8>)> {
        let answer = self.debugfs(&format!("imap {path}"))?;
        let number = answer.strip_prefix("Inode ")?.split(' ').next()?.parse().ok()?;
        let (block, offset) =
            answer.split_once("block ")?.1.split_once("block ")?.1.split_once(", offset 0x")?;
        let block = BlockNumber(block.parse().ok()?);
        let bytes = self.bytes();
        let sb = superblock(&bytes);
        let offset = usize::from_str_radix(offset.trim(), 16).ok()?;
        let record = block_of(&bytes, &sb, block)[offset..][..usize::try_from(sb.inode_size).ok()?].to_vec();
        Some((Inode::parse(&record, InodeNumber(number), &sb).unwrap(), InodeNumber(number), record))
    }
}

pub fn superblock(image: &[u8]) -> Superblock {
    let at = usize::try_from(SUPERBLOCK_OFFSET).unwrap();
    let bytes: &[u8; SUPERBLOCK_SIZE] = image[at..].first_chunk().unwrap();
    Superblock::parse(bytes).unwrap()
}

pub fn block_of<'a>(image: &'a [u8], sb: &Superblock, block: BlockNumber) -> &'a [u8] {
    let size = sb.block_size.in_memory();
    &image[usize::try_from(block.0).unwrap() * size..][..size]
}
