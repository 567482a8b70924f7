//! Structures that form loops: readers end, and report an error if there is no right result.

use crate::damage::images::{self, Image};
use crate::examine::{BLOCK, Outcome, examine};
use dentree_blockdev::MemoryDevice;
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Extent, FileSystem, Ino};
use std::sync::Arc;

/// Offsets, under kernel names.
const S_LAST_ORPHAN: usize = 0x400 + 0xE8;
const I_SIZE: usize = 0x04;
const I_DTIME: usize = 0x14;
const I_FLAGS: usize = 0x20;
const I_BLOCK: usize = 0x28;
const I_FILE_ACL: usize = 0x68;

const JOURNAL_INODE: u32 = 8;

struct PatchedImage {
    image: Image,
    intact: Outcome,
}

impl PatchedImage {
    fn new(name: &str) -> Self {
        let image = images::named(name);
        PatchedImage { intact: examine(image.bytes.clone()), image }
    }

    fn open(&self) -> Ext4 {
        let device = MemoryDevice::from(self.image.bytes.clone());
        Ext4::open(Arc::new(device), Options::default()).unwrap()
    }

    fn find(&self, path: &str) -> u32 {
        let fs = self.open();
        let found = path.split('/').filter(|name| !name.is_empty()).fold(fs.root(), |ino, name| {
            let dir = fs.load(ino).unwrap();
            fs.lookup(&dir, name.as_bytes()).unwrap().unwrap().ino
        });
        u32::try_from(found.0).unwrap()
    }

    /// There is one inode table.
    fn inode(&self, ino: u32) -> usize {
        let table = usize::try_from(self.u32(2 * BLOCK + 8)).unwrap();
        let size = usize::from(u16::from_le_bytes([self.image.bytes[0x458], self.image.bytes[0x459]]));
        table * BLOCK + usize::try_from(ino - 1).unwrap() * size
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self.image.bytes[at..].first_chunk().unwrap())
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.image.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn examine(&self, what: &str) -> Outcome {
        let outcome = examine(self.image.bytes.clone());
        outcome.check(&self.intact, what);
        outcome
    }
}

fn messages(outcome: &Outcome) -> String {
    outcome.findings.errors.iter().map(|error| format!("{error}\n")).collect()
}

#[test]
fn an_extent_node_that_is_its_own_child_is_damage() {
    let mut patched = PatchedImage::new("ext4-bare");
    let holes = patched.find("/holes");
    let root = patched.inode(holes) + I_BLOCK;
    let leaf = patched.u32(root + 12 + 4);
    let leaf_at = usize::try_from(leaf).unwrap() * BLOCK;
    // The root claims two levels; both are the block that was the only leaf.
    patched.put(root + 6, &[2, 0]);
    patched.put(leaf_at + 2, &[1, 0]);
    patched.put(leaf_at + 6, &[1, 0]);
    patched.put_u32(leaf_at + 12, 0);
    patched.put_u32(leaf_at + 16, leaf);
    patched.put_u32(leaf_at + 20, 0);
    let messages = messages(&patched.examine("an extent loop"));
    let place = format!("damaged: extent tree node, inode {holes}, block {leaf}: ");
    assert!(messages.contains(&place), "{messages}");
}

#[test]
fn a_pointer_block_that_points_to_itself_ends_after_three_levels() {
    let mut patched = PatchedImage::new("ext2");
    let sparse = patched.find("/sparse");
    let root = patched.inode(sparse) + I_BLOCK;
    let double = patched.u32(root + 13 * 4);
    let at = usize::try_from(double).unwrap() * BLOCK;
    for slot in 0..BLOCK / 4 {
        patched.put_u32(at + slot * 4, double);
    }
    for levels in 12..15 {
        patched.put_u32(root + levels * 4, double);
    }
    patched.examine("a pointer loop");
    let fs = patched.open();
    let node = fs.load(Ino(u64::from(sparse))).unwrap();
    let size = fs.attr(&node).size;
    let mut offset = 0;
    while offset < size {
        let (Extent::Data(end) | Extent::Hole(end)) = fs.extent(&node, offset).unwrap();
        offset = end;
    }
}

#[test]
fn an_htree_node_that_is_its_own_child_is_damage() {
    let mut patched = PatchedImage::new("two-levels");
    let large = patched.find("/large");
    // Point the root's first entry to the root, the second to itself.
    let root = patched.image.bytes.chunks(BLOCK).position(|block| {
        block.get(..4) == Some(&large.to_le_bytes()) && block[0x1E] == 1 && block[0x1D] == 8
    });
    let root = root.unwrap() * BLOCK;
    let own = patched.u32(root + 0x28 + 4);
    for target in [0, own] {
        patched.put_u32(root + 0x24, target);
        let outcome = patched.examine("an htree loop");
        let messages = messages(&outcome);
        let place = format!("damaged: directory index (file block {target}), inode {large}");
        assert!(target != 0 || messages.contains(&place), "{messages}");
    }
}

#[test]
fn a_directory_below_itself_is_listed_once_and_walked_to_any_depth() {
    let mut patched = PatchedImage::new("ext4-bare");
    let (upper, lower, child) = (patched.find("/a"), patched.find("/a/b"), patched.find("/a/b/c"));
    let entry = [&child.to_le_bytes()[..], &[0, 0, 1, 2, b'c']].concat();
    let at = patched
        .image
        .bytes
        .windows(entry.len())
        .position(|bytes| bytes[..4] == entry[..4] && bytes[6..] == entry[6..]);
    patched.put_u32(at.unwrap(), upper);
    patched.examine("a directory loop");
    assert_eq!(patched.find("/a/b/c/b/c/b/c/b"), lower);
}

#[test]
fn an_orphan_list_with_a_loop_does_not_hang() {
    let mut patched = PatchedImage::new("ext4-bare");
    let hello = patched.find("/hello");
    patched.put_u32(S_LAST_ORPHAN, hello);
    let inode = patched.inode(hello);
    patched.put_u32(inode + I_DTIME, hello);
    let outcome = patched.examine("an orphan loop");
    assert!(outcome.findings.errors.is_empty(), "{}", messages(&outcome));
}

#[test]
fn an_attribute_whose_value_is_its_own_inode_is_damage() {
    let mut patched = PatchedImage::new("inline");
    let blocks = patched.find("/blocks");
    let inode = patched.inode(blocks);
    let acl_block = usize::try_from(patched.u32(inode + I_FILE_ACL)).unwrap() * BLOCK;
    let name = b"big";
    let space = if acl_block == 0 { inode..inode + 256 } else { acl_block..acl_block + BLOCK };
    let name_at = patched.image.bytes[space.clone()].windows(3).position(|bytes| bytes == name).unwrap();
    patched.put_u32(space.start + name_at - 16 + 4, blocks);
    let messages = messages(&patched.examine("a value loop"));
    assert!(messages.contains("damaged: extended attribute value"), "{messages}");
}

#[test]
fn a_directory_that_maps_one_block_a_million_times_is_damage() {
    let mut patched = PatchedImage::new("ext2");
    let large = patched.find("/large");
    let inode = patched.inode(large);
    let leaf = patched.u32(inode + I_BLOCK + 4);
    // Pointers to the leaf, to that block, to that one.
    let blocks = u32::try_from(patched.image.bytes.len() / BLOCK).unwrap();
    for level in [leaf, blocks - 3, blocks - 2] {
        let block = if level == leaf { blocks - 3 } else { level + 1 };
        let pointers = level.to_le_bytes().repeat(BLOCK / 4);
        patched.put(usize::try_from(block).unwrap() * BLOCK, &pointers);
    }
    patched.put_u32(inode + I_BLOCK + 14 * 4, blocks - 1);
    patched.put_u32(inode + I_FLAGS, 0);
    patched.put_u32(inode + I_SIZE, 1 << 31);
    let messages = messages(&patched.examine("a directory of one block"));
    let place = format!("damaged: inode, inode {large}: the directory's blocks is {}", (1 << 31) / BLOCK);
    assert!(messages.contains(&place), "{messages}");
}

#[test]
fn a_name_that_is_a_path_is_damage() {
    let mut patched = PatchedImage::new("ext4-bare");
    let at = patched.image.bytes.windows(5).position(|bytes| bytes == b"hello").unwrap();
    patched.put(at, b"../..");
    let messages = messages(&patched.examine("a name with slashes"));
    assert!(messages.contains("damaged: directory entry, inode 2"), "{messages}");
}

#[test]
fn a_journal_larger_than_the_device_is_not_followed() {
    let mut patched = PatchedImage::new("journal-bare");
    let inode = patched.inode(JOURNAL_INODE);
    patched.put_u32(inode + I_SIZE, 1 << 31);
    let messages = messages(&patched.examine("a large journal"));
    assert!(messages.starts_with("damaged: journal, inode 8: the journal's blocks is 2097152"), "{messages}");
}
