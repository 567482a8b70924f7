//! File systems made by `mkfs`, judged by e2fsck, dumpe2fs, resize2fs and the kernel.

mod common;

use common::run;
use dentree_blockdev::{Access, FileDevice, MemoryDevice};
use dentree_ext4::mkfs::{Features, Made, MkfsError, MkfsOptions, mkfs};
use dentree_ext4::{BlockSize, InodeTime};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// An image file that goes away.
struct Made2 {
    scratch: TempDir,
}

impl Made2 {
    fn sparse(bytes: u64) -> Made2 {
        let made = Made2 { scratch: tempfile::tempdir().unwrap() };
        File::create(made.path()).unwrap().set_len(bytes).unwrap();
        made
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    fn make(&self, options: &MkfsOptions) -> Result<Made, MkfsError> {
        mkfs(&FileDevice::open(self.path(), Access::ReadWrite).unwrap(), options)
    }
}

fn check(image: &Path, what: &str) {
    let output = Command::new("e2fsck").args(["-fn"]).arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {text}{}", String::from_utf8_lossy(&output.stderr));
}

fn make_and_check(bytes: u64, features: &str, block_size: Option<u32>) -> Made {
    let what = format!("{bytes} bytes, -O {features:?}, blocks of {block_size:?}");
    let image = Made2::sparse(bytes);
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
fn e2fsck_finds_nothing_wrong_whatever_the_size_and_the_features() {
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
fn e2fsck_finds_nothing_wrong_with_large_ones() {
    for features in ["", "ext3", "orphan_file", "^flex_bg"] {
        make_and_check(20 * GIB, features, None);
    }
    make_and_check(20 * GIB + 3 * MIB, "", Some(1024));
    // Longer journals than an inode can map with four extents.
    make_and_check(64 * GIB, "", None);
    make_and_check(16 * GIB, "^flex_bg", Some(1024));
}
