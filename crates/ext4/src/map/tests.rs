//! One walk finds what block-by-block walks and debugfs find, and reads each node once.

use super::*;
use crate::common::writing::Dice;
use crate::common::{Image, find};
use dentree_vfs::{FileSystem, ReaddirStart};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn at_once(fs: &Ext4, node: &Snapshot, wanted: &[Range<u64>]) -> (Vec<(u64, Mapping)>, u64) {
    let before = fs.buffer_stats();
    let mut found = Vec::new();
    fs.map_blocks(node, wanted, &mut |LogicalBlock(first), run| {
        assert!(run.len > 0);
        for offset in 0..u32::try_from(run.len).unwrap() {
            found.push((u64::from(first) + u64::from(offset), run.mapping_at(offset)));
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    (found, looks(fs) - before.hits - before.misses)
}

fn looks(fs: &Ext4) -> u64 {
    let stats = fs.buffer_stats();
    stats.hits + stats.misses
}

fn one_by_one(fs: &Ext4, node: &Snapshot, blocks: impl Iterator<Item = u64>) -> Vec<(u64, Mapping)> {
    let map = |block| fs.map(node, LogicalBlock(u32::try_from(block).unwrap())).unwrap().mapping;
    blocks.map(|block| (block, map(block))).collect()
}

fn in_words(mapping: Mapping) -> String {
    match mapping {
        Mapping::Data(BlockNumber(at)) => at.to_string(),
        Mapping::Unwritten(BlockNumber(at)) => format!("{at} (uninit)"),
        Mapping::Hole => "0".to_owned(),
    }
}

fn some_of(dice: &mut Dice, end: u64, gap: usize) -> Vec<Range<u64>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < end {
        let start = at + dice.roll(gap) as u64;
        at = start + [0, 1, 1, 1, 2, 9][dice.roll(6)];
        ranges.push(start..at);
    }
    ranges
}

/// Returns the number of nodes below the inode.
fn check(image: &Image, path: &str) -> u64 {
    let fs = image.open();
    let node = find(&fs, path);
    let node = &*node.snapshot();
    let end = (node.inode.size >> fs.sb.block_size.log2()) + 20;
    let (all, whole) = at_once(&fs, node, std::slice::from_ref(&(0..end)));
    assert!(all == one_by_one(&fs, node, 0..end), "{path}");
    let mapped = all.iter().filter(|(_, mapping)| *mapping != Mapping::Hole).count() as u64;
    if !fs.sb.ro_compat.has(crate::RoCompat::BIGALLOC) {
        let nodes = node.inode.sectors / u64::from(fs.sb.block_size.bytes() / 512) - mapped;
        assert_eq!(whole, nodes, "{path}: looks for {end} blocks at once, {mapped} of them mapped");
    }
    let mut dice = Dice(77);
    for gap in [2, 30, 3000] {
        let wanted = some_of(&mut dice, end, gap);
        let (found, looked) = at_once(&fs, node, &wanted);
        assert!(found == one_by_one(&fs, node, wanted.into_iter().flatten()), "{path}");
        assert!(looked <= whole, "{path}: {looked} looks for a list, {whole} for the whole file");
    }
    let mut calls = 0;
    fs.map_range(node, 0..end, &mut |_, _| {
        calls += 1;
        Ok(ControlFlow::Break(()))
    })
    .unwrap();
    assert_eq!(calls, 1);
    let mut maps = MapCache::default();
    for &(block, mapping) in &all {
        let block = LogicalBlock(u32::try_from(block).unwrap());
        assert_eq!(maps.next(&fs, node, block, u32::try_from(end).unwrap()).unwrap(), mapping);
    }
    compare_with_debugfs(image, path, &all, &mut dice);
    whole
}

fn compare_with_debugfs(image: &Image, path: &str, all: &[(u64, Mapping)], dice: &mut Dice) {
    let step = all.len() / 300 + 1;
    let sample: Vec<_> = all.iter().step_by(step).map(|(at, _)| at + dice.roll(step) as u64).collect();
    let sample: Vec<_> = sample.into_iter().filter_map(|at| all.get(usize::try_from(at).unwrap())).collect();
    let script: String = sample.iter().map(|(block, _)| format!("bmap /{path} {block}\n")).collect();
    let said = image.debugfs(&script);
    let said: Vec<_> = said.lines().filter(|line| !line.starts_with("debugfs")).collect();
    let ours: Vec<_> = sample.iter().map(|&&(_, mapping)| in_words(mapping)).collect();
    assert_eq!(ours, said, "{path}");
}

fn write_pieces(path: &Path, count: u64, len: u64) {
    let file = File::create(path).unwrap();
    let piece = vec![0xC3; usize::try_from(len).unwrap()];
    for n in 0..count {
        file.write_all_at(&piece, 2 * n * len).unwrap();
    }
}

#[test]
fn files_that_mke2fs_has_copied_with_their_holes() {
    for (options, least) in [
        ("-t ext4 -b 1024", 7),
        ("-t ext4 -b 1024 -O ^metadata_csum", 7),
        ("-t ext4 -O bigalloc -C 16384", 1),
        ("-t ext2 -b 1024", 20),
        ("-t ext3 -b 1024", 20),
    ] {
        let image = Image::new(options, "48M", |tree| {
            write_pieces(&tree.join("pieces"), 600, 4096);
            fs::write(tree.join("one"), [1; 3000]).unwrap();
            fs::write(tree.join("empty"), "").unwrap();
            File::create(tree.join("hole")).unwrap().set_len(1 << 33).unwrap();
        });
        let nodes = check(&image, "pieces");
        assert!(nodes >= least, "{options}: {nodes} nodes");
        for path in ["one", "empty"] {
            assert_eq!(check(&image, path), 0, "{options}");
        }
        let fs = image.open();
        let hole = find(&fs, "hole");
        let mut runs = Vec::new();
        fs.map_range(&hole.snapshot(), 0..FILE_END + 5, &mut |_, run| {
            runs.push(run);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert!(runs.iter().all(|run| run.mapping == Mapping::Hole), "{options}");
        assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), FILE_END, "{options}");
    }
}

#[test]
fn files_that_the_kernel_has_written_in_trees_of_up_to_three_levels() {
    let image = Image::new("-t ext4 -b 1024 -O ^has_journal", "80M", |_| ());
    let made = image.change("", |top| {
        // A block has 84 extents and the root 4: more than 28,224 need a third level.
        write_pieces(&top.join("deep"), 29_000, 1024);
        write_pieces(&top.join("wide"), 900, 1024);
        let mixed = File::create(top.join("mixed")).unwrap();
        for n in 0..500_u64 {
            fallocate(&mixed, FallocateFlags::KEEP_SIZE, n * 9000, 7000).unwrap();
            mixed.write_all_at(&[7; 1500], n * 9000 + 2048).unwrap();
        }
        mixed.set_len(500 * 9000).unwrap();
    });
    if made.is_none() {
        return;
    }
    let nodes = ["deep", "wide", "mixed"].map(|path| check(&image, path));
    assert!(nodes[0] > 28_224 / 84 + 4 && nodes[1] > 10 && nodes[2] > 10, "{nodes:?}");
}

#[test]
fn files_that_the_kernel_has_written_with_pointers_of_every_level_and_with_clusters() {
    for (options, pieces) in [
        // The levels start after 12, 268 and 65,804 blocks.
        (
            "-t ext2 -b 1024",
            vec![0..14, 200..280, 500..530, 65_700..65_810, 66_050..66_400, 200_000..200_003],
        ),
        ("-t ext4 -O bigalloc -b 4096 -C 65536", vec![0..14, 20..22, 1000..1100, 2000..2001, 5000..5400]),
    ] {
        let image = Image::new(options, "64M", |_| ());
        let made = image.change("", |top| {
            let file = File::create(top.join("file")).unwrap();
            let size = if options.contains("1024") { 1024 } else { 4096 };
            for block in pieces.into_iter().flatten() {
                file.write_all_at(&vec![9; usize::try_from(size).unwrap()], block * size).unwrap();
            }
        });
        if made.is_some() {
            check(&image, "file");
        }
    }
}

#[test]
fn listing_a_directory_in_many_pieces_looks_at_its_map_once() {
    let image = Image::new("-t ext4 -b 1024 -O ^has_journal -N 16384", "48M", |_| ());
    let made = image.change("", |top| {
        let dirs: Vec<_> = (0..6).map(|n| top.join(format!("dir{n}"))).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        File::create(top.join("file")).unwrap();
        // Written in turn, so that no two blocks of a file are adjacent.
        for name in 0..4000 {
            dirs.iter().for_each(|dir| {
                fs::hard_link(top.join("file"), dir.join(format!("a name of some length {name}"))).unwrap();
            });
        }
    });
    if made.is_none() {
        return;
    }
    let nodes = check(&image, "dir3");
    let fs = image.open();
    let dir = find(&fs, "dir3");
    let blocks = fs.attr(&dir).size / 1024;
    assert!(blocks > 150 && nodes > 1, "{blocks} blocks, {nodes} nodes");
    for by_hash in [false, true] {
        let fs = if by_hash { crate::common::writing::open(&image) } else { image.open() };
        let dir = find(&fs, "dir3");
        let before = looks(&fs);
        let mut names = 0;
        fs.readdir(&dir, ReaddirStart::First, &mut |_| {
            names += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        let looked = looks(&fs) - before;
        println!("{looked} looks to list {blocks} blocks that {nodes} nodes map, by hash: {by_hash}");
        assert_eq!(names, 4000);
        // Once for the blocks, and a few times for read-ahead.
        assert!(looked < blocks + 6 * nodes + 8, "{looked} looks for {blocks} blocks and {nodes} nodes");
    }
}
