//! The kernel sees names created, moved and removed here, and `e2fsck` finds nothing.

use crate::common::{Image, compare};
use crate::tree::{KINDS, Tree, check};
use dentree_vfs::{Error, FileType, NewKind, OnExisting};
use std::collections::BTreeSet;
use std::fs;

fn mixed(tree: &Tree) {
    let root = tree.root();
    let deep = tree.dir("a/b/c");
    for n in 0..300 {
        tree.file(&format!("a/many/file with a longish name {n}"));
    }
    tree.make(&deep, "fast", NewKind::Symlink(b"../target"));
    tree.make(&deep, "slow", NewKind::Symlink("t/".repeat(200).as_bytes()));
    tree.make(&deep, "border fast", NewKind::Symlink(&[b'f'; 59]));
    tree.make(&deep, "border slow", NewKind::Symlink(&[b's'; 60]));
    tree.make(&deep, "fifo", NewKind::Fifo);
    tree.make(&deep, "socket", NewKind::Socket);
    tree.make(&deep, "tty", NewKind::CharDevice { major: 5, minor: 1 });
    tree.make(&deep, "disk", NewKind::BlockDevice { major: 1000, minor: 70_000 });
    let file = tree.file("file");
    tree.link(&file, &deep, "hard");
    tree.file("gone");
    tree.unlink(&root, "gone");
    for n in (0..300).step_by(3) {
        tree.unlink(&tree.at("a/many"), &format!("file with a longish name {n}"));
    }
    tree.unlink(&deep, "slow");
    tree.make(&deep, "slow again", NewKind::Symlink(&[b'x'; 900]));
    tree.dir("empty");
    tree.rmdir(&root, "empty");
    tree.rename("file", "a/moved");
    tree.rename("a/b", "b moved");
    tree.file("victim");
    tree.rename("a/many/file with a longish name 1", "victim");
    tree.dir("d1");
    tree.dir("d2/below");
    tree.rename("d1", "a/b");
    tree.rename("d2/below", "a/b");
    tree.exchange("a/b", "victim");
    tree.exchange("a/many/file with a longish name 4", "a/many/file with a longish name 5");
}

#[test]
fn the_kernel_sees_the_same_names() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |_| ());
        let tree = Tree::open(&image);
        mixed(&tree);
        tree.close();
        check(&image, options);
        let Some(mount) = image.mount() else { continue };
        compare(&image.open(), mount.path());
        drop(mount);
        image
            .change("noatime", |at| {
                fs::write(at.join("by the kernel"), "x").unwrap();
                for n in 0..500 {
                    fs::write(at.join(format!("a/many/kernel {n}")), "").unwrap();
                }
                fs::remove_file(at.join("a/many/file with a longish name 7")).unwrap();
            })
            .unwrap();
        let tree = Tree::open(&image);
        let names = tree.names("a/many");
        assert!(names.contains("kernel 499") && !names.contains("file with a longish name 7"));
        tree.unlink(&tree.at("a/many"), "kernel 77");
        tree.rename("by the kernel", "a/many/by both");
        tree.close();
        check(&image, options);
    }
}

#[test]
fn a_large_directory_is_indexed_and_emptied_again() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |_| ());
        let tree = Tree::open(&image);
        let many = tree.dir("many");
        for n in 0..4000 {
            tree.make(&many, &format!("n{n}"), NewKind::Fifo);
        }
        drop(many);
        assert_eq!(tree.names("many").len(), 4000);
        tree.close();
        check(&image, options);
        let tree = Tree::open(&image);
        for n in 0..4000 {
            tree.unlink(&tree.at("many"), &format!("n{n}"));
        }
        tree.rmdir(&tree.root(), "many");
        tree.close();
        check(&image, options);
    }
}

#[test]
fn open_files_survive_without_a_name() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |_| ());
        let tree = Tree::open(&image);
        let free = tree.free();
        let file = tree.file("file");
        let dir = tree.dir("dir");
        let unnamed = tree.unnamed();
        let linked = tree.unnamed();
        tree.unlink(&tree.root(), "file");
        tree.rmdir(&tree.root(), "dir");
        tree.link(&linked, &tree.root(), "linked");
        assert_eq!([&file, &dir, &unnamed].map(|inode| inode.attr().nlink), [0; 3]);
        drop((file, dir, unnamed, linked));
        tree.unlink(&tree.root(), "linked");
        assert_eq!(tree.free(), free, "{options}");
        tree.close();
        check(&image, options);
    }
}

#[test]
fn attributes_are_freed_with_their_last_file() {
    for options in ["-t ext4 -b 1024 -I 128 -O ^has_journal,^metadata_csum", "-t ext4 -b 1024"] {
        let image = Image::new(options, "16M", |_| ());
        let value = [7; 600];
        let Some(()) = image.change("noatime", |at| {
            for name in ["a", "b", "c"] {
                fs::write(at.join(name), "x").unwrap();
                let none = rustix::fs::XattrFlags::empty();
                rustix::fs::lsetxattr(at.join(name), "user.large", &value, none).unwrap();
            }
        }) else {
            return;
        };
        let tree = Tree::open(&image);
        let (blocks, _) = tree.free();
        tree.unlink(&tree.root(), "b");
        tree.close();
        check(&image, options);
        let tree = Tree::open(&image);
        tree.unlink(&tree.root(), "a");
        tree.unlink(&tree.root(), "c");
        assert_eq!(tree.free().0, blocks + 4, "{options}: three blocks of content, one of attributes");
        tree.close();
        check(&image, options);
    }
}

#[test]
fn nonempty_directories_and_existing_names_are_refused() {
    let image = Image::new("-t ext4", "16M", |_| ());
    let tree = Tree::open(&image);
    tree.file("a/b");
    tree.dir("c");
    let root = tree.root();
    assert!(matches!(tree.vfs.rmdir(&tree.who, &root, b"a"), Err(Error::NotEmpty)));
    let replace = tree.vfs.rename(&tree.who, &root, b"c", &root, b"a", OnExisting::Replace);
    assert!(matches!(replace, Err(Error::NotEmpty)));
    let long = NewKind::Symlink(&[b'x'; 4096]);
    assert!(tree.vfs.create(&tree.who, &root, b"long", long, 0o777).is_err());
    assert_eq!(tree.names("/"), BTreeSet::from(["a", "c", "lost+found"].map(String::from)));
    drop(root);
    tree.close();
    check(&image, "refused");
}

#[test]
fn a_full_file_system_stays_valid() {
    for options in ["-t ext4 -N 64 -b 1024", "-t ext4 -b 1024 -N 4096", "-t ext2 -b 1024 -N 4096"] {
        let image = Image::new(options, "4M", |_| ());
        let tree = Tree::open(&image);
        let mut made = 0;
        let error = loop {
            let name = format!("{made:0>200}");
            let dir = tree.vfs.create(&tree.who, &tree.root(), name.as_bytes(), NewKind::Directory, 0o755);
            match dir {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace), "{error}");
        assert_eq!(tree.names("/").len(), made + 1);
        tree.close();
        check(&image, options);
        let tree = Tree::open(&image);
        for n in 0..made {
            tree.rmdir(&tree.root(), &format!("{n:0>200}"));
        }
        tree.dir("fits again");
        tree.close();
        check(&image, options);
    }
}

#[test]
fn a_created_fifo_is_found_as_a_fifo() {
    let image = Image::new("-t ext4", "16M", |_| ());
    let tree = Tree::open(&image);
    tree.make(&tree.root(), "fifo", NewKind::Fifo);
    assert_eq!(tree.at("fifo").attr().kind, FileType::Fifo);
    tree.close();
}
