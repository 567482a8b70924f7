//! Requests that read-ahead costs and saves.

use crate::common::Image;
use dentree_blockdev::{Access, FileDevice, MeteredDevice};
use dentree_ext4::{DxReadAhead, Ext4, Options};
use dentree_vfs::{FileSystem, Ino, ReaddirStart};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const ENTRIES: usize = 20_000;

fn names() -> impl Iterator<Item = String> {
    (0..ENTRIES).map(|number| format!("a name that is as long as many are {number}"))
}

fn open(image: &Path, dx_read_ahead: DxReadAhead) -> (Ext4, Arc<MeteredDevice>, u64) {
    let file = FileDevice::open(image, Access::ReadOnly).unwrap();
    let device = Arc::new(MeteredDevice::new(Arc::new(file)));
    let fs = Ext4::open(device.clone(), Options { dx_read_ahead, ..Options::default() }).unwrap();
    let dir = directory(&fs);
    fs.load(dir).unwrap();
    let before = device.counts().total_reads();
    (fs, device, before)
}

fn directory(fs: &Ext4) -> Ino {
    let root = fs.load(fs.root()).unwrap();
    fs.lookup(&root, b"dir").unwrap().unwrap().ino
}

#[test]
fn inodes_take_few_requests_and_fewer_if_expected() {
    let image = Image::new("-t ext4 -b 1024 -N 30000", "64M", |_| {});
    let made = image.change("", |top| {
        names().take(4000).for_each(|name| drop(fs::File::create(top.join(name)).unwrap()));
    });
    if made.is_none() {
        return;
    }
    let blocks = 4000 / 4;
    let reads = |is_expected: bool, step: usize| {
        let file = FileDevice::open(image.path(), Access::ReadOnly).unwrap();
        let device = Arc::new(MeteredDevice::new(Arc::new(file)));
        let fs = Ext4::open(device.clone(), Options::default()).unwrap();
        let root = fs.load(fs.root()).unwrap();
        let mut inos = Vec::new();
        let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
            inos.push(entry.ino);
            ControlFlow::Continue(())
        };
        fs.readdir(&root, ReaddirStart::First, each).unwrap();
        let before = device.counts().total_reads();
        if is_expected {
            fs.prefetch_inodes(&inos);
        }
        (0..inos.len()).for_each(|at| drop(fs.load(inos[at * step % inos.len()]).unwrap()));
        device.counts().total_reads() - before
    };
    // There are 4001, a prime: these steps reach each, never a neighbour.
    let (expected, near, far) = (reads(true, 1), reads(false, 1), reads(false, 1013));
    println!(
        "{blocks} blocks of inodes: {expected} reads where they were expected, {near} one by one, {far} across"
    );
    assert!(expected * 10 < blocks, "{expected} of {blocks}");
    assert!(near * 4 < blocks && far * 4 < blocks, "{near} and {far} of {blocks}");
}

#[test]
fn an_expected_lookup_waits_only_for_its_leaf() {
    let image = Image::new("-t ext4 -b 1024 -N 30000", "64M", |_| {});
    let made = image.change("", |top| {
        let dir = top.join("dir");
        fs::create_dir(&dir).unwrap();
        names().for_each(|name| drop(fs::File::create(dir.join(name)).unwrap()));
    });
    if made.is_none() {
        return;
    }
    let reads = |mode: DxReadAhead, is_expected: bool| {
        let (fs, device, _) = open(&image.path(), mode);
        let dir = fs.load(directory(&fs)).unwrap();
        if is_expected {
            fs.prefetch_lookups(&dir);
        }
        let ahead = device.counts().total_reads();
        assert!(fs.lookup(&dir, names().nth(7).unwrap().as_bytes()).unwrap().is_some());
        let first = device.counts().total_reads() - ahead;
        // This name is in another index block.
        assert!(fs.lookup(&dir, names().last().unwrap().as_bytes()).unwrap().is_some());
        (first, device.counts().total_reads() - ahead - first)
    };
    let unexpected = reads(DxReadAhead::default(), false);
    assert!(unexpected.0 >= 3, "no index of two levels: {unexpected:?}");
    assert_eq!(reads(DxReadAhead::default(), true).0, 1);
    assert_eq!(reads(DxReadAhead::Off, true), reads(DxReadAhead::Off, false));
}

#[test]
fn read_ahead_saves_reads_in_listings_and_costs_none_in_lookups() {
    let image = Image::new("-t ext4 -b 1024 -N 30000", "64M", |_| {});
    let made = image.change("", |top| {
        let dir = top.join("dir");
        fs::create_dir(&dir).unwrap();
        names().for_each(|name| drop(fs::File::create(dir.join(name)).unwrap()));
    });
    if made.is_none() {
        return;
    }
    let mut all_reads = Vec::new();
    for mode in [DxReadAhead::Off, DxReadAhead::Whole, DxReadAhead::Window] {
        let (fs, device, before) = open(&image.path(), mode);
        let dir = fs.load(directory(&fs)).unwrap();
        assert!(fs.lookup(&dir, names().nth(7).unwrap().as_bytes()).unwrap().is_some());
        let first = device.counts().total_reads() - before;
        assert!(first <= 4, "{mode:?}: {first} reads for one name in a directory not seen before");
        for name in names().step_by(7) {
            assert!(fs.lookup(&dir, name.as_bytes()).unwrap().is_some(), "{mode:?}: {name}");
        }
        assert!(fs.lookup(&dir, b"missing").unwrap().is_none());
        all_reads.push(device.counts().total_reads() - before);
    }
    let [off, whole, window] = all_reads[..] else { unreachable!() };
    assert!(window * 2 < off && whole * 2 < off, "reads: {off} off, {whole} whole, {window} window");
    println!("reads for {} names: {off} off, {whole} whole, {window} window", ENTRIES / 7);

    let (ext4, device, before) = open(&image.path(), DxReadAhead::Off);
    let dir = ext4.load(directory(&ext4)).unwrap();
    let mut seen = 0;
    ext4.readdir(&dir, ReaddirStart::First, &mut |_| {
        seen += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, ENTRIES);
    let (reads, blocks) = (device.counts().total_reads() - before, ext4.attr(&dir).size / 1024);
    assert!(reads * 8 < blocks, "{reads} reads for {blocks} blocks");
    println!("{reads} reads to list {blocks} blocks");
}
