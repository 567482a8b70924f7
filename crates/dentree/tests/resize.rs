//! `dentree resize`: random images of mke2fs become larger, and e2fsck and the kernel judge them.
//!
//! `ROUNDS` sets the number of images, `SEED` the first one.

mod common;
mod resizing;

use common::{assert_clean, assert_same_lines, can_mount, dentree, succeeds, text, tool};
use dentree_testing::{LoopDevice, LoopMount};
use resizing::{Dice, Made, checksum, field, fill, number};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Grows a random image. Returns whether it was one, and not refused.
fn round(seed: u64) -> bool {
    let (dir, mut dice) = (tempfile::tempdir().unwrap(), Dice::of_seed(seed));
    let made = Made::random(&mut dice);
    let Some(image) = made.make(&dir, &mut dice) else { return false };
    let checksum = || checksum(&image);
    let before = checksum();
    // Twice, the second time perhaps into the space of a longer file.
    for _ in 0..2 {
        let was = field(&image, "Block count:");
        let factor = [2, 5, 20, 100][dice.roll(4) as usize];
        // Rarely above 2 GiB.
        let most = if dice.roll(20) == 0 { 1 << 36 } else { 1 << 31 } / made.block_size;
        let wanted = was + 1 + dice.roll((was * (factor - 1)).min(most));
        println!("seed {seed}: mke2fs {} {}, {was} to {wanted}", made.options.join(" "), made.blocks);
        let len = fs::metadata(&image).unwrap().len();
        let mut args = vec!["resize".as_ref(), image.as_os_str()];
        let size = wanted.to_string();
        if dice.roll(3) == 0 && len < wanted * made.block_size {
            let file = OpenOptions::new().write(true).open(&image).unwrap();
            file.set_len(wanted * made.block_size).unwrap();
        } else {
            args.push(size.as_ref());
        }
        let done = dentree(args);
        if !done.status.success() {
            assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
            assert!(text(&done.stderr).contains("no place"), "{}", text(&done.stderr));
            assert_clean(&image);
            assert_same_lines(&before, &checksum());
            println!("    refused: {}", text(&done.stderr));
            return false;
        }
        assert_clean(&image);
        let is = field(&image, "Block count:");
        let said = text(&done.stdout);
        assert!(said.contains(&format!(" in {is} blocks")), "{said}");
        let per_group = field(&image, "Blocks per group:");
        assert!(is <= wanted && is + per_group > wanted && is >= was, "{was} to {is}");
        assert_same_lines(&before, &checksum());
        if is * made.block_size <= 100 << 20 && can_mount() {
            fill(&image, &dir, is);
            assert_same_lines(&before, &checksum());
        }
    }
    true
}

#[test]
fn random_images_grow_and_keep_their_contents() {
    let (first, rounds) = (number("SEED", 1), number("ROUNDS", 25));
    let grown = (first..first + rounds).filter(|&seed| round(seed)).count();
    println!("{grown} of {rounds} grew; the others were refused, or mke2fs did not make them");
    assert!(rounds == 1 || grown as u64 > rounds / 3);
}

/// Asserts that nothing changes, and that the message has these words.
fn refused(image: &Path, size: &[&str], words: &str) {
    let before = fs::read(image).unwrap();
    let done = dentree([&["resize", image.to_str().unwrap()], size].concat());
    let said = text(&done.stderr);
    assert!(!done.status.success() && said.contains(words), "{said}");
    assert!(before == fs::read(image).unwrap(), "{said}");
}

#[test]
fn what_cannot_grow_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let make = |options: &[&str]| {
        let _ = fs::remove_file(&image);
        let all = [&["-q", "-F", "-b", "1024"], options, &[image.to_str().unwrap(), "20M"]].concat();
        tool("mke2fs", all);
    };
    make(&["-t", "ext4"]);
    refused(&image, &["5x"], "no unit");
    refused(&image, &["5T"], "more than the 4294967295");
    tool("debugfs", ["-w", "-R", "feature needs_recovery", image.to_str().unwrap()]);
    refused(&image, &["30M"], "the journal must be replayed first");
    make(&["-t", "ext2"]);
    tool("debugfs", ["-w", "-R", "set_super_value state 0", image.to_str().unwrap()]);
    refused(&image, &["30M"], "e2fsck checks it");
    tool("debugfs", ["-w", "-R", "set_super_value state 3", image.to_str().unwrap()]);
    refused(&image, &["30M"], "recorded errors");
    make(&["-t", "ext4", "-O", "bigalloc"]);
    refused(&image, &["30M"], "bigalloc");
    make(&["-t", "ext4", "-O", "quota"]);
    refused(&image, &["30M"], "quota");
    fs::write(&image, [0; 4096]).unwrap();
    refused(&image, &["30M"], "no ext2, ext3 or ext4");
}

/// The kernel makes such images where it grows a file system that has no descriptors reserved.
#[test]
fn descriptors_may_lie_behind_the_superblock_first_and_in_meta_block_groups_later() {
    for features in ["64bit", "64bit,^metadata_csum,uninit_bg"] {
        let dir = tempfile::tempdir().unwrap();
        let (image, script) = (dir.path().join("disk.img"), dir.path().join("script"));
        let features = format!("^resize_inode,{features}");
        let image_arg = image.to_str().unwrap();
        let options = ["-q", "-F", "-b", "1024", "-g", "1024", "-N", "400", "-t", "ext4"];
        tool("mke2fs", [&options[..], &["-O", &features, image_arg, "20M"]].concat());
        // 20 groups, 16 descriptors in a block.
        fs::write(&script, "set_super_value first_meta_bg 2\nfeature meta_bg\n").unwrap();
        tool("debugfs", ["-w", "-f", script.to_str().unwrap(), image_arg]);
        assert_clean(&image);
        for size in ["30M", "77M"] {
            succeeds(["resize", image_arg, size]);
            assert_clean(&image);
        }
        succeeds(["mkdir", &format!("{image_arg}:/made")]);
        assert_clean(&image);
        if can_mount() {
            fill(&image, &dir, 77 << 10);
        }
    }
}

#[test]
fn sizes_are_blocks_sectors_or_bytes_as_for_resize2fs() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    tool("mke2fs", ["-q", "-F", "-b", "2048", "-t", "ext4", image.to_str().unwrap(), "20M"]);
    let resize = |size: &[&str]| {
        succeeds([&["resize", image.to_str().unwrap()], size].concat());
        assert_eq!(fs::metadata(&image).unwrap().len(), field(&image, "Block count:") * 2048);
        field(&image, "Block count:")
    };
    assert_eq!(resize(&[]), 10240);
    assert_eq!(resize(&["12000"]), 12000);
    assert_eq!(resize(&["65536s"]), 16384);
    assert_eq!(resize(&["40M"]), 20480);
    assert_eq!(resize(&["40960k"]), 20480);
    assert_clean(&image);
}

#[test]
fn a_file_system_grows_to_the_end_of_its_partition_and_nothing_behind_it_changes() {
    for table in ["gpt", "dos"] {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk.img");
        fs::write(&disk, vec![0xA5; 64 << 20]).unwrap();
        let partitioned = |size: u64| {
            let mut sfdisk = Command::new("/usr/sbin/sfdisk");
            sfdisk.args(["--quiet", "--no-reread", "--wipe", "never"]).arg(&disk).stdin(Stdio::piped());
            let Ok(mut child) = sfdisk.stdout(Stdio::null()).spawn() else {
                println!("skipped: no sfdisk(8)");
                return false;
            };
            let script = format!("label: {table}\nstart=2048, size={size}\nstart=104448, size=16384\n");
            child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            child.wait().unwrap().success()
        };
        if !partitioned(20480) {
            return;
        }
        let disk_arg = disk.to_str().unwrap();
        succeeds(["mkfs", disk_arg, "--partition", "1", "-q", "-L", "grows"]);
        refused(&disk, &["--partition", "1", "20M"], "make the partition, device or disk larger first");
        refused(&disk, &["20M"], "make the partition, device or disk larger first");
        assert!(partitioned(102_400));
        let before = fs::read(&disk).unwrap();
        let said = text(&succeeds(["resize", disk_arg]));
        assert!(said.contains("50M in 51200 blocks of 1024 bytes"), "{said}");
        let after = fs::read(&disk).unwrap();
        assert!(before[..1 << 20] == after[..1 << 20] && before[51 << 20..] == after[51 << 20..]);
        let part = dir.path().join("part");
        fs::write(&part, &after[1 << 20..51 << 20]).unwrap();
        assert_clean(&part);
    }
}

#[test]
fn a_block_device_is_grown_unless_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("disk.img"), dir.path().join("mnt"));
    tool("mke2fs", ["-q", "-F", "-b", "1024", "-t", "ext4", image.to_str().unwrap(), "20M"]);
    File::options().write(true).open(&image).unwrap().set_len(60 << 20).unwrap();
    fs::create_dir(&at).unwrap();
    let device = LoopDevice::new(&image, &[]).unwrap();
    let mounted = LoopMount::of(&device, &at, "rw").unwrap();
    assert_eq!(dentree(["resize".as_ref(), device.path().as_os_str()]).status.code(), Some(1));
    drop(mounted);
    let said = text(&succeeds(["resize".as_ref(), device.path().as_os_str()]));
    assert!(said.contains("60M in 61440 blocks"), "{said}");
    assert_clean(device.path());
    refused(device.path(), &["70M"], "make the partition, device or disk larger first");
}
