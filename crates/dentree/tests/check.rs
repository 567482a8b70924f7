//! `dentree check`: what it prints, on sound and on damaged images.
//!
//! What it finds is compared with e2fsck in `ext4/tests/checking`. `ROUNDS` damages each kind of
//! file system, from seed `SEED` on.

mod common;
mod population;

use common::{Image, can_mount, dentree, text};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options, Part};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::env;
use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const KINDS: [&[&str]; 14] = [
    &["-t", "ext2"],
    &["-t", "ext2", "-b", "1024", "-I", "128"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,inline_data"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,ea_inode,^resize_inode,meta_bg"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,bigalloc,^resize_inode", "-C", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,casefold,large_dir"],
    &["-t", "ext4", "-b", "2048", "-O", "^metadata_csum,^dir_index,^extent,^64bit,^filetype"],
];

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether e2fsck finds damage, and what it says.
fn e2fsck(image: &Path) -> (bool, String) {
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let output = Command::new("e2fsck").env("PATH", path).arg("-fn").arg(image).output().unwrap();
    let said = dentree_testing::said(&output);
    // It reads damaged descriptors from their backups, and calls the result clean.
    let is_patched = said.contains("trying backup blocks");
    // Its exit status forgets some of the repairs that it proposes.
    let proposes = said.replace("Optimize? no", "").contains("? no") || said.contains("IGNORED");
    (output.status.code() != Some(0) || is_patched || proposes, said)
}

fn check(image: &Path) -> (bool, String) {
    let output = dentree(["--no-progress".as_ref(), "check".as_ref(), image.as_os_str()]);
    let said = dentree_testing::said(&output);
    assert!(matches!(output.status.code(), Some(0 | 4 | 8)), "{said}");
    (output.status.code() != Some(0), said)
}

/// The other commands about damaged images end by themselves, too.
fn bad_ends(image: &Path, what: &str) {
    for words in [&["undelete"][..], &["journal", "show"], &["frag"], &["free"]] {
        let words = words.iter().map(std::ffi::OsStr::new).chain([image.as_os_str()]);
        let output = dentree(words);
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=4)) && !said.contains("panicked"), "{what}: {said}");
    }
}

/// Bytes of metadata: each range is one structure.
fn metadata(image: &Path) -> Vec<Range<u64>> {
    let device = Arc::new(FileDevice::open(image, Access::ReadOnly).unwrap());
    let fs = Ext4::open(device, Options::default()).unwrap();
    let sb = fs.superblock();
    let (block, log) = (u64::from(sb.block_size.bytes()), sb.block_size.log2());
    let layout = fs.layout().unwrap();
    let superblock = 1024..2048;
    let (mut ranges, mut inodes) = (vec![superblock.clone()], Vec::new());
    for group in (0..layout.groups_count()).map(dentree_ext4::GroupNumber) {
        inodes.extend(layout.inodes_in_use(group).unwrap());
    }
    let inode_size = u64::from(sb.inode_size);
    for number in u64::from(sb.first_data_block)..sb.blocks_count {
        use dentree_ext4::Structure;
        let start = number << log;
        match layout.system_use(dentree_ext4::BlockNumber(number)) {
            Some(Structure::BlockBitmap(_) | Structure::InodeBitmap(_)) => {
                ranges.push(start..start + block / 4)
            }
            Some(Structure::GroupDescriptor(_)) if number < 4 => {
                let size = u64::from(sb.desc_size);
                ranges.extend((0..u64::from(sb.groups)).map(|n| start + n * size..start + (n + 1) * size));
            }
            Some(Structure::InodeTable) => {
                let at = layout.inodes_at(dentree_ext4::BlockNumber(number)).unwrap();
                ranges.extend(
                    (0_u64..)
                        .zip(at)
                        .filter(|(_, ino)| inodes.iter().any(|used| used.0 == *ino))
                        .map(|(n, _)| start + n * inode_size..start + (n + 1) * inode_size),
                );
            }
            _ => {}
        }
    }
    for ino in inodes.into_iter().filter(|ino| ino.0 > 10 || ino.0 == 2) {
        let is_dir = |part: &Part| matches!(part, Part::Content(extent) if extent.len < 100);
        let mut each = |part: Part| {
            if !matches!(part, Part::Content(_)) || is_dir(&part) && ino.0.is_multiple_of(5) {
                let blocks = part.blocks();
                ranges.extend(blocks.map(|number| number << log..(number + 1) << log));
            }
            ControlFlow::Continue(())
        };
        let _ = fs.inode_blocks(ino, &mut each, &mut |_| {});
    }
    ranges
}

/// The blocks of all directories.
fn directories(image: &Path) -> Vec<Range<u64>> {
    let device = Arc::new(FileDevice::open(image, Access::ReadOnly).unwrap());
    let fs = Ext4::open(device, Options::default()).unwrap();
    let log = fs.superblock().block_size.log2();
    let found = common::succeeds([
        "find".as_ref(),
        image.as_os_str(),
        "-type".as_ref(),
        "d".as_ref(),
        "-printf".as_ref(),
        "%i\\n".as_ref(),
    ]);
    let mut ranges = Vec::new();
    for ino in text(&found).lines().map(|line| line.parse().unwrap()) {
        let mut each = |part: Part| {
            ranges.extend(part.blocks().map(|number| number << log..(number + 1) << log));
            ControlFlow::Continue(())
        };
        fs.inode_blocks(dentree_ext4::InodeNumber(ino), &mut each, &mut |_| {}).unwrap();
    }
    ranges
}

/// Changes some bytes of a structure: a bit, a byte, or a number of two or four bytes.
fn damage(file: &File, ranges: &[Range<u64>], rng: &mut Xoshiro256PlusPlus) -> String {
    let range = &ranges[rng.random_range(0..ranges.len())];
    let len = range.end - range.start;
    // Most of a structure's meaning is at its beginning.
    let within =
        if rng.random_bool(0.7) { rng.random_range(0..len.min(160)) } else { rng.random_range(0..len) };
    let at = range.start + within / 4 * 4;
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).unwrap();
    let before = bytes;
    match rng.random_range(0..6) {
        0 => bytes[rng.random_range(0..4)] ^= 1 << rng.random_range(0..8),
        1 => bytes[rng.random_range(0..4)] = rng.random(),
        2 => bytes = rng.random::<u32>().to_le_bytes(),
        3 => bytes = u32::from_le_bytes(bytes).wrapping_add(1).to_le_bytes(),
        4 => bytes = [0; 4],
        _ => bytes[..2].copy_from_slice(&rng.random_range(0..300_u16).to_le_bytes()),
    }
    file.write_all_at(&bytes, at).unwrap();
    format!("{:#x} of {range:x?}: {before:x?} is {bytes:x?}", at - range.start)
}

fn filled(options: &[&str]) -> Image {
    let image = Image::new(12, &[options, &["-N", "1024"]].concat());
    match image.mount("rw") {
        Ok(mount) => population::small(&mount.at),
        Err(why) => println!("empty, as the kernel does not mount {options:?}: {why}"),
    }
    image
}

#[test]
fn commands_about_damaged_images_end_by_themselves() {
    if !can_mount() {
        return;
    }
    let (rounds, first) = (number("ROUNDS", 6), number("SEED", 1));
    for (kind, options) in (0_u64..).zip(KINDS) {
        let image = filled(options);
        let (bad, said) = check(&image.file);
        assert!(!bad && !e2fsck(&image.file).0, "{options:?}: {said}");
        let ranges = [metadata(&image.file), directories(&image.file)].concat();
        let copy = image.dir.path().join("copy");
        for seed in first..first + rounds {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(kind << 32 | seed);
            fs::copy(&image.file, &copy).unwrap();
            let file = File::options().read(true).write(true).open(&copy).unwrap();
            let what = damage(&file, &ranges, &mut rng);
            drop(file);
            check(&copy);
            bad_ends(&copy, &what);
        }
    }
}

#[test]
fn problems_have_codes_and_repairs() {
    let image = Image::new(8, &["-t", "ext4"]);
    image.debugfs(&["sif /lost+found links_count 7"]);
    let (bad, said) = check(&image.file);
    let line = "pass 4: inode, inode 11: links: 7 stored, 2 counted (/lost+found) \
                [0x040003 PR_4_BAD_REF_COUNT: e2fsck writes the right value]";
    assert!(bad && said.lines().any(|found| found == line), "{said}");
    let output = dentree(["check".as_ref(), "--json".as_ref(), image.file.as_os_str()]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["code"], &line["name"]), (&"0x040003".into(), &"PR_4_BAD_REF_COUNT".into()));
    assert_eq!((&line["pass"], &line["repair"]), (&4.into(), &"writes the right value".into()));
}

#[test]
fn a_quick_check_reads_bitmaps_and_checksums_and_no_directories() {
    let image = Image::new(8, &["-t", "ext4"]);
    image.debugfs(&["sif /lost+found links_count 7"]);
    let quick = |image: &Image| dentree(["check".as_ref(), "--quick".as_ref(), image.file.as_os_str()]);
    assert!(quick(&image).status.success(), "{}", text(&quick(&image).stdout));
    image.debugfs(&["freeb 100 5"]);
    let output = quick(&image);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stdout).contains("PR_5_FREE_BLOCK_COUNT_GROUP"), "{}", text(&output.stdout));
}

#[test]
fn a_check_of_paths_reads_these_only() {
    let image = Image::new(8, &["-t", "ext4"]);
    let commands = ["mkdir a", "mkdir b", "sif a dtime 5000000", "sif b dtime 5000000"];
    image.debugfs(&commands);
    let list = image.dir.path().join("list");
    fs::write(&list, "a\n/lost+found\n").unwrap();
    let args = ["check".as_ref(), "--paths".as_ref(), list.as_os_str(), image.file.as_os_str()];
    let output = dentree(args);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("(/a)") && !said.contains("(/b)"), "{said}");
    fs::write(&list, "lost+found\n").unwrap();
    assert!(dentree(args).status.success());
}

#[test]
fn sound_images_of_every_kind_are_clean() {
    if !can_mount() {
        return;
    }
    let more: [&[&str]; 12] = [
        &["-t", "ext4", "-b", "2048"],
        &["-t", "ext4", "-b", "65536"],
        &["-t", "ext4", "-O", "orphan_file,metadata_csum_seed"],
        &["-t", "ext4", "-O", "sparse_super2"],
        &["-t", "ext4", "-O", "inline_data"],
        &["-t", "ext4", "-b", "1024", "-I", "1024", "-O", "inline_data"],
        &["-t", "ext4", "-O", "ea_inode"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"],
        &["-t", "ext4", "-O", "quota,project"],
        &["-t", "ext4", "-O", "encrypt,verity,stable_inodes"],
        &["-t", "ext4", "-O", "mmp"],
    ];
    for options in KINDS.into_iter().chain(more) {
        let image = Image::new(96, options);
        match image.mount("rw") {
            Ok(mount) => population::everything(&mount.at),
            Err(why) => {
                println!("skipped: the kernel does not mount it: {why}");
                continue;
            }
        }
        let (bad, said) = check(&image.file);
        assert!(!bad, "{options:?}: {said}\n{}", e2fsck(&image.file).1);
        assert!(said.contains("clean"), "{said}");
    }
}
