//! Created file systems, checked by e2fsck, dumpe2fs, resize2fs and the kernel.

mod common;

use common::{fsck, run};
use dentree_blockdev::{Access, FileDevice, MemoryDevice, MeteredDevice, RecordingDevice, Survivors};
use dentree_ext4::mkfs::{Features, MkfsError, MkfsOptions, NewFileSystem, mkfs};
use dentree_ext4::{BlockSize, Ext4, InodeTime, Options};
use dentree_testing::LoopMount;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// 2023-11-14 22:13:20 UTC.
const NOW: InodeTime = InodeTime { seconds: 1_700_000_000, nanos: 0 };
const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

fn options(features: &str, block_size: Option<u32>) -> MkfsOptions {
    let uuid = u128::from_str_radix(&UUID.replace('-', ""), 16).unwrap().to_be_bytes();
    MkfsOptions {
        features: Features::parse(features).unwrap(),
        block_size: block_size.map(|bytes| BlockSize::from_log_block_size(bytes.ilog2() - 10).unwrap()),
        label: b"made here".to_vec(),
        ..MkfsOptions::new(uuid, [1, 2, 3, 4], NOW)
    }
}

struct Image {
    scratch: TempDir,
}

impl Image {
    fn sparse(bytes: u64) -> Image {
        let made = Image { scratch: tempfile::tempdir().unwrap() };
        File::create(made.path()).unwrap().set_len(bytes).unwrap();
        made
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    fn make(&self, options: &MkfsOptions) -> Result<NewFileSystem, MkfsError> {
        mkfs(&FileDevice::open(self.path(), Access::ReadWrite).unwrap(), options)
    }
}

fn check(image: &Path, what: &str) {
    fsck::is_clean(image).unwrap_or_else(|text| panic!("{what}: {text}"));
}

fn make_and_check(bytes: u64, features: &str, block_size: Option<u32>) -> NewFileSystem {
    let what = format!("{bytes} bytes, -O {features:?}, blocks of {block_size:?}");
    let image = Image::sparse(bytes);
    let made = image.make(&options(features, block_size)).unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&image.path(), &what);
    made
}

const FEATURES: &[&str] = &[
    "",
    "ext2",
    "ext3",
    "none",
    "^has_journal",
    "orphan_file,metadata_csum_seed",
    "inline_data,large_dir",
    "^metadata_csum",
    "^metadata_csum,uninit_bg",
    "^64bit",
    "^flex_bg",
    "^flex_bg,^resize_inode,^metadata_csum",
    "^resize_inode,^sparse_super",
    "^extent,^64bit",
    "^filetype,^extra_isize",
];

#[test]
fn e2fsck_accepts_all_sizes_and_features() {
    let sizes =
        [256 * KIB, 300 * KIB + 513, MIB, 3 * MIB, 8500 * KIB, 8700 * KIB, 64 * MIB, 131 * MIB + 77 * KIB];
    for features in FEATURES {
        for size in sizes {
            make_and_check(size, features, None);
        }
        for block_size in [1024, 2048, 4096] {
            make_and_check(40 * MIB, features, Some(block_size));
            make_and_check(600 * MIB + 5 * KIB, features, Some(block_size));
        }
    }
}

#[test]
fn e2fsck_accepts_large_file_systems() {
    for features in ["", "ext3", "orphan_file", "^flex_bg"] {
        make_and_check(20 * GIB, features, None);
    }
    make_and_check(20 * GIB + 3 * MIB, "", Some(1024));
    // Journals of more than four extents.
    make_and_check(64 * GIB, "", None);
    make_and_check(16 * GIB, "^flex_bg", Some(1024));
}

fn by_mke2fs(bytes: u64, features: &str, block_size: Option<u32>) -> Image {
    by_mke2fs_with(bytes, features, block_size, &[])
}

fn by_mke2fs_with(bytes: u64, features: &str, block_size: Option<u32>, more: &[&str]) -> Image {
    let image = Image::sparse(bytes);
    // The machine's mke2fs.conf may differ.
    let config = image.scratch.path().join("mke2fs.conf");
    std::fs::write(&config, "[defaults]\ndefault_mntopts = acl,user_xattr\nenable_periodic_fsck = 0\n")
        .unwrap();
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.env("MKE2FS_CONFIG", config).env("E2FSPROGS_FAKE_TIME", NOW.seconds.to_string());
    mke2fs.args([
        "-q",
        "-F",
        "-L",
        "made here",
        "-U",
        UUID,
        "-E",
        "hash_seed=01000000-0200-0000-0300-000004000000",
    ]);
    mke2fs
        .args(["-O", &format!("none,{}", Features::parse(features).unwrap().to_string().replace(' ', ","))]);
    mke2fs.args(["-I", "256"]);
    let ratio = if bytes < 3 * MIB {
        "8192"
    } else if bytes < 512 * MIB {
        "4096"
    } else {
        "16384"
    };
    let by_size = if bytes < 512 * MIB { 1024 } else { 4096 };
    mke2fs.args(["-i", ratio, "-b", &block_size.unwrap_or(by_size).to_string()]);
    run(mke2fs.args(more).arg(image.path()));
    image
}

fn header(image: &Image) -> BTreeMap<String, String> {
    let text = run(Command::new("dumpe2fs").arg("-h").arg(image.path()));
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// `mkfs/mod.rs` tells why.
const DIFFER: &[&str] = &["Checksum", "Lifetime writes"];

/// Leaves out [`DIFFER`] and `ignored`.
fn differences(ours: &Image, theirs: &Image, ignored: Option<&'static str>) -> BTreeSet<String> {
    let (ours, theirs) = (header(ours), header(theirs));
    let is_ignored = |name: &str| DIFFER.iter().copied().chain(ignored).any(|ignored| ignored == name);
    let names = ours.keys().chain(theirs.keys());
    names
        .filter(|name| !is_ignored(name) && ours.get(*name) != theirs.get(*name))
        .map(|name| format!("{name}: {:?}, theirs {:?}", ours.get(name), theirs.get(name)))
        .collect()
}

#[test]
fn dumpe2fs_shows_the_same_as_for_mke2fs() {
    for (bytes, block_size) in [
        (300 * KIB, None),
        (MIB, None),
        (8500 * KIB, None),
        (64 * MIB, None),
        (64 * MIB, Some(4096)),
        (131 * MIB + 77 * KIB, None),
        (300 * MIB, Some(2048)),
        (GIB, None),
        (20 * GIB, None),
    ] {
        for features in FEATURES {
            // mke2fs adds features that others need.
            if matches!(*features, "none" | "^resize_inode,^sparse_super") {
                continue;
            }
            let what = format!("{bytes} bytes, -O {features:?}, blocks of {block_size:?}");
            let ours = Image::sparse(bytes);
            ours.make(&options(features, block_size)).unwrap();
            let shorter = features.contains("inline_data").then_some("Free blocks");
            let differ = differences(&ours, &by_mke2fs(bytes, features, block_size), shorter);
            assert!(differ.is_empty(), "{what}: {differ:#?}");
        }
    }
}

#[test]
fn dumpe2fs_shows_the_same_numbers_sizes_and_reserves_of_inodes_as_for_mke2fs() {
    let plain = || options("", None);
    let asked = [
        ("-N 1000", MkfsOptions { inodes: Some(1000), ..plain() }),
        ("-N 6543 -i 1024", MkfsOptions { inodes: Some(6543), bytes_per_inode: Some(1024), ..plain() }),
        ("-i 6000", MkfsOptions { bytes_per_inode: Some(6000), ..plain() }),
        ("-I 128", MkfsOptions { inode_size: 128, ..plain() }),
        ("-I 512 -N 5000", MkfsOptions { inode_size: 512, inodes: Some(5000), ..plain() }),
        ("-I 1024", MkfsOptions { inode_size: 1024, ..plain() }),
        ("-m 0", MkfsOptions { reserved: 0, ..plain() }),
        ("-m 0.5", MkfsOptions { reserved: 500, ..plain() }),
        ("-m 50", MkfsOptions { reserved: 50_000, ..plain() }),
    ];
    for bytes in [8500 * KIB, 64 * MIB, 131 * MIB + 77 * KIB, GIB] {
        for (words, options) in &asked {
            let what = format!("{bytes} bytes, {words}");
            let ours = Image::sparse(bytes);
            ours.make(options).unwrap_or_else(|error| panic!("{what}: {error}"));
            let words: Vec<&str> = words.split(' ').collect();
            if bytes < 100 * MIB {
                check(&ours.path(), &what);
            }
            let differ = differences(&ours, &by_mke2fs_with(bytes, "", None, &words), None);
            assert!(differ.is_empty(), "{what}: {differ:#?}");
        }
    }
}

#[test]
fn a_group_has_sixteen_inodes_at_least() {
    let plain = || options("orphan_file", None);
    for options in [
        MkfsOptions { inodes: Some(1), ..plain() },
        MkfsOptions { bytes_per_inode: Some(1 << 26), ..plain() },
    ] {
        let image = Image::sparse(64 * MIB);
        assert_eq!(image.make(&options).unwrap().inodes, 8 * 16);
        check(&image.path(), "few inodes");
    }
}

#[test]
fn inodes_that_fit_no_device_are_refused_before_anything_is_written() {
    let image = Image::sparse(8 * MIB);
    let says = |options: MkfsOptions| image.make(&options).unwrap_err().to_string();
    let plain = || options("", None);
    assert!(says(MkfsOptions { inode_size: 200, ..plain() }).contains("from 128 to 1024"));
    assert!(says(MkfsOptions { inode_size: 2048, ..plain() }).contains("from 128 to 1024"));
    assert!(says(MkfsOptions { inode_size: 128, ..options("inline_data", None) }).contains("from 256"));
    assert!(says(MkfsOptions { inodes: Some(8193), ..plain() }).contains("at most 8192"));
    assert!(says(MkfsOptions { bytes_per_inode: Some(1000), ..plain() }).contains("1024 to 67108864"));
    assert!(says(MkfsOptions { reserved: 50_001, ..plain() }).contains("at most 50 percent"));
    assert!(std::fs::read(image.path()).unwrap().iter().all(|byte| *byte == 0));
}

fn totals(image: &Image) -> Vec<String> {
    let text = run(Command::new("dumpe2fs").arg(image.path()));
    let counts =
        text.lines().filter(|line| line.contains(" free inodes, ")).map(|line| line.trim().to_owned());
    counts.collect()
}

#[test]
fn groups_without_a_journal_have_the_same_counts_as_those_of_mke2fs() {
    for (bytes, features) in [(64 * MIB, "ext2"), (GIB, "^has_journal,^flex_bg"), (300 * MIB, "^has_journal")]
    {
        let ours = Image::sparse(bytes);
        ours.make(&options(features, None)).unwrap();
        assert_eq!(totals(&ours), totals(&by_mke2fs(bytes, features, None)), "{bytes} {features}");
    }
}

fn mount(image: &Image) -> Option<LoopMount> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return None;
    }
    let mount = LoopMount::new(&image.path(), &image.scratch.path().join("mount"), "rw");
    mount.inspect_err(|reason| eprintln!("skipped: {reason}")).ok()
}

#[test]
fn the_kernel_fills_it_and_e2fsck_accepts_it() {
    for (bytes, features, block_size) in [
        (64 * MIB, "", None),
        (600 * MIB, "", None),
        (64 * MIB, "ext2", None),
        (64 * MIB, "ext3", Some(2048)),
        (64 * MIB, "orphan_file,metadata_csum_seed,inline_data,large_dir", None),
        (64 * MIB, "^flex_bg,^resize_inode", None),
        (64 * MIB, "^metadata_csum,uninit_bg", None),
        (64 * MIB, "^has_journal", Some(4096)),
    ] {
        let what = format!("{bytes} bytes, -O {features}");
        let image = Image::sparse(bytes);
        image.make(&options(features, block_size)).unwrap();
        let Some(mount) = mount(&image) else { return };
        // Write into every group.
        for dir in 0..40 {
            let dir = mount.path().join(format!("dir{dir}"));
            std::fs::create_dir(&dir).unwrap();
            for file in 0..20 {
                std::fs::write(dir.join(format!("file{file}")), vec![b'x'; 30_000]).unwrap();
            }
        }
        drop(mount);
        check(&image.path(), &what);
    }
}

#[test]
fn resize2fs_grows_it_into_the_reserved_descriptor_blocks() {
    for (features, block_size) in
        [("", None), ("ext3", None), ("^flex_bg", Some(2048)), ("orphan_file", Some(4096))]
    {
        let image = Image::sparse(40 * MIB);
        image.make(&options(features, block_size)).unwrap();
        for bytes in [90 * MIB, 700 * MIB] {
            File::options().write(true).open(image.path()).unwrap().set_len(bytes).unwrap();
            run(Command::new("resize2fs").arg("-f").arg(image.path()));
            check(&image.path(), &format!("-O {features}, grown to {bytes} bytes"));
        }
    }
}

#[test]
fn a_device_with_old_content_is_cleaned() {
    for features in ["", "ext3", "^flex_bg,orphan_file"] {
        let image = Image::sparse(0);
        let mut old = vec![0xA5; 24 << 20];
        for (at, magic) in [(0, "XFSB"), (4086, "SWAPSPACE2"), (32_769, "CD001"), (65_600, "_BHRfS_M")] {
            old[at..][..magic.len()].copy_from_slice(magic.as_bytes());
        }
        // A member of a Linux RAID of version 1.0.
        let member = old.len() - (8 << 10);
        old[member..][..8].copy_from_slice(&[0xFC, 0x4E, 0x2B, 0xA9, 1, 0, 0, 0]);
        std::fs::write(image.path(), old).unwrap();
        let options = MkfsOptions { reads_as_zeros: false, ..options(features, None) };
        image.make(&options).unwrap();
        check(&image.path(), features);
        let found =
            Command::new("wipefs").args(["--noheadings", "--output", "TYPE"]).arg(image.path()).output();
        let found = found.unwrap().stdout;
        assert_eq!(String::from_utf8_lossy(&found).split_whitespace().count(), 1, "{found:?}");
        let Some(mount) = mount(&image) else { return };
        std::fs::write(mount.path().join("file"), vec![b'x'; 3_000_000]).unwrap();
        drop(mount);
        check(&image.path(), features);
    }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let make = || {
        let device = MemoryDevice::new(24 << 20);
        mkfs(&device, &options("orphan_file", None)).unwrap();
        device.to_vec()
    };
    assert!(make() == make());
}

#[test]
fn twenty_gibibytes_take_few_writes_and_little_space() {
    use std::os::unix::fs::MetadataExt;
    let image = Image::sparse(20 * GIB);
    let disk = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let device = MeteredDevice::new(Arc::new(disk));
    mkfs(&device, &options("", None)).unwrap();
    let counts = device.counts();
    // Mostly reserved descriptor blocks, which point to backups.
    assert!(counts.total_writes() < 1200, "{counts:?}");
    assert!(counts.written_bytes < 6 << 20, "{counts:?}");
    assert!(std::fs::metadata(image.path()).unwrap().blocks() * 512 < 8 << 20);
}

#[test]
fn an_interrupted_mkfs_leaves_no_file_system() {
    let device = RecordingDevice::new(vec![0; 8 << 20]);
    mkfs(&device, &options("", None)).unwrap();
    let recording = device.recording();
    let end = recording.steps().len();
    let mut replay = recording.replay();
    for cut in 0..end {
        for survivors in [Survivors::None, Survivors::Sectors { seed: 1 }] {
            let disk = Arc::new(MemoryDevice::from(replay.image(cut, survivors)));
            // The superblock is written last, before a flush.
            let complete = cut + 1 >= end;
            assert!(complete || Ext4::open(disk, Options::default()).is_err(), "cut {cut}");
        }
    }
    assert!(
        Ext4::open(Arc::new(MemoryDevice::from(replay.image(end, Survivors::None))), Options::default())
            .is_ok()
    );
}

#[test]
fn impossible_options_are_refused_before_any_write() {
    let refused = |bytes: usize, options: &MkfsOptions| {
        let device = MemoryDevice::from(vec![0xA5; bytes]);
        let error = mkfs(&device, options).unwrap_err();
        assert!(device.to_vec().iter().all(|byte| *byte == 0xA5));
        error
    };
    assert!(matches!(refused(0, &options("", None)), MkfsError::TooSmall { .. }));
    assert!(matches!(refused(16 << 10, &options("", None)), MkfsError::TooSmall { .. }));
    let long = MkfsOptions { label: vec![b'x'; 17], ..options("", None) };
    assert!(matches!(refused(1 << 20, &long), MkfsError::LabelTooLong { len: 17 }));
    assert!(matches!(refused(1 << 20, &options("", Some(8192))), MkfsError::BlockSize { bytes: 8192 }));
}
