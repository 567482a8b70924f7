//! An fsync after another file's commit.

use crate::common::Image;
use crate::common::writing::{node, read_all};
use dentree_blockdev::{MemoryDevice, RecordingDevice, Survivors};
use dentree_ext4::{Ext4, Node, Options};
use dentree_vfs::{Allocate, Durability, FileSystem, SetAttr};
use std::sync::Arc;

const CONTENT: &[u8] = &[7; 9000];

fn writable() -> Options {
    Options { writable: true, ..Options::default() }
}

/// An fsync of another file commits `change`. Returns the content after a cut that follows `then`.
fn after_a_cut(change: impl FnOnce(&Ext4, &Node), then: impl FnOnce(&Ext4, &Node)) -> Vec<u8> {
    let image = Image::new("-t ext4", "16M", |tree| {
        std::fs::write(tree.join("file"), CONTENT).unwrap();
        std::fs::write(tree.join("other"), "").unwrap();
    });
    let device = Arc::new(RecordingDevice::new(std::fs::read(image.path()).unwrap()));
    let fs = Ext4::open(device.clone(), writable()).unwrap();
    let (file, other) = (node(&fs, "file"), node(&fs, "other"));
    change(&fs, &file);
    fs.append(&other, b"more").unwrap();
    fs.fsync(&other, Durability::Full).unwrap();
    then(&fs, &file);
    let left = device.recording().replay().image(usize::MAX, Survivors::None);
    let again = Ext4::open(Arc::new(MemoryDevice::from(left)), writable()).unwrap();
    read_all(&again, &node(&again, "file"))
}

fn set_size(fs: &Ext4, file: &Node, size: u64) {
    fs.set_attr(file, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// The bug: an fsync after a punched hole found the inode committed and did not flush the hole's
/// edges, written to existing blocks.
#[test]
fn an_fsync_flushes_writes_that_changed_no_block_map() {
    let punch = |fs: &Ext4, file: &Node| fs.allocate(file, 100, 200, Allocate::PunchHole).unwrap();
    let sync = |fs: &Ext4, file: &Node| fs.fsync(file, Durability::Full).unwrap();
    let mut expected = CONTENT.to_vec();
    expected[100..300].fill(0);
    assert!(after_a_cut(punch, sync) == expected);
}

/// The bug: the new length was committed at once, the zeros past the old one only with the next
/// write-back.
#[test]
fn truncated_bytes_do_not_reappear_when_a_file_grows() {
    let change = |fs: &Ext4, file: &Node| {
        set_size(fs, file, 5000);
        set_size(fs, file, 7000);
    };
    let found = after_a_cut(change, |_, _| {});
    let mut expected = CONTENT[..5000].to_vec();
    expected.resize(found.len().max(5000), 0);
    assert!(found == expected);
    let grow = |fs: &Ext4, file: &Node| {
        set_size(fs, file, 5000);
        fs.allocate(file, 6000, 3000, Allocate::Reserve).unwrap();
    };
    let found = after_a_cut(grow, |_, _| {});
    expected.resize(found.len().max(5000), 0);
    assert!(found == expected);
}

#[test]
fn has_unsynced_says_whether_changes_are_only_in_memory() {
    let image = Image::new("-t ext4", "16M", |tree| std::fs::write(tree.join("file"), CONTENT).unwrap());
    let device = Arc::new(MemoryDevice::from(std::fs::read(image.path()).unwrap()));
    let fs = Ext4::open(device, writable()).unwrap();
    let file = node(&fs, "file");
    let changes: [fn(&Ext4, &Node); 3] = [
        |fs, file| assert_eq!(fs.write_back(file, 0, &[8; 9000]).unwrap(), 9000),
        |fs, file| assert_eq!(fs.write_back(file, 0, &[9; 1 << 20]).unwrap(), 1 << 20),
        |fs, file| set_size(fs, file, 5),
    ];
    for (number, change) in changes.iter().enumerate() {
        assert!(!fs.has_unsynced(), "before change {number}");
        change(&fs, &file);
        assert!(fs.has_unsynced(), "change {number}");
        fs.sync().unwrap();
    }
    assert!(!fs.has_unsynced());
}
