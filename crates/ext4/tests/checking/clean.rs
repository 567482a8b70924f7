//! Sound images: no false alarm on what e2fsck calls clean.
//!
//! `ROUNDS` rounds from seed `SEED` on, two images each: one that mke2fs has filled with a random
//! tree, and the same after random operations of our engine.

use crate::common::ops::{OpMix, Runner};
use crate::common::writing::Dice;
use crate::images::scratch;
use crate::oracle::{E2fsck, check};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Budgets, Vfs};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

const TYPES: [&str; 4] = ["ext2", "ext3", "ext4", "ext4"];
const BLOCKS: [&str; 4] = ["1024", "1024", "2048", "4096"];
const FEATURES: [&str; 16] = [
    "^metadata_csum",
    "^metadata_csum,uninit_bg",
    "^metadata_csum,^uninit_bg",
    "metadata_csum_seed",
    "^64bit",
    "^flex_bg",
    "^resize_inode",
    "meta_bg,^resize_inode",
    "inline_data",
    "ea_inode",
    "orphan_file",
    "quota",
    "^dir_index",
    "^extent,^64bit",
    "sparse_super2",
    "large_dir,^has_journal",
];

/// Random options of mke2fs.
fn options(rng: &mut Xoshiro256PlusPlus) -> Vec<String> {
    let kind = *TYPES.choose(rng).unwrap();
    let block = *BLOCKS.choose(rng).unwrap();
    let mut all = vec!["-t".into(), kind.into(), "-b".into(), block.into()];
    if kind == "ext4" {
        let features: Vec<&str> =
            (0..rng.random_range(0..3)).map(|_| *FEATURES.choose(rng).unwrap()).collect();
        if !features.is_empty() {
            all.extend(["-O".into(), features.join(",")]);
        }
        if rng.random_bool(0.2) {
            all.extend(["-I".into(), ["128", "512", "1024"].choose(rng).unwrap().to_string()]);
        }
    }
    if rng.random_bool(0.3) {
        all.extend(["-N".into(), rng.random_range(200..3000).to_string()]);
    }
    if rng.random_bool(0.2) {
        all.extend(["-g".into(), (rng.random_range(100..1000) * 8).to_string()]);
    }
    all
}

/// A random tree of files, links and directories.
fn grow(dir: &Path, rng: &mut Xoshiro256PlusPlus, depth: u32) {
    for n in 0..rng.random_range(0..[40, 15, 6, 3][depth as usize % 4]) {
        let len = rng.random_range(1..80);
        let path = dir.join(format!("{n:0>len$}"));
        match rng.random_range(0..6) {
            0 if depth < 3 => {
                fs::create_dir(&path).unwrap();
                grow(&path, rng, depth + 1);
            }
            1 => std::os::unix::fs::symlink("t".repeat(rng.random_range(1..200)), &path).unwrap(),
            _ => fs::write(&path, vec![7; rng.random_range(0..20_000)]).unwrap(),
        }
    }
}

/// Changes an image by our engine; `false` where it refuses to.
fn change(image: &Path, seed: u64) -> bool {
    let device = Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap());
    let Ok(fs) = Ext4::open(device, Options { writable: true, ..Options::default() }) else { return false };
    let vfs = Vfs::with_budgets(fs, Budgets::default()).unwrap();
    let mut runner = Runner::new(&vfs);
    let (mix, mut dice) = (OpMix::default(), Dice(seed));
    for _ in 0..dice.roll(300) {
        // Refusals are part of the story: no space, no such file.
        let _ = runner.apply(&mix.op(&mut dice));
    }
    drop(runner);
    vfs.fs().close().unwrap();
    true
}

#[test]
fn sound_images_have_no_findings() {
    let number =
        |name: &str, default: u64| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (rounds, first) = (number("ROUNDS", 40), number("SEED", 1));
    let (e2fsck, dir, mut count, mut unclean, mut refused) = (E2fsck::new(), scratch(), 0, 0, 0);
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let (image, tree) = (dir.path().join("image"), dir.path().join("tree"));
    for seed in first..first + rounds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir(&tree).unwrap();
        grow(&tree, &mut rng, 0);
        let options = options(&mut rng);
        let _ = fs::remove_file(&image);
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.env("PATH", &path).args(["-q", "-F"]).args(&options).arg("-d").arg(&tree).arg(&image);
        let size = format!("{}M", rng.random_range(8..40));
        // It refuses some options together, and trees that are too large.
        if !mke2fs.arg(&size).output().is_ok_and(|output| output.status.success()) {
            refused += 1;
            continue;
        }
        for step in 0..2 {
            if step == 1 && !change(&image, seed) {
                continue;
            }
            let (theirs, ours) = (e2fsck.check(&image), check(&image));
            if !theirs.is_clean {
                assert!(step == 0, "seed {seed}, {options:?}: our engine wrote it: {}", theirs.said);
                unclean += 1;
                continue;
            }
            count += 1;
            assert!(ours.is_clean, "seed {seed}, step {step}, {options:?}: {}", ours.said);
        }
    }
    println!(
        "{count} clean images without a finding; {unclean} of mke2fs's are not clean, {refused} refused"
    );
    assert!(count > 0);
}
