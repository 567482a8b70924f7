//! `dentree resize` to smaller sizes: random images, judged by e2fsck, the kernel and resize2fs.
//!
//! `ROUNDS` sets the number of images, `SEED` the first one.

mod common;
mod population;
mod resizing;

use common::{assert_clean, assert_same_lines, can_mount, dentree, succeeds, text, tool};
use dentree_testing::LoopMount;
use resizing::{Dice, Made, checksum, field, fill, number};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

/// Has the kernel write files of every kind and remove some, so that inodes and blocks lie in all
/// groups, in pieces.
fn populate(image: &Path, dir: &TempDir, dice: &mut Dice) {
    let at = dir.path().join("filled");
    fs::create_dir(&at).unwrap();
    let mounted = LoopMount::new(image, &at, "rw").unwrap();
    let root = mounted.path();
    let space = || rustix::fs::statvfs(root).unwrap();
    let found = space();
    if found.f_ffree > 1_000 && found.f_bavail * found.f_frsize > 12 << 20 {
        population::small(root);
    }
    let files = dice.roll(found.f_ffree / 2).min(400);
    let most = 1 + found.f_bavail * found.f_frsize / (files + 1);
    let mut made = Vec::new();
    for n in 0..files {
        let sub = root.join(format!("spread {}", dice.roll(12)));
        let path = sub.join(format!("file {n}"));
        if fs::create_dir_all(&sub).is_err() {
            break;
        }
        let Ok(mut file) = File::create(&path) else { break };
        let len = dice.roll(2 * most).min(2 << 20) as usize;
        // It may be full.
        let _ = file.write_all(&vec![n as u8 | 1; len]);
        made.push(path);
    }
    for path in made {
        if dice.roll(3) == 0 {
            fs::remove_file(path).unwrap();
        }
    }
    drop(mounted);
    assert_clean(image);
}

/// The number behind these words in what a program says.
fn number_after(said: &str, words: &str) -> u64 {
    let rest = said.split(words).nth(1).unwrap_or_else(|| panic!("{said}"));
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The least blocks, by us and by resize2fs.
fn minimum(image: &Path) -> Option<(u64, u64)> {
    let done = dentree(["resize".as_ref(), "-P".as_ref(), image.as_os_str()]);
    if !done.status.success() {
        println!("    refused: {}", text(&done.stderr));
        assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
        return None;
    }
    let theirs = text(&tool("resize2fs", ["-P".as_ref(), image.as_os_str()]));
    Some((number_after(&text(&done.stdout), " in "), number_after(&theirs, "filesystem:")))
}

/// What became of an image.
enum Outcome {
    /// mke2fs did not make it.
    Unmade,
    Refused,
    Shrunk,
}

fn round(seed: u64) -> Outcome {
    let (dir, mut dice) = (tempfile::tempdir().unwrap(), Dice::of_seed(seed));
    let made = Made::random(&mut dice);
    let Some(image) = made.make(&dir, &mut dice) else { return Outcome::Unmade };
    println!("seed {seed}: mke2fs {} {}", made.options.join(" "), made.blocks);
    if can_mount() {
        populate(&image, &dir, &mut dice);
    }
    let before = checksum(&image);
    let was = field(&image, "Block count:");
    let Some((least, theirs)) = minimum(&image) else { return Outcome::Refused };
    println!("    {was} blocks, at least {least}, by resize2fs {theirs}");
    let wanted = least + dice.roll(was - least + 1);
    let to_least = dice.roll(2) == 0;
    let size = if to_least { "-M".to_owned() } else { wanted.to_string() };
    let done = dentree(["resize", image.to_str().unwrap(), &size]);
    if !done.status.success() {
        println!("    refused: {}", text(&done.stderr));
        assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
        assert_clean(&image);
        assert_same_lines(&before, &checksum(&image));
        return Outcome::Refused;
    }
    assert_clean(&image);
    assert_same_lines(&before, &checksum(&image));
    let is = field(&image, "Block count:");
    let per_group = field(&image, "Blocks per group:");
    let fits = if to_least { is == least } else { is <= wanted && is + per_group > wanted };
    assert!(fits, "{was} to {is}, wanted {wanted}, at least {least}");
    assert_eq!(fs::metadata(&image).unwrap().len(), is * made.block_size);
    if can_mount() {
        fill(&image, &dir, is);
        assert_same_lines(&before, &checksum(&image));
    }
    // And back, over what was cut.
    if dentree(["resize", image.to_str().unwrap(), &was.to_string()]).status.success() {
        assert_clean(&image);
        assert_same_lines(&before, &checksum(&image));
    }
    Outcome::Shrunk
}

#[test]
fn random_images_shrink_and_keep_their_contents() {
    let (first, rounds) = (number("SEED", 1), number("ROUNDS", 8));
    let (mut made, mut shrunk) = (0, 0);
    for seed in first..first + rounds {
        match round(seed) {
            Outcome::Unmade => {}
            Outcome::Refused => made += 1,
            Outcome::Shrunk => (made, shrunk) = (made + 1, shrunk + 1),
        }
    }
    println!("{shrunk} of {made} shrank; the others were refused");
    assert!(rounds == 1 || shrunk * 10 > made * 9, "{shrunk} of {made}");
}

/// Asserts that nothing changes, and that the message has these words.
fn refused(image: &Path, args: &[&str], words: &str) {
    let before = fs::read(image).unwrap();
    let done = dentree([&["resize", image.to_str().unwrap()], args].concat());
    let said = text(&done.stderr);
    assert!(!done.status.success() && said.contains(words), "{said}");
    assert!(before == fs::read(image).unwrap(), "{said}");
}

#[test]
fn what_cannot_shrink_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (image, tree) = (dir.path().join("disk.img"), dir.path().join("tree"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![1; 9 << 20]).unwrap();
    let (image_arg, tree_arg) = (image.to_str().unwrap(), tree.to_str().unwrap());
    let make = |options: &[&str]| {
        let _ = fs::remove_file(&image);
        tool("mke2fs", [&["-q", "-F", "-b", "1024", "-d", tree_arg], options, &[image_arg, "20M"]].concat());
    };
    let debugfs = |command: &str| drop(tool("debugfs", ["-w", "-R", command, image_arg]));
    make(&["-t", "ext4"]);
    refused(&image, &["9M"], "too few for what the file system holds: it needs ");
    refused(&image, &["0"], "too few");
    refused(&image, &["-M", "9M"], "cannot be used with");
    debugfs("feature needs_recovery");
    refused(&image, &["15M"], "the journal must be replayed first");
    make(&["-t", "ext2"]);
    debugfs("set_super_value state 0");
    refused(&image, &["15M"], "e2fsck checks it");
    make(&["-t", "ext2"]);
    debugfs("freeb 3000");
    refused(&image, &["15M"], "shrinking a damaged file system");
    make(&["-t", "ext4", "-O", "bigalloc"]);
    refused(&image, &["15M"], "bigalloc");
    refused(&image, &["-P"], "bigalloc");
    make(&["-t", "ext4", "-O", "quota"]);
    refused(&image, &["-M"], "quota");
}

#[test]
fn an_image_is_cut_and_a_partition_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (image, disk) = (dir.path().join("disk.img"), dir.path().join("disk"));
    let image_arg = image.to_str().unwrap();
    tool("mke2fs", ["-q", "-F", "-b", "1024", "-t", "ext4", image_arg, "40M"]);
    let mut bytes = vec![0xA5; 64 << 20];
    bytes[1 << 20..41 << 20].copy_from_slice(&fs::read(&image).unwrap());
    fs::write(&disk, &bytes).unwrap();
    succeeds(["resize", "--offset", "1048576", disk.to_str().unwrap(), "10M"]);
    let after = fs::read(&disk).unwrap();
    assert_eq!(after.len(), 64 << 20);
    assert!(after[..1 << 20] == bytes[..1 << 20] && after[41 << 20..] == bytes[41 << 20..]);
    fs::write(dir.path().join("part"), &after[1 << 20..41 << 20]).unwrap();
    assert_clean(dir.path().join("part"));
    let said = text(&succeeds(["resize", image_arg, "10M"]));
    assert!(said.contains("10M in 10240 blocks of 1024 bytes"), "{said}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 10 << 20);
    assert_clean(&image);
}
