//! `dentree label`, `uuid` and `tune`, compared with tune2fs.

mod common;

use common::{assert_clean, dentree, succeeds, text, tool};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

/// An image of eight groups, of which 1, 3, 5 and 7 have backups.
fn image(dir: &TempDir, features: &str) -> String {
    let image = dir.path().join("disk.img").to_str().unwrap().to_owned();
    succeeds(["mkfs", &image, "--size", "64M", "-L", "old", "-O", features]);
    image
}

/// What dumpe2fs shows of the superblock at `block`, but for times and the checksum.
fn shown(image: &str, block: u32) -> Vec<String> {
    let at = format!("superblock={block}");
    let text = text(&tool("dumpe2fs", ["-h", "-o", &at, "-o", "blocksize=1024", image]));
    let differ = ["Last write time", "Checksum:", "Lifetime writes"];
    text.lines().filter(|line| !differ.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
}

fn is_as_by_tune2fs(features: &str, ours: &[&str], theirs: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let image = image(&dir, features);
    let copy = dir.path().join("copy.img").to_str().unwrap().to_owned();
    fs::copy(&image, &copy).unwrap();
    succeeds([&ours[..1], &[&image], &ours[1..]].concat());
    tool("tune2fs", [theirs, &[&copy]].concat());
    assert_eq!(shown(&image, 1), shown(&copy, 1), "{features}");
    for block in [8193, 24577, 40961, 57345] {
        let fields = |image: &str| {
            let lines = shown(image, block).into_iter();
            // A backup of ours keeps the counts and the state that it had.
            let names =
                ["volume name", "UUID", "ount", "Reserved block", "Errors", "interval", "RAID", "hash"];
            let is_tuned =
                |line: &String| names.iter().any(|name| line.contains(name)) && !line.contains("Free");
            lines.filter(is_tuned).collect::<Vec<_>>()
        };
        assert_eq!(fields(&image), fields(&copy), "{features}, backup at {block}");
    }
    assert_clean(&image);
}

#[test]
fn a_new_label_is_in_the_superblock_and_its_backups_as_by_tune2fs() {
    for features in ["", "ext2", "^metadata_csum,uninit_bg", "orphan_file,metadata_csum_seed"] {
        is_as_by_tune2fs(features, &["label", "new label"], &["-L", "new label"]);
    }
    let dir = tempfile::tempdir().unwrap();
    let image = image(&dir, "");
    assert_eq!(text(&succeeds(["label", &image])), "old\n");
    succeeds(["label", &image, ""]);
    assert_eq!(text(&succeeds(["label", &image])), "\n");
}

#[test]
fn a_new_uuid_is_in_the_superblock_and_its_backups_as_by_tune2fs() {
    for features in ["ext2", "ext3", "metadata_csum_seed", "orphan_file,metadata_csum_seed"] {
        is_as_by_tune2fs(features, &["uuid", UUID], &["-U", UUID]);
    }
    let dir = tempfile::tempdir().unwrap();
    let image = image(&dir, "metadata_csum_seed");
    let before = succeeds(["uuid", &image]);
    succeeds(["uuid", &image, "random"]);
    let after = text(&succeeds(["uuid", &image]));
    assert_ne!(text(&before), after);
    assert_eq!(text(&tool("blkid", ["-p", "-s", "UUID", "-o", "value", &image])), after);
    // Checksums still have the former UUID as their seed.
    succeeds(["mkdir", &format!("{image}:/made")]);
    assert_clean(&image);
}

#[test]
fn each_parameter_is_in_the_superblock_and_its_backups_as_by_tune2fs() {
    let each: &[&[&str]] = &[
        &["-c", "20", "-i", "2w", "-C", "7"],
        &["-c", "0", "-i", "1m"],
        &["-c", "-1", "-i", "0"],
        &["-e", "panic", "-m", "3.3", "-u", "1000", "-g", "65535"],
        &["-e", "remount-ro", "-r", "20000"],
        &["-m", "0"],
        &["-M", "/mnt/somewhere", "-L", "both", "-U", UUID],
        &["-o", "journal_data_ordered,^acl,nobarrier", "-E", "stride=4,stripe_width=64"],
        &["-o", "journal_data_writeback", "-E", "hash_alg=tea"],
        &["-o", "^journal_data,discard", "-E", "mount_opts=nodelalloc"],
    ];
    for options in each {
        for features in ["metadata_csum_seed", "ext2"] {
            is_as_by_tune2fs(features, &[&["tune"], *options].concat(), options);
        }
    }
}

#[test]
fn wrong_parameters_are_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(&dir, "");
    for options in [
        &["-m", "51"][..],
        &["-C", "70000"],
        &["-u", "70000"],
        &["-e", "ignore"],
        &["-i", "2y"],
        &["-o", "none"],
        &["-E", "hash_alg=md5"],
        &["-E", "stride"],
        &["-L", "seventeen letters"],
        &[],
    ] {
        refused(&image, 2, &[&["tune", &image], options].concat(), "");
    }
    refused(&image, 4, &["tune", &image, "-r", "70000"], "more than half");
    refused(&image, 4, &["tune", &image, "-M", &"x".repeat(64)], "at most 63");
}

/// The command fails with this exit code, says `why`, and leaves the image as it is.
fn refused(image: &str, code: i32, args: &[&str], why: &str) {
    let before = fs::read(image).unwrap();
    let output = dentree(args);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(code) && said.contains(why), "{args:?}: {said}");
    assert!(fs::read(Path::new(image)).unwrap() == before, "{args:?}");
}

#[test]
fn what_the_superblock_alone_cannot_change_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for features in ["", "^metadata_csum,uninit_bg"] {
        fs::remove_file(dir.path().join("disk.img")).ok();
        let image = image(&dir, features);
        refused(&image, 4, &["uuid", &image, "random"], "metadata_csum_seed");
    }
    let image = dir.path().join("disk.img").to_str().unwrap().to_owned();
    refused(&image, 2, &["uuid", &image, "x"], "UUID");
    refused(&image, 2, &["label", &image, "seventeen letters"], "at most 16");
    tool("debugfs", ["-w", "-R", "feature needs_recovery", &image]);
    refused(&image, 4, &["label", &image, "new"], "journal");
    tool("debugfs", ["-w", "-R", "feature -needs_recovery", &image]);
    let mut bytes = fs::read(&image).unwrap();
    bytes[8193 * 1024 + 0x38] ^= 1;
    fs::write(&image, bytes).unwrap();
    refused(&image, 3, &["label", &image, "new"], "block 8193");
}
