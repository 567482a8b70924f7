//! Allocation on full images, in deep trees and by several threads, checked by `e2fsck`.

use crate::common::Image;
use crate::common::writing::{Dice, KINDS, check, node, open, read_all, try_open};
use dentree_ext4::{Ext4, Node};
use dentree_vfs::{Allocate, Durability, Error, FileSystem, NewInode, NewKind, SetAttr};
use std::process::Command;

fn set_size(fs: &Ext4, node: &Node, size: u64) {
    fs.set_attr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

fn make(fs: &Ext4, name: &str) -> Node {
    let root = fs.load(fs.root()).unwrap();
    let new = NewInode { kind: NewKind::Regular, permissions: 0o644, uid: 0, gid: 0, xattrs: &[] };
    fs.create(&root, name.as_bytes(), &new).unwrap()
}

#[test]
fn a_fragmented_map_gains_and_loses_levels() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |tree| std::fs::write(tree.join("file"), "").unwrap());
        let fs = open(&image);
        let file = node(&fs, "file");
        let block = fs.superblock().block_size.in_memory();
        let mut content = vec![0; 2 * 1500 * block];
        // Backwards, every other block: no extent continues another.
        for n in (0..1500).rev() {
            let at = 2 * n * block;
            let data = vec![u8::try_from(n % 255).unwrap() + 1; block];
            fs.write(&file, u64::try_from(at).unwrap(), &data).unwrap();
            content[at..at + block].copy_from_slice(&data);
            if n % 100 == 0 {
                fs.fsync(&file, Durability::Data).unwrap();
            }
        }
        content.truncate((2 * 1499 + 1) * block);
        assert!(read_all(&fs, &file) == content, "{options}");
        // Punches whole leaves.
        let (from, len) = (700 * block + 10, 1200 * block);
        fs.allocate(&file, u64::try_from(from).unwrap(), u64::try_from(len).unwrap(), Allocate::PunchHole)
            .unwrap();
        content[from..from + len].fill(0);
        for n in 0..300 {
            let at = (2 * n + 1) * block;
            fs.write(&file, u64::try_from(at).unwrap(), &content[at..at + block]).unwrap();
        }
        assert!(read_all(&fs, &file) == content, "{options}");
        fs.close().unwrap();
        drop(fs);
        check(&image, &[("file", &content)], options);
        image.agrees_with_the_kernel();

        let fs = open(&image);
        let file = node(&fs, "file");
        let kept = 2100 * block + 5;
        set_size(&fs, &file, u64::try_from(kept).unwrap());
        content.truncate(kept);
        assert!(read_all(&fs, &file) == content, "{options}");
        fs.sync().unwrap();
        set_size(&fs, &file, 3);
        content.truncate(3);
        fs.close().unwrap();
        check(&image, &[("file", &content)], options);
    }
}

#[test]
fn a_full_image_fails_the_write_and_stays_valid() {
    for (options, size) in [("-t ext4 -O ^has_journal", "8M"), ("-t ext4", "16M"), ("-t ext2 -b 1024", "8M")]
    {
        let image = Image::new(options, size, |tree| std::fs::write(tree.join("file"), "").unwrap());
        let fs = open(&image);
        let file = node(&fs, "file");
        let before = fs.statfs().unwrap();
        let mut content = Vec::new();
        let piece = [0xA5; 100_000];
        let mut pieces = 0;
        loop {
            match fs.append(&file, &piece) {
                Ok((at, len)) => {
                    assert_eq!(at, u64::try_from(content.len()).unwrap());
                    content.extend_from_slice(&piece[..len]);
                    pieces += 1;
                }
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{options}: {error}"),
            }
            assert!(pieces < 1000, "{options}: it is never full");
        }
        fs.fsync(&file, Durability::Full).unwrap_or_else(|e| panic!("{options}: {e} {:?}", fs.statfs()));
        assert!(read_all(&fs, &file) == content, "{options}");
        assert!(content.len() > 4 << 20, "{options}: full with {} bytes", content.len());
        // The frees are not committed yet.
        for _ in 0..3 {
            set_size(&fs, &file, 0);
            let again = vec![0x5A; content.len()];
            assert_eq!(fs.write(&file, 0, &again).unwrap(), again.len(), "{options}");
            fs.fsync(&file, Durability::Full).unwrap();
        }
        set_size(&fs, &file, 0);
        assert_eq!(fs.statfs().unwrap().blocks_free, before.blocks_free, "{options}");
        let too_much = before.blocks_free * u64::from(before.block_size);
        if options.contains("ext4") {
            let refused = fs.allocate(&file, 0, too_much + (1 << 20), Allocate::Reserve);
            assert!(matches!(refused, Err(Error::NoSpace)), "{options}: {refused:?}");
        }
        assert_eq!(fs.statfs().unwrap().blocks_free, before.blocks_free, "{options}");
        assert_eq!(fs.append(&file, &piece).unwrap(), (0, piece.len()));
        fs.close().unwrap();
        check(&image, &[("file", &piece)], options);
    }
}

#[test]
fn threads_write_their_own_files_concurrently() {
    for (options, size) in
        [("-t ext4", "64M"), ("-t ext4 -b 1024 -O ^has_journal", "48M"), ("-t ext3", "64M")]
    {
        let image = Image::new(options, size, |_| ());
        let fs = open(&image);
        let names = ["a", "b", "c", "d"];
        let nodes = names.map(|name| make(&fs, name));
        let contents = std::thread::scope(|scope| {
            let writers = [0, 1, 2, 3].map(|n| {
                let (fs, node) = (&fs, &nodes[n]);
                scope.spawn(move || write_at_random(fs, node, u64::try_from(n).unwrap() + 77))
            });
            writers.map(|writer| writer.join().unwrap())
        });
        for (node, content) in nodes.iter().zip(&contents) {
            assert!(read_all(&fs, node) == *content, "{options}");
        }
        drop(nodes);
        fs.close().unwrap();
        let files: Vec<(&str, &[u8])> = names.into_iter().zip(contents.iter().map(Vec::as_slice)).collect();
        check(&image, &files, options);
    }
}

/// Returns the expected content.
fn write_at_random(fs: &Ext4, node: &Node, seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let mut content: Vec<u8> = Vec::new();
    for _ in 0..200 {
        let (at, len) = (dice.roll(2_000_000), 1 + dice.roll(60_000));
        match dice.roll(12) {
            0 => {
                set_size(fs, node, u64::try_from(at).unwrap());
                content.resize(at, 0);
            }
            1 => fs.fsync(node, Durability::Full).unwrap(),
            _ => {
                let data = vec![1 + u8::try_from(dice.roll(255)).unwrap(); len];
                assert_eq!(fs.write(node, u64::try_from(at).unwrap(), &data).unwrap(), len);
                content.resize(content.len().max(at + len), 0);
                content[at..at + len].copy_from_slice(&data);
            }
        }
    }
    content
}

#[test]
fn data_acknowledged_by_fsync_survives_a_crash() {
    let image = Image::new("-t ext4", "32M", |tree| std::fs::write(tree.join("file"), "").unwrap());
    let fs = open(&image);
    let file = node(&fs, "file");
    let content: Vec<u8> = (0..1_000_000_u32).map(|n| (n / 3) as u8).collect();
    fs.write(&file, 0, &content).unwrap();
    fs.fsync(&file, Durability::Data).unwrap();
    // The append is not acknowledged.
    fs.append(&file, &content).unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| {
        let copy = image.beside(name);
        std::fs::copy(image.path(), copy.path()).unwrap();
        copy
    });
    let repaired = Command::new("e2fsck").arg("-fy").arg(theirs.path()).output().unwrap();
    assert!(matches!(repaired.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&repaired.stdout));
    check(&theirs, &[("file", &content)], "after a replay of e2fsck's");
    let again = open(&ours);
    assert!(read_all(&again, &node(&again, "file")) == content);
    again.close().unwrap();
    check(&ours, &[("file", &content)], "after our replay");
}

#[test]
fn a_file_can_be_written_up_to_its_maximum_size() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |tree| std::fs::write(tree.join("file"), "begin").unwrap());
        let fs = open(&image);
        let file = node(&fs, "file");
        let mut most = 0;
        for shift in (0..50).rev() {
            let size = most | 1 << shift;
            if fs.set_attr(&file, &SetAttr { size: Some(size), ..SetAttr::default() }).is_ok() {
                most = size;
            }
        }
        assert!(most > 1 << 33, "{options}: {most}");
        set_size(&fs, &file, 5);
        for at in [100_000, 1 << 22, (1 << 32) - 3, most - 9] {
            assert_eq!(fs.write(&file, at, b"far away").unwrap(), 8, "{options}");
        }
        assert_eq!(fs.write(&file, most - 1, b"12345").unwrap(), 1, "{options}");
        assert!(matches!(fs.append(&file, b"x"), Err(Error::FileTooLarge)), "{options}");
        fs.fsync(&file, Durability::Data).unwrap();
        for at in [100_000, 1 << 22, (1 << 32) - 3, most - 9] {
            let mut read = [0; 8];
            fs.read(&file, at, &mut read).unwrap();
            assert_eq!(&read, b"far away", "{options}");
        }
        fs.sync().unwrap();
        fs.close().unwrap();
        check(&image, &[], options);
    }
}

#[test]
fn unsupported_changes_are_refused_by_name_and_files_stay_readable() {
    for (options, name) in [
        ("-t ext4 -O bigalloc", "bigalloc"),
        ("-t ext4 -O quota", "quota"),
        ("-t ext4 -O quota,project -I 256", "project"),
        ("-t ext4 -O mmp", "mmp"),
    ] {
        let image = Image::new(options, "32M", |tree| std::fs::write(tree.join("file"), "content").unwrap());
        let refused = try_open(&image).err().unwrap().to_string();
        assert!(refused.contains(name), "{refused}");
        let fs = image.open();
        assert_eq!(read_all(&fs, &node(&fs, "file")), b"content");
    }
}
