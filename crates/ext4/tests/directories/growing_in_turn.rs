//! Directories that grow in turn have few extents, and their preallocation costs others no space.

use crate::common::Image;
use crate::tree::{Node, Tree, check};
use dentree_vfs::{Durability, Error, FsStat};
use std::fs;
use std::process::Command;

const DIRS: usize = 48;
const NAMES: usize = 500;

fn name(number: usize) -> String {
    format!("a name that is as long as many are {number}")
}

fn grow(tree: &Tree) -> Vec<Node> {
    let dirs: Vec<_> = (0..DIRS).map(|n| tree.dir(&format!("dir{n}"))).collect();
    let file = tree.file("file");
    for number in 0..NAMES {
        dirs.iter().for_each(|dir| tree.link(&file, dir, &name(number)));
    }
    dirs
}

fn extents(image: &Image) -> Vec<usize> {
    let script: String = (0..DIRS).map(|n| format!("dump_extents -l /dir{n}\n")).collect();
    let mut counts = Vec::new();
    for line in image.debugfs(&script).lines() {
        // ` 0/ 0   1/  4     0 -     0   677 -   677      1`, under a heading for each.
        if line.starts_with("Level") {
            counts.push(0);
        } else if line.trim_start().starts_with(|first: char| first.is_ascii_digit())
            && let Some(count) = counts.last_mut()
        {
            *count += 1;
        }
    }
    counts
}

#[test]
fn directories_that_grow_in_turn_have_few_extents_and_lose_no_blocks() {
    let image = Image::new("-t ext4 -b 1024 -O ^has_journal -N 1024", "32M", |_| ());
    let theirs = image.beside("theirs");
    fs::copy(image.path(), theirs.path()).unwrap();

    let tree = Tree::open(&image);
    let before = tree.vfs.statfs().unwrap();
    let dirs = grow(&tree);
    let taken: u64 = dirs.iter().map(|dir| dir.attr().blocks / 2).sum();
    // Preallocated blocks count as free.
    assert_eq!(tree.vfs.statfs().unwrap().blocks_free, before.blocks_free - taken);
    let blocks = dirs.iter().map(|dir| dir.attr().size / 1024).min().unwrap();
    drop(dirs);
    tree.close();
    check(&image, "grown in turn");
    let ours = extents(&image);
    assert_eq!(ours.len(), DIRS);
    assert!(blocks > 30, "{blocks} blocks");
    println!("{blocks} blocks and more in {ours:?} extents");
    assert!(ours.iter().all(|&count| count <= 5), "{ours:?} extents for {blocks} blocks and more");

    let made = theirs.change("", |top| {
        fs::write(top.join("file"), "").unwrap();
        (0..DIRS).for_each(|n| fs::create_dir(top.join(format!("dir{n}"))).unwrap());
        for number in 0..NAMES {
            for n in 0..DIRS {
                fs::hard_link(top.join("file"), top.join(format!("dir{n}")).join(name(number))).unwrap();
            }
        }
    });
    if made.is_some() {
        println!("the kernel: {:?}", extents(&theirs));
    }
}

/// Until ENOSPC. Returns the length, and the statistics.
fn fill(tree: &Tree) -> (u64, FsStat) {
    let ballast = tree.file("ballast");
    let piece = [0xBA; 64 << 10];
    let mut len = 0;
    loop {
        match tree.vfs.append(&tree.who, &ballast, &piece) {
            Ok((_, done)) => len += done as u64,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    tree.vfs.fsync(&ballast, Durability::Full).unwrap();
    (len, tree.vfs.statfs().unwrap())
}

#[test]
fn a_full_image_holds_no_preallocated_blocks() {
    let image = Image::new("-t ext4 -b 1024 -O ^has_journal -N 1024", "16M", |_| ());
    let other = image.beside("other");
    let tree = Tree::open(&image);
    let dirs = grow(&tree);
    tree.vfs.sync().unwrap();
    // The copy has no preallocations.
    fs::copy(image.path(), other.path()).unwrap();
    // Preallocations exceed the reserve for metadata: the file needs their blocks.
    let (len, with_preallocs) = fill(&tree);
    // Directories grow into the last blocks; then links are refused.
    let file = tree.at("file");
    let mut refused = 0;
    for number in NAMES..2 * NAMES {
        for dir in &dirs {
            let linked = tree.vfs.link(&tree.who, &file, dir, name(number).as_bytes());
            refused += usize::from(matches!(linked, Err(Error::NoSpace)));
        }
    }
    assert!(refused > 0);
    drop((dirs, file));
    tree.close();
    check(&image, "full");

    let repaired = Command::new("e2fsck").arg("-fy").arg(other.path()).output().unwrap();
    assert!(matches!(repaired.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&repaired.stdout));
    let tree = Tree::open(&other);
    let (other_len, without) = fill(&tree);
    tree.close();
    println!(
        "{len} and {other_len} bytes, {} and {} blocks free",
        with_preallocs.blocks_free, without.blocks_free
    );
    // The file's map may need one block more or less.
    assert!(len.abs_diff(other_len) <= 8 << 10, "{len} bytes with preallocations, {other_len} without");
    assert!(with_preallocs.blocks_free.abs_diff(without.blocks_free) <= 8);
}
