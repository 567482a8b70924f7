//! Orphans that a power cut left are freed at the next open.

use crate::common::Image;
use crate::tree::{KINDS, Tree, check};
use dentree_vfs::{FileSystem, NewKind};
use std::fs;
use std::process::Command;

/// Leaves orphans of every type, linked to each other. Copies the image as on the device.
fn with_orphans(options: &str, size: &str) -> (Image, Image, (u64, u64)) {
    let image = Image::new(options, size, |_| ());
    let tree = Tree::open(&image);
    tree.file("stays");
    let free = tree.free();
    let mut held = Vec::new();
    for n in 0..20 {
        let (file, dir) = (format!("file {n}"), format!("dir {n}"));
        let node = tree.file(&file);
        tree.vfs.fs().write(node.node(), 0, &[7; 5000]).unwrap();
        held.extend([node, tree.dir(&dir), tree.unnamed()]);
        held.push(tree.make(&tree.root(), "link", NewKind::Symlink(&[b'x'; 200])));
        tree.unlink(&tree.root(), "link");
        tree.unlink(&tree.root(), &file);
        tree.rmdir(&tree.root(), &dir);
    }
    // Free some from the middle of the list.
    for n in [70, 41, 40, 3, 0] {
        held.swap_remove(n);
    }
    tree.vfs.fs().sync().unwrap();
    let copy = image.beside("copy");
    fs::copy(image.path(), copy.path()).unwrap();
    drop(held);
    assert_eq!(tree.free(), free, "{options}");
    tree.close();
    check(&image, options);
    (image, copy, free)
}

#[test]
fn opening_frees_orphans_of_a_crash() {
    for (options, size) in KINDS {
        let (_image, copy, free) = with_orphans(options, size);
        let tree = Tree::open(&copy);
        assert_eq!(tree.free(), free, "{options}");
        tree.close();
        check(&copy, options);
    }
}

#[test]
fn e2fsck_and_the_kernel_free_orphans_of_a_crash() {
    for (options, size) in KINDS {
        let (_image, copy, free) = with_orphans(options, size);
        let by_kernel = copy.beside("by the kernel");
        fs::copy(copy.path(), by_kernel.path()).unwrap();
        let preen = Command::new("e2fsck").arg("-p").arg(copy.path()).output().unwrap();
        let text = String::from_utf8_lossy(&preen.stdout).into_owned();
        assert!(preen.status.code().is_some_and(|code| code < 2), "{options}: {text}");
        check(&copy, options);
        let tree = Tree::open(&copy);
        assert_eq!(tree.free(), free, "{options}");
        tree.close();
        // The kernel wants an image without a journal checked first.
        if options.contains("ext2") || options.contains("^has_journal") {
            continue;
        }
        if by_kernel.change("noatime", |_| ()).is_some() {
            check(&by_kernel, options);
        }
    }
}
