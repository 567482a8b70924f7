//! Random trees through archives, between the kernel's mounts with GNU tar and images with ours.
//!
//! `SEED=7 ROUNDS=100 cargo test -p dentree --test tar_random` runs a hundred trees from seed 7 on.

mod common;

use common::{Image, assert_clean, assert_same_lines, can_mount, succeeds, text};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const KIND: &[&str] = &["-t", "ext4", "-I", "256", "-O", "ea_inode"];

/// The numbers of a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    /// Bytes that are neither zero nor a slash.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let odd = b"\n %=\xff:\x01\\";
        let mut bytes = Vec::new();
        for _ in 0..len {
            let letter = b'a' + self.roll(26) as u8;
            bytes.push(if self.roll(6) == 0 { odd[self.roll(odd.len())] } else { letter });
        }
        bytes
    }

    fn name(&mut self, number: usize) -> Vec<u8> {
        let len = [3, 12, 99, 100, 101, 200, 240][self.roll(7)];
        [number.to_string().into_bytes(), b"-".to_vec(), self.bytes(len)].concat()
    }
}

/// Makes a tree of the dice's.
fn grow(root: &Path, dice: &mut Dice) {
    let mut directories = vec![root.to_owned()];
    let mut made: Vec<PathBuf> = Vec::new();
    for number in 0..40 + dice.roll(60) {
        let dir = directories[dice.roll(directories.len())].clone();
        let path = dir.join(OsStr::from_bytes(&dice.name(number)));
        match dice.roll(10) {
            0 | 1 => {
                // The kernel's paths end at 4096 bytes.
                if path.as_os_str().len() > 3000 || fs::create_dir(&path).is_err() {
                    continue;
                }
                directories.push(path.clone());
            }
            2 => {
                let len = [1, 59, 60, 100, 101, 1000][dice.roll(6)];
                symlink(OsStr::from_bytes(&dice.bytes(len)), &path).unwrap();
            }
            3 => match made.get(dice.roll(made.len().max(1))) {
                // No attribute changes here: it would change twice for one file.
                Some(first) => {
                    fs::hard_link(first, &path).unwrap();
                    continue;
                }
                None => continue,
            },
            4 => {
                let kind = [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo][dice.roll(3)];
                let number = if kind == FileType::Fifo {
                    0
                } else {
                    rustix::fs::makedev(dice.roll(4000) as u32, dice.roll(300_000) as u32)
                };
                rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR, number).unwrap();
            }
            _ => content(&path, dice),
        }
        attributes(&path, dice);
        // GNU tar archives each name of a device or FIFO as a file of its own.
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_file() || kind.is_symlink() {
            made.push(path);
        }
    }
    // Times of directories last, which entries change.
    directories.iter().for_each(|dir| times(dir, dice));
}

/// A file of data and holes.
fn content(path: &Path, dice: &mut Dice) {
    let file = File::create(path).unwrap();
    let mut end = 0;
    for _ in 0..dice.roll(6) {
        let hole = [0, 0, 1, 4096, 70_000, 5 << 20][dice.roll(6)];
        let len = [1, 511, 512, 4096, 10_000, 300_000][dice.roll(6)];
        file.write_all_at(&vec![b'a' + dice.roll(26) as u8; len], end + hole).unwrap();
        end += hole + len as u64;
    }
    file.set_len(end + [0, 0, 1, 5000, 1 << 20][dice.roll(5)]).unwrap();
}

fn attributes(path: &Path, dice: &mut Dice) {
    let id = |dice: &mut Dice| Some([0, 1, 1000, 2_097_151, 2_097_152, 4_000_000_000][dice.roll(6)]);
    lchown(path, id(dice), id(dice)).unwrap();
    let is_link = path.is_symlink();
    if !is_link {
        fs::set_permissions(path, PermissionsExt::from_mode(dice.roll(0o10000) as u32)).unwrap();
    }
    for number in 0..dice.roll(4).saturating_sub(1) {
        let name = format!(
            "{}.{number}=%é",
            if is_link { "trusted" } else { ["trusted", "security"][dice.roll(2)] }
        );
        // e2fsck refuses a short link with an attribute in an inode of its own.
        let len = [0, 1, 40, 500, 3000, 9000][dice.roll(if is_link { 4 } else { 6 })];
        rustix::fs::lsetxattr(path, &*name, &dice.bytes(len), XattrFlags::empty()).unwrap();
    }
    if !is_link && dice.roll(4) == 0 {
        let name = if path.is_dir() && dice.roll(2) == 0 { "default" } else { "access" };
        let name = format!("system.posix_acl_{name}");
        rustix::fs::setxattr(path, &*name, &list(dice), XattrFlags::empty()).unwrap();
    }
    times(path, dice);
}

/// An access control list in the kernel's form: version, then tag, permissions, id.
fn list(dice: &mut Dice) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let some = [1_u16, 2, 4, 8, 16, 32];
    for tag in some {
        let id = if tag == 2 || tag == 8 { dice.roll(70_000) as u32 } else { !0 };
        list.extend(tag.to_le_bytes());
        list.extend((dice.roll(8) as u16).to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

fn times(path: &Path, dice: &mut Dice) {
    let tv_sec = [-1_000_000_000, -1, 0, 1_234_567_890, 1 << 31, (1 << 33) - 1][dice.roll(6)];
    let tv_nsec = [0, 1, 500_000_000, 999_999_999][dice.roll(4)];
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn sums(image: &Image) -> Vec<u8> {
    succeeds(["checksum", &image.at("/")])
}

/// Runs GNU tar in `dir`.
fn gnu_tar(dir: &Path, args: &[&str]) {
    let mut tar = Command::new("tar");
    let kept = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--warning=no-timestamp"];
    let done = tar.args(kept).arg("-C").arg(dir).args(args).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{}", text(&done.stderr));
}

fn round(seed: u64) {
    let image = Image::new(200, KIND);
    grow(&image.mount("rw").unwrap().at, &mut Dice(seed));
    let expected = sums(&image);
    let archive = image.dir.path().join("tree.tar");
    let archive = archive.to_str().unwrap();

    succeeds(["tar", "c", "-f", archive, &image.at("/")]);
    let theirs = Image::new(200, KIND);
    gnu_tar(&theirs.mount("rw").unwrap().at, &["--same-owner", "-xpf", archive]);
    println!("seed {seed}: GNU tar extracts ours");
    assert_same_lines(&sums(&theirs), &expected);

    gnu_tar(&image.mount("ro").unwrap().at, &["--format=pax", "--sparse", "-cf", archive, "."]);
    let ours = Image::new(200, KIND);
    succeeds(["tar", "x", "-f", archive, &ours.at("/")]);
    println!("seed {seed}: we extract GNU tar's");
    assert_same_lines(&sums(&ours), &expected);
    assert_clean(&ours.file);
}

#[test]
fn random_trees_are_equal_after_tar_in_both_directions() {
    if !can_mount() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (first, rounds) = (number("SEED").unwrap_or(1), number("ROUNDS").unwrap_or(3));
    (first..first + rounds).for_each(round);
}
