//! Directories of every kind grow, and stay valid for the kernel and `e2fsck`.

use crate::common::{Image, compare, run};
use crate::tree::{Tree, check};
use dentree_vfs::{Error, NewKind};
use std::fs;
use std::process::Command;

fn htree_dump(image: &Image, dir: &str) -> String {
    image.debugfs(&format!("htree_dump {dir}\n"))
}

#[test]
fn two_hundred_thousand_names_are_found_again() {
    let image = Image::new("-t ext4 -N 1024", "64M", |_| ());
    let tree = Tree::open(&image);
    let many = tree.dir("many");
    let file = tree.file("file");
    let count = 200_000;
    for n in 0..count {
        // An inode has at most 65,000 links.
        let target = match n % 4 {
            0 => file.clone(),
            k => tree
                .vfs
                .lookup(&tree.who, &many, format!("target {k}").as_bytes())
                .unwrap()
                .unwrap_or_else(|| tree.make(&many, &format!("target {k}"), NewKind::Regular)),
        };
        tree.link(&target, &many, &format!("name number {n}"));
    }
    for n in (0..count).step_by(997) {
        assert!(tree.vfs.lookup(&tree.who, &many, format!("name number {n}").as_bytes()).unwrap().is_some());
    }
    drop((many, file));
    tree.close();
    check(&image, "200,000 names");
    assert!(htree_dump(&image, "/many").contains("Indirect levels: 1"));
    let tree = Tree::open(&image);
    assert_eq!(tree.names("many").len(), count + 3);
    tree.close();
}

#[test]
fn with_large_dir_an_index_gets_three_levels() {
    let image = Image::new("-t ext4 -b 1024 -O large_dir -N 1024", "96M", |_| ());
    let tree = Tree::open(&image);
    let many = tree.dir("many");
    let files: Vec<_> = (0..4).map(|n| tree.file(&format!("file {n}"))).collect();
    for n in 0..70_000 {
        tree.link(&files[n % 4], &many, &format!("{n:0>240}"));
    }
    drop((many, files));
    tree.close();
    check(&image, "three levels");
    assert!(htree_dump(&image, "/many").contains("Indirect levels: 2"));
    if let Some(mount) = image.mount() {
        assert_eq!(fs::read_dir(mount.path().join("many")).unwrap().count(), 70_000);
        assert!(mount.path().join("many").join(format!("{:0>240}", 12_345)).exists());
    }
    let tree = Tree::open(&image);
    let many = tree.at("many");
    for n in 0..70_000 {
        tree.unlink(&many, &format!("{n:0>240}"));
    }
    drop(many);
    tree.rmdir(&tree.root(), "many");
    tree.close();
    check(&image, "three levels, emptied");
}

#[test]
fn a_full_index_refuses_names_and_stays_valid() {
    let image = Image::new("-t ext4 -b 1024 -N 64", "64M", |_| ());
    let tree = Tree::open(&image);
    let many = tree.dir("many");
    let mut made = 0_usize;
    let mut files = Vec::new();
    let error = loop {
        if made.is_multiple_of(60_000) {
            files.push(tree.file(&format!("file {}", files.len())));
        }
        let name = format!("{made:0>250}");
        match tree.vfs.link(&tree.who, files.last().unwrap(), &many, name.as_bytes()) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error}");
    // Split blocks are two thirds full on average: 123 nodes of 126 leaves of 3 names.
    assert!(made > 15_000, "{made}");
    drop((many, files));
    tree.close();
    check(&image, "full index");
}

#[test]
fn too_many_subdirectories_make_the_link_count_1() {
    let image = Image::new("-t ext4 -b 1024 -N 66000 -I 128 -O ^has_journal", "120M", |_| ());
    let tree = Tree::open(&image);
    let many = tree.dir("many");
    for n in 0..65_010 {
        tree.make(&many, &format!("{n}"), NewKind::Directory);
    }
    assert_eq!(many.attr().nlink, 1);
    drop(many);
    tree.close();
    check(&image, "many subdirectories");
}

#[test]
fn every_hash_places_names_where_the_kernel_finds_them() {
    for (algorithm, flags) in [("legacy", 1), ("half_md4", 2), ("tea", 1), ("tea", 2), ("legacy", 2)] {
        let image = Image::new("-t ext4 -b 1024", "16M", |_| ());
        run(Command::new("tune2fs").arg("-E").arg(format!("hash_alg={algorithm}")).arg(image.path()));
        image.debugfs(&format!("set_super_value flags {flags}\n"));
        let tree = Tree::open(&image);
        let many = tree.dir("many");
        for n in 0..400 {
            tree.make(&many, &format!("größe {n} ÿ"), NewKind::Fifo);
        }
        drop(many);
        tree.close();
        check(&image, algorithm);
        if let Some(mount) = image.mount() {
            compare(&image.open(), mount.path());
        }
    }
}

#[test]
fn directories_in_inodes_are_written_and_moved_out() {
    let image = Image::new("-t ext4 -I 512 -O inline_data", "16M", |tree| {
        fs::create_dir_all(tree.join("dir/sub")).unwrap();
        fs::write(tree.join("dir/a"), "").unwrap();
        fs::create_dir_all(tree.join("other")).unwrap();
    });
    let Some(()) = image.change("noatime", |at| {
        // Fill inline directories, also after `i_block`.
        for n in 0..12 {
            fs::write(at.join(format!("other/{n}")), "").unwrap();
        }
        fs::create_dir_all(at.join("kernel/inside")).unwrap();
        fs::create_dir_all(at.join("parent")).unwrap();
    }) else {
        return;
    };
    let is_inline = |path: &str| image.debugfs(&format!("stat {path}\n")).contains("Flags: 0x10000000");
    assert!(is_inline("/other") && is_inline("/kernel"));
    let tree = Tree::open(&image);
    tree.unlink(&tree.at("other"), "3");
    tree.unlink(&tree.at("other"), "11");
    tree.file("other/b");
    tree.rename("other/4", "other/c");
    tree.rename("kernel/inside", "parent/inside");
    tree.close();
    check(&image, "inline");
    assert!(is_inline("/other") && is_inline("/parent"));
    let tree = Tree::open(&image);
    for n in 0..40 {
        tree.file(&format!("other/more {n}"));
    }
    tree.rename("other", "kernel/other");
    tree.close();
    check(&image, "moved out");
    assert!(!is_inline("/kernel/other"));
    if let Some(mount) = image.mount() {
        compare(&image.open(), mount.path());
    }
}

#[test]
fn names_that_differ_in_case_are_one_name() {
    let image = Image::new("-t ext4 -O casefold -E encoding=utf8", "16M", |tree| {
        fs::create_dir(tree.join("folded")).unwrap();
    });
    // `chattr +F` needs kernel support.
    image.debugfs("set_inode_field /folded flags 0x40080000\n");
    let tree = Tree::open(&image);
    for n in 0..400 {
        tree.file(&format!("folded/Größe {n}"));
    }
    let folded = tree.at("folded");
    let again = tree.vfs.create(&tree.who, &folded, "GRÖSSE 7".as_bytes(), NewKind::Regular, 0o644);
    assert!(matches!(again, Err(Error::Exists)));
    tree.unlink(&folded, "GRÖSSE 9");
    drop(folded);
    tree.rename("folded/GRÖSSE 8", "folded/Größe 8 moved");
    let names = tree.names("folded");
    assert!(!names.contains("Größe 9"));
    assert!(names.contains("Größe 8 moved") && !names.contains("Größe 8"));
    assert_eq!(names.len(), 399);
    tree.close();
    check(&image, "casefold");
    if let Some(mount) = image.mount() {
        compare(&image.open(), mount.path());
    }
}
