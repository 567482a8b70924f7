//! A search of many groups does not wait for their bitmaps one by one.

use crate::common::writing::node;
use crate::common::{Image, fsck};
use dentree_blockdev::{Access, FileDevice, MeteredDevice, SlowDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Allocate, Durability, FileSystem, NewInode, NewKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUPS: u64 = 32;

fn open(image: &Image, latency: Duration) -> (Ext4, Arc<MeteredDevice>) {
    let file = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let slow = SlowDevice::new(Arc::new(file), latency);
    let device = Arc::new(MeteredDevice::new(Arc::new(slow)));
    (Ext4::open(device.clone(), Options { writable: true, ..Options::default() }).unwrap(), device)
}

/// Every other block is free.
fn fragmented_image(options: &str) -> Image {
    let image = Image::new(options, "32M", |tree| std::fs::write(tree.join("file"), "").unwrap());
    let (fs, _) = open(&image, Duration::ZERO);
    let file = node(&fs, "file");
    let free = fs.statfs().unwrap().blocks_available - 1500;
    fs.allocate(&file, 0, free * 1024, Allocate::Reserve).unwrap();
    for block in (0..free).step_by(2) {
        fs.allocate(&file, block * 1024, 1024, Allocate::PunchHole).unwrap();
    }
    drop(file);
    fs.close().unwrap();
    drop(fs);
    fsck::is_clean(&image.path()).unwrap();
    image
}

#[test]
fn a_search_of_many_groups_waits_for_few_bitmaps() {
    // Bitmaps of many groups are adjacent, or in each group.
    for flex in ["", ",^flex_bg"] {
        let options = &format!("-t ext4 -b 1024 -g 1024 -O ^has_journal{flex} -N 2048");
        let image = fragmented_image(options);
        let (fs, device) = open(&image, Duration::from_millis(2));
        let root = fs.load(fs.root()).unwrap();
        let (before, reads) = (fs.buffer_stats(), device.counts().total_reads());
        let began = Instant::now();
        let new = NewInode { kind: NewKind::Regular, permissions: 0o644, uid: 0, gid: 0, xattrs: &[] };
        let file = fs.create(&root, b"new", &new).unwrap();
        fs.write(&file, 0, &[1; 100 << 10]).unwrap();
        fs.fsync(&file, Durability::Full).unwrap();
        let (after, reads) = (fs.buffer_stats(), device.counts().total_reads() - reads);
        let (misses, ahead) = (after.misses - before.misses, after.ahead_used - before.ahead_used);
        println!(
            "{options}: {misses} blocks waited for by themselves, {ahead} used that were read ahead, {reads} requests, {:?}",
            began.elapsed()
        );
        // None has a run of a hundred blocks.
        assert!(misses + ahead >= GROUPS * 3 / 4, "{misses} and {ahead}: it is not fragmented");
        assert!(misses <= 8, "{options}: {misses} blocks were waited for one after the other");
        drop((file, root));
        fs.close().unwrap();
        drop(fs);
        fsck::is_clean(&image.path()).unwrap_or_else(|text| panic!("{options}: {text}"));
    }
}
