//! On a full image an operation has the same effect as in memory, or fails with ENOSPC and none.
//! Removals free all space.

use crate::common::fsck;
use crate::common::ops::{Op, OpMix, Runner, contents, differences, reference, tree};
use crate::common::writing::{Dice, OURS, new_image, open};
use dentree_vfs::{FileSystem, FileType, Identity, Inode, NewKind, ReaddirStart, Vfs};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::sync::Arc;

const KINDS: [&str; 7] = [
    "-t ext4 -b 1024 -J size=1",
    "-t ext4 -b 1024 -O metadata_csum_seed,orphan_file -J size=1",
    "-t ext2 -b 1024",
    "-t ext3 -b 1024 -J size=1",
    "-t ext4 -b 1024 -O inline_data -I 256 -J size=1",
    "-t ext4 -b 4096 -O ^has_journal",
    OURS,
];

const ROOM: u64 = 150_000;

fn fill<F: FileSystem>(vfs: &Vfs<F>) {
    let who = &Identity::Superuser;
    let ballast = vfs.create(who, vfs.root(), b"ballast", NewKind::Regular, 0o600).unwrap();
    let stat = vfs.statfs().unwrap();
    let len = (stat.blocks_free * u64::from(stat.block_size)).saturating_sub(ROOM);
    let piece = vec![0xBA; 1 << 20];
    let mut left = usize::try_from(len).unwrap();
    while left > 0 {
        let (_, done) = vfs.append(who, &ballast, &piece[..left.min(piece.len())]).unwrap_or((0, 0));
        left = if done == 0 { 0 } else { left - done };
    }
    vfs.sync().unwrap();
}

fn remove_below<F: FileSystem>(vfs: &Vfs<F>, dir: &Arc<Inode<F>>) {
    let who = &Identity::Superuser;
    let mut names = Vec::new();
    let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    };
    vfs.readdir(who, dir, ReaddirStart::First, each).unwrap();
    for name in names.iter().filter(|name| *name != b"lost+found") {
        let child = vfs.lookup(who, dir, name).unwrap().unwrap();
        if child.kind() == FileType::Directory {
            remove_below(vfs, &child);
            drop(child);
            vfs.rmdir(who, dir, name).unwrap();
        } else {
            drop(child);
            vfs.unlink(who, dir, name).unwrap();
        }
    }
}

/// The operation after a short write.
fn done_of(op: &Op, result: u64) -> Op {
    let mut done = op.clone();
    if let Op::Write { len, .. } | Op::Append { len, .. } = &mut done {
        *len = usize::try_from(result).unwrap();
    }
    done
}

/// Returns how often there was no space.
fn work(options: &str, seed: u64, steps: usize) -> usize {
    let image = new_image(options, "8M");
    let ours = Vfs::new(open(&image)).unwrap();
    let before = ours.statfs().unwrap();
    fill(&ours);
    let model = reference();
    let (mut runner, mut reference) = (Runner::new(&ours), Runner::new(&model));
    let allocates = options.contains("ext4") || options == OURS;
    let mix = OpMix { top: String::new(), allocates, durable_one_of: 15 };
    let mut dice = Dice(0x5851_F42D * seed + 1);
    let mut refused = 0;
    for step in 0..steps {
        let op = mix.op(&mut dice);
        let what = format!("{options}, seed {seed}, step {step}: {op:?}");
        let result = runner.apply(&op);
        match result {
            Err(Errno::NOSPC) => refused += 1,
            Ok(count) => assert_eq!(Ok(count), reference.apply(&done_of(&op, count)), "{what}"),
            Err(_) => assert_eq!(result, reference.apply(&op), "{what}"),
        }
        let mut shown = tree(&ours);
        shown.remove("/ballast");
        let differences = differences(&shown, &tree(&model));
        assert!(differences.is_empty(), "{what}, {result:?}: {differences}");
    }
    drop((runner, reference));
    let mut found = contents(&ours);
    found.remove("/ballast");
    assert!(found == contents(&model), "{options}, seed {seed}: contents");
    ours.into_fs().expect("no inode is in use").close().unwrap();
    fsck::is_clean(&image.path()).unwrap_or_else(|text| panic!("{options}, seed {seed}, full: {text}"));

    let ours = Vfs::new(open(&image)).unwrap();
    remove_below(&ours, &ours.root().clone());
    ours.sync().unwrap();
    let after = ours.statfs().unwrap();
    // The root directory does not shrink.
    let root = ours.root().attr().blocks * 512 / u64::from(after.block_size) - 1;
    assert_eq!(after.blocks_free + root, before.blocks_free, "{options}, seed {seed}: free blocks");
    assert_eq!(after.inodes_free, before.inodes_free, "{options}, seed {seed}: free inodes");
    ours.into_fs().expect("no inode is in use").close().unwrap();
    fsck::is_clean(&image.path()).unwrap_or_else(|text| panic!("{options}, seed {seed}, emptied: {text}"));
    refused
}

#[test]
fn operations_on_a_full_image_succeed_or_change_nothing() {
    for options in KINDS {
        let refused: usize = (1..=3).map(|seed| work(options, seed, 300)).sum();
        assert!(refused > 20, "{options}: there was space all but {refused} times");
    }
}
