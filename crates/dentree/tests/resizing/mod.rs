//! Random images of mke2fs, for tests of other sizes.

#![allow(dead_code)] // each test binary uses a part

use super::common::{assert_clean, succeeds, text, tool};
use dentree_testing::LoopMount;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What `checksum` says of an image, but for the root directory, whose time a mount may change.
pub fn checksum(image: &Path) -> Vec<u8> {
    let all = succeeds(["checksum".as_ref(), image.as_os_str()]);
    all.split_inclusive(|byte| *byte == b'\n').skip(1).collect::<Vec<_>>().concat()
}

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

pub struct Dice(pub u64);

impl Dice {
    pub fn of_seed(seed: u64) -> Dice {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        dice
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % sides
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len() as u64) as usize]
    }
}

/// Options of mke2fs, and the size in blocks.
pub struct Made {
    pub options: Vec<String>,
    pub block_size: u64,
    pub blocks: u64,
}

impl Made {
    pub fn random(dice: &mut Dice) -> Made {
        let block_size: u64 = dice.pick(&["1024", "2048", "4096"]).parse().unwrap();
        let mut options: Vec<String> =
            ["-q", "-F", "-b", &block_size.to_string(), "-t", dice.pick(&["ext2", "ext3", "ext4", "ext4"])]
                .map(str::to_owned)
                .to_vec();
        let mut features: Vec<&str> = Vec::new();
        let places = ["", "", "^resize_inode", "^resize_inode,meta_bg", "^resize_inode,sparse_super2"];
        features.push(dice.pick(&places));
        features.push(dice.pick(&["", "", "^resize_inode,^sparse_super"]));
        features.push(dice.pick(&["", "", "^metadata_csum", "^metadata_csum,uninit_bg", "metadata_csum"]));
        features.push(dice.pick(&["", "", "^flex_bg", "flex_bg"]));
        features.push(dice.pick(&["", "", "^64bit", "64bit,extent"]));
        features.push(dice.pick(&["", "", "", "^has_journal", "metadata_csum_seed,metadata_csum"]));
        features.push(dice.pick(&["", "", "", "inline_data", "orphan_file"]));
        features.retain(|feature| !feature.is_empty());
        if !features.is_empty() {
            options.extend(["-O".to_owned(), features.join(",")]);
        }
        if dice.roll(2) == 0 {
            let eights = 32 + dice.roll(block_size - 31);
            options.extend(["-g".to_owned(), (eights * 8).to_string()]);
        }
        let blocks = (2 + dice.roll(40)) * (1 << 20) / block_size + dice.roll(2000);
        if dice.roll(4) == 0 {
            options.extend(["-E".to_owned(), format!("resize={}", blocks * (2 + dice.roll(40)))]);
        }
        if dice.roll(3) == 0 {
            options.extend(["-i".to_owned(), (1024 << dice.roll(7)).max(block_size).to_string()]);
        }
        if dice.roll(4) == 0 {
            options.extend(["-G".to_owned(), (1 << dice.roll(6)).to_string()]);
        }
        options.extend(["-m".to_owned(), dice.roll(20).to_string()]);
        Made { options, block_size, blocks }
    }

    /// An image with files; `None` where mke2fs refuses the options.
    pub fn make(&self, dir: &TempDir, dice: &mut Dice) -> Option<PathBuf> {
        let (tree, image) = (dir.path().join("tree"), dir.path().join("disk.img"));
        fs::create_dir(&tree).unwrap();
        let all = self.blocks * self.block_size;
        for number in 0..dice.roll(30) {
            let sub = tree.join(format!("dir {}", dice.roll(4)));
            fs::create_dir_all(&sub).unwrap();
            let most = if dice.roll(5) == 0 { all / 20 } else { 9000 };
            let len = dice.roll(most);
            let content: Vec<u8> = (0..len).map(|at| (at * 31 / 7 + number) as u8).collect();
            fs::write(sub.join(format!("file {number}")), content).unwrap();
        }
        let mut mke2fs = Command::new("/usr/sbin/mke2fs");
        let made = mke2fs.args(&self.options).arg("-d").arg(&tree).arg(&image).arg(self.blocks.to_string());
        let made = made.output().unwrap();
        let clean = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(&image).output().unwrap();
        fs::remove_dir_all(&tree).unwrap();
        (made.status.success() && clean.status.success()).then_some(image)
    }
}

/// What dumpe2fs says of the superblock.
pub fn field(image: &Path, name: &str) -> u64 {
    let shown = text(&tool("dumpe2fs", ["-h".as_ref(), image.as_os_str()]));
    let line = shown.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.trim().parse().unwrap()
}

/// Has the kernel fill a file system of so many blocks, and remove it all.
pub fn fill(image: &Path, dir: &TempDir, blocks: u64) {
    let at = dir.path().join("mnt");
    fs::create_dir_all(&at).unwrap();
    let mount = || LoopMount::new(image, &at, "minixdf").unwrap();
    let mounted = mount();
    let found = rustix::fs::statvfs(mounted.path()).unwrap();
    assert_eq!(found.f_blocks, blocks);
    let mut file = File::create(mounted.path().join("fill")).unwrap();
    let piece = vec![0xA5; 1 << 20];
    let wrote = (0..).take_while(|_| file.write_all(&piece).is_ok()).count();
    drop((file, mounted));
    assert_clean(image);
    let free = (found.f_bfree * found.f_frsize) >> 20;
    assert!(wrote as u64 + 1 >= free * 9 / 10, "{wrote} MiB of {free}");
    let mounted = mount();
    fs::remove_file(mounted.path().join("fill")).unwrap();
    drop(mounted);
    assert_clean(image);
}
