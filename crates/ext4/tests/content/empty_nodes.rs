//! Empty nodes of a block map, as other programs leave them, are freed with their file.
//!
//! The bug: freeing skipped holes, and with them indirect blocks of zeros, which stayed in use.

use crate::common::fsck::{free_counts, is_clean};
use crate::common::writing::{node, open};
use crate::common::{Image, run};
use dentree_ext4::Ext4;
use dentree_vfs::{Allocate, FileSystem, SetAttr};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

const BLOCK: u64 = 1024;

/// File blocks in direct pointers, and in trees of one to three levels.
const SPARSE: [u64; 8] = [0, 5, 12, 20, 271, 2069, 65_809, 66_573];

/// `kind`: `IND`, `DIND`, `TIND`, `ETB1`, … of debugfs.
fn nodes(image: &Image, kind: &str) -> Vec<u64> {
    let stat = image.debugfs("stat /file\n");
    let mark = format!("({kind}):");
    let numbers =
        stat.split(", ").flat_map(|part| part.split('\n')).filter_map(|part| part.strip_prefix(&*mark));
    numbers.map(|number| number.trim().parse().unwrap()).collect()
}

fn with_file(options: &str, blocks: impl IntoIterator<Item = u64>) -> Image {
    Image::new(options, "32M", |tree| {
        let file = fs::File::create(tree.join("file")).unwrap();
        for block in blocks {
            file.write_all_at(&[7; BLOCK as usize], block * BLOCK).unwrap();
        }
    })
}

fn overwrite(image: &Image, block: u64, within: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.write_all_at(bytes, block * BLOCK + within).unwrap();
}

type Freeing = (&'static str, fn(&Ext4));

const FREEING: [Freeing; 4] = [
    ("remove", |_| ()),
    ("truncate to nothing", |fs| truncate(fs, 0)),
    ("truncate to the middle, longer, and shorter", |fs| {
        truncate(fs, 2000 * BLOCK);
        truncate(fs, 3000 * BLOCK + 1);
        truncate(fs, 100 * BLOCK + 5);
    }),
    ("punch holes", |fs| {
        let file = node(fs, "file");
        for (first, count) in [(13, 5), (300, 60_000), (0, 70_000)] {
            fs.allocate(&file, first * BLOCK, count * BLOCK, Allocate::PunchHole).unwrap();
        }
    }),
];

fn frees_some(name: &str) -> bool {
    name == FREEING[0].0 || name == FREEING[2].0
}

fn truncate(fs: &Ext4, size: u64) {
    fs.set_attr(&node(fs, "file"), &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

fn remove(fs: &Ext4) {
    let root = fs.load(fs.root()).unwrap();
    let file = node(fs, "file");
    fs.unlink(&root, b"file", &file).unwrap();
    fs.evict(&file);
}

#[test]
fn empty_pointer_blocks_are_freed_with_the_range_around_them() {
    for options in ["-t ext2 -b 1024", "-t ext3 -b 1024"] {
        let empty = free_counts(&Image::new(options, "32M", |_| ()).path());
        for emptied in [&["IND"][..], &["DIND"], &["TIND"], &["IND", "DIND"], &["DIND", "TIND"]] {
            for (name, free) in FREEING {
                let what = format!("{options}, {emptied:?}: {name}");
                let image = with_file(options, SPARSE);
                for kind in emptied {
                    let nodes = nodes(&image, kind);
                    assert!(!nodes.is_empty());
                    nodes.iter().for_each(|&node| overwrite(&image, node, 0, &[0; BLOCK as usize]));
                }
                // The blocks that they pointed to are free.
                Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
                is_clean(&image.path()).unwrap();
                let kept: Vec<u64> =
                    emptied.last().into_iter().flat_map(|kind| nodes(&image, kind)).collect();
                assert!(!kept.is_empty(), "{what}: e2fsck keeps the empty blocks");

                let fs = open(&image);
                free(&fs);
                let left = fs.attr(&node(&fs, "file")).blocks;
                assert!(left == 0 || frees_some(name), "{what}: {left} sectors");
                fs.close().unwrap();
                drop(fs);
                is_clean(&image.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
                let fs = open(&image);
                remove(&fs);
                fs.close().unwrap();
                drop(fs);
                is_clean(&image.path()).unwrap_or_else(|text| panic!("{what}, and remove: {text}"));
                assert_eq!(free_counts(&image.path()), empty, "{what}");
            }
        }
    }
}

#[test]
fn empty_extent_nodes_are_freed_with_their_file() {
    const ENTRIES_AT: u64 = 2;
    for (what, free) in FREEING {
        for emptied in ["ETB0", "ETB1"] {
            let what = format!("{emptied}: {what}");
            let blocks = (0..1000).map(|block| block * 2);
            let image = with_file("-t ext4 -b 1024 -O ^metadata_csum,^has_journal", blocks);
            let all = [nodes(&image, "ETB0"), nodes(&image, "ETB1")];
            let gone: Vec<u64> = if emptied == "ETB0" { all[0].clone() } else { all.concat() };
            assert!(!gone.is_empty());
            nodes(&image, emptied).iter().for_each(|&node| overwrite(&image, node, ENTRIES_AT, &[0, 0]));

            let fs = open(&image);
            free(&fs);
            remove(&fs);
            fs.close().unwrap();
            drop(fs);
            // The blocks below them are unknown.
            for node in gone {
                let tested =
                    run(Command::new("debugfs").arg("-R").arg(format!("testb {node}")).arg(image.path()));
                assert!(tested.contains("not in use"), "{what}: {tested}");
            }
            let report = is_clean(&image.path()).unwrap_err();
            let rest: Vec<&str> = report.lines().filter(|line| line.contains("? no")).collect();
            assert!(report.contains("Block bitmap differences") && rest.len() <= 3, "{what}: {report}");
        }
    }
}
