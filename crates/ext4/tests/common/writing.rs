//! Images that are written to.

use super::{Image, fsck};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::mkfs::{MkfsOptions, mkfs};
use dentree_ext4::{Ext4, InodeTime, Node, Options};
use dentree_vfs::{Budgets, FileSystem};
use std::sync::Arc;

/// Zeroing larger caches would dominate thousands of opens.
pub const SMALL: Budgets = Budgets { names: 1 << 20, inodes: 16 << 20 };

/// mke2fs options, size.
pub const KINDS: [(&str, &str); 9] = [
    ("-t ext4 -O ^has_journal", "24M"),
    ("-t ext4", "32M"),
    ("-t ext4 -O metadata_csum_seed,orphan_file", "32M"),
    ("-t ext4 -b 1024", "24M"),
    ("-t ext4 -b 2048 -O ^has_journal,^metadata_csum", "24M"),
    ("-t ext4 -O inline_data -I 256", "32M"),
    ("-t ext2", "24M"),
    ("-t ext2 -b 1024", "24M"),
    ("-t ext3 -b 1024", "24M"),
];

/// Stands for this crate's mkfs.
pub const OURS: &str = "dentree mkfs";

pub fn new_image(options: &str, size: &str) -> Image {
    let image = Image::new(if options == OURS { "-t ext2" } else { options }, size, |_| {});
    if options != OURS {
        return image;
    }
    let ours = image.beside("ours");
    let bytes = std::fs::metadata(image.path()).unwrap().len();
    std::fs::File::create(ours.path()).unwrap().set_len(bytes).unwrap();
    let device = FileDevice::open(ours.path(), Access::ReadWrite).unwrap();
    mkfs(&device, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default())).unwrap();
    ours
}

pub fn open(image: &Image) -> Ext4 {
    try_open(image).unwrap()
}

pub fn try_open(image: &Image) -> dentree_ext4::Result<Ext4> {
    let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    Ext4::open(Arc::new(device), Options { writable: true, ..Options::default() })
}

pub fn node(fs: &Ext4, name: &str) -> Node {
    let root = fs.load(fs.root()).unwrap();
    fs.load(fs.lookup(&root, name.as_bytes()).unwrap().unwrap().ino).unwrap()
}

pub fn check(image: &Image, files: &[(&str, &[u8])], what: &str) {
    fsck::is_clean(&image.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
    for (name, content) in files {
        let dumped = image.beside("dumped");
        image.debugfs(&format!("dump /{name} {}\n", dumped.path().display()));
        let dump = std::fs::read(dumped.path()).unwrap();
        assert!(dump == *content, "{what}: {name} differs: {} of {} bytes", dump.len(), content.len());
    }
}

pub fn read_all(fs: &Ext4, node: &Node) -> Vec<u8> {
    let size = usize::try_from(fs.attr(node).size).unwrap();
    let mut content = vec![0xEE; size + 10];
    assert_eq!(fs.read(node, 0, &mut content).unwrap(), size);
    content.truncate(size);
    content
}

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % sides
    }
}
