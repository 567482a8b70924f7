//! Presized directories: valid for e2fsck and the kernel, filled with few splits.

use crate::common::Image;
use crate::tree::{Tree, check};
use dentree_vfs::{Error, NewKind};

fn blocks(tree: &Tree, path: &str, block_size: u64) -> u64 {
    tree.at(path).attr().size / block_size
}

#[test]
fn a_presized_directory_takes_the_expected_names_with_few_splits() {
    for (options, block_size, entries) in [
        ("-t ext4 -b 1024 -N 30000", 1024, 20_000_u64),
        ("-t ext4 -N 30000", 4096, 20_000),
        ("-t ext4 -b 1024 -O ^metadata_csum,^has_journal -N 30000", 1024, 3_000),
        ("-t ext4 -O inline_data -I 512 -N 30000", 4096, 2_000),
        ("-t ext3 -b 1024 -N 30000", 1024, 5_000),
    ] {
        // The seed decides which names share a leaf.
        let seeded = format!("{options} -E hash_seed=e1c3a2a0-6e6d-4f5b-9a63-0a4f7d0b5c11");
        let image = Image::new(&seeded, "48M", |_| ());
        let tree = Tree::open(&image);
        let dir = tree.dir("dir");
        tree.vfs.reserve_entries(&tree.who, &dir, entries).unwrap();
        let laid_out = blocks(&tree, "dir", block_size);
        assert!(laid_out * block_size >= entries * 24, "{options}: {laid_out} blocks for {entries} entries");
        drop(dir);
        tree.close();
        check(&image, options);
        let tree = Tree::open(&image);
        assert!(tree.names("dir").is_empty());
        let dir = tree.at("dir");
        for number in 0..entries {
            tree.make(&dir, &format!("a common name {number:06}"), NewKind::Fifo);
        }
        // Equal hash ranges hold varying numbers of names.
        let filled = blocks(&tree, "dir", block_size);
        assert!(filled <= laid_out + 2.max(laid_out / 10), "{options}: {laid_out} blocks became {filled}");
        drop(dir);
        tree.close();
        check(&image, options);
        let dump = image.debugfs("htree_dump /dir\n");
        assert!(dump.contains("Root node dump"), "{options}: {dump}");
        if let Some(mount) = image.mount() {
            assert_eq!(std::fs::read_dir(mount.path().join("dir")).unwrap().count() as u64, entries);
            assert!(mount.path().join("dir").join(format!("a common name {:06}", entries - 1)).exists());
        }
    }
}

#[test]
fn a_directory_that_cannot_be_presized_is_refused_or_unchanged() {
    let image = Image::new("-t ext4 -b 1024", "8M", |_| ());
    let tree = Tree::open(&image);
    let expect = |path: &str, entries| tree.vfs.reserve_entries(&tree.who, &tree.at(path), entries);
    tree.dir("full/of");
    assert!(matches!(expect("full", 1000), Err(Error::NotEmpty)));
    expect("full/of", 3).unwrap();
    assert_eq!(blocks(&tree, "full/of", 1024), 1);
    // It grows as far as there is space, and stays valid and empty.
    assert!(matches!(expect("full/of", 10_000_000), Err(Error::NoSpace)));
    assert!(tree.names("full/of").is_empty());
    tree.make(&tree.at("full/of"), "name", NewKind::Symlink(b"target"));
    tree.close();
    check(&image, "refused");

    let image = Image::new("-t ext2 -b 1024 -O ^dir_index", "16M", |_| ());
    let tree = Tree::open(&image);
    let dir = tree.dir("dir");
    assert!(matches!(tree.vfs.reserve_entries(&tree.who, &dir, 1000), Err(Error::Unsupported(_))));
    drop(dir);
    tree.close();
    check(&image, "without indexes");
}
