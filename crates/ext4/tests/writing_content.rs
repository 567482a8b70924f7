//! What is written into files is what the kernel's tools read, in images that `e2fsck` calls clean.

mod common;

use common::Image;
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Node, Options};
use dentree_vfs::{Durability, FileSystem};
use std::process::Command;
use std::sync::Arc;

/// Kinds of image: mke2fs options, size, and whether files are mapped by extents.
const KINDS: [(&str, &str); 9] = [
    ("-t ext4 -O ^has_journal", "24M"),
    ("-t ext4", "32M"),
    ("-t ext4 -O ^has_journal,metadata_csum_seed,orphan_file", "24M"),
    ("-t ext4 -b 1024 -O ^has_journal", "24M"),
    ("-t ext4 -b 2048 -O ^has_journal,^metadata_csum", "24M"),
    ("-t ext4 -O ^has_journal,inline_data -I 256", "24M"),
    ("-t ext2", "24M"),
    ("-t ext2 -b 1024", "24M"),
    ("-t ext3 -b 1024", "24M"),
];

fn open(image: &Image) -> Option<Ext4> {
    let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    match Ext4::open(Arc::new(device), Options { writable: true, ..Options::default() }) {
        Ok(fs) => Some(fs),
        Err(dentree_ext4::Error::Journal(dentree_jbd2::Error::Unsupported { feature })) => {
            eprintln!("skipped: {feature}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn node(fs: &Ext4, name: &str) -> Node {
    let root = fs.load(fs.root()).unwrap();
    fs.load(fs.lookup(&root, name.as_bytes()).unwrap().unwrap().ino).unwrap()
}

/// `e2fsck -fn` finds nothing, and the kernel's tools see `content`.
fn check(image: &Image, files: &[(&str, &[u8])], what: &str) {
    let check = Command::new("e2fsck").arg("-fn").arg(image.path()).output().unwrap();
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{what}: {text}");
    for (name, content) in files {
        let dumped = image.beside("dumped");
        image.debugfs(&format!("dump /{name} {}\n", dumped.path().display()));
        let dump = std::fs::read(dumped.path()).unwrap();
        assert!(dump == *content, "{what}: {name} differs: {} of {} bytes", dump.len(), content.len());
    }
}

fn read_all(fs: &Ext4, node: &Node) -> Vec<u8> {
    let size = usize::try_from(fs.attr(node).size).unwrap();
    let mut content = vec![0xEE; size + 10];
    assert_eq!(fs.read(node, 0, &mut content).unwrap(), size);
    content.truncate(size);
    content
}

#[test]
fn a_file_that_was_written_is_there_for_everybody() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |tree| std::fs::write(tree.join("file"), "x").unwrap());
        let Some(fs) = open(&image) else { continue };
        let file = node(&fs, "file");
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        assert_eq!(fs.write(&file, 0, &content).unwrap(), content.len());
        assert_eq!(read_all(&fs, &file), content);
        fs.fsync(&file, Durability::Full).unwrap();
        assert_eq!(read_all(&fs, &file), content);
        assert_eq!(fs.append(&file, b"end").unwrap(), (3_000_000, 3));
        fs.close().unwrap();
        let content = [&content[..], b"end"].concat();
        check(&image, &[("file", &content)], options);
    }
}
