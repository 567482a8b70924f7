//! Requests that large uncached directories cost. A million entries on slow devices:
//! `cargo test --release -p dentree-ext4 --test directories large -- --ignored --nocapture`.

use crate::common::Image;
use crate::tree::Tree;
use dentree_blockdev::{Access, BlockDevice, FileDevice, MemoryDevice, MeteredDevice, SlowDevice};
use dentree_ext4::{DxReadAhead, Ext4, Node, Options};
use dentree_vfs::{FileSystem, NewKind, ReaddirStart};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two index levels with blocks of 1 KiB.
const ENTRIES: u64 = 50_000;
const INDEX_LEVELS: u64 = 2;
const MODES: [DxReadAhead; 3] = [DxReadAhead::Off, DxReadAhead::Whole, DxReadAhead::Window];
/// Largest read-ahead.
const REQUEST: u64 = 128 << 10;

fn name(number: u64) -> String {
    format!("a common name {number:06}")
}

fn image() -> Image {
    // The seed decides which names share a hash; these would need two leaves.
    let options = "-t ext4 -b 1024 -N 4000 -E hash_seed=e1c3a2a0-6e6d-4f5b-9a63-0a4f7d0b5c11";
    laid_out(options, "64M", ENTRIES)
}

/// `entries` links to one file.
fn laid_out(options: &str, size: &str, entries: u64) -> Image {
    const LINKS: u64 = 60_000;
    let image = Image::new(options, size, |_| ());
    let tree = Tree::open(&image);
    let dir = tree.dir("dir");
    tree.vfs.reserve_entries(&tree.who, &dir, entries).unwrap();
    for first in (0..entries).step_by(LINKS as usize) {
        let file = tree.file(&format!("file{first}"));
        (first..entries.min(first + LINKS)).for_each(|number| tree.link(&file, &dir, &name(number)));
    }
    drop(dir);
    tree.close();
    image
}

/// A file system just opened.
struct Cold {
    fs: Ext4,
    dir: Node,
    device: Arc<MeteredDevice>,
    before: u64,
}

impl Cold {
    fn open(image: &Path, options: Options) -> Cold {
        let access = if options.writable { Access::ReadWrite } else { Access::ReadOnly };
        Cold::on(Arc::new(FileDevice::open(image, access).unwrap()), options)
    }

    fn on(device: Arc<dyn BlockDevice>, options: Options) -> Cold {
        let device = Arc::new(MeteredDevice::new(device));
        let fs = Ext4::open(device.clone(), options).unwrap();
        let dir = crate::common::find(&fs, "dir");
        let before = device.counts().total_reads();
        Cold { fs, dir, device, before }
    }

    fn reads(&self) -> u64 {
        self.device.counts().total_reads() - self.before
    }

    fn finds(&self, name: &str) -> bool {
        self.fs.lookup(&self.dir, name.as_bytes()).unwrap().is_some()
    }

    fn list(&self) -> u64 {
        let mut seen = 0;
        let each = &mut |_: dentree_vfs::DirEntry<'_>| {
            seen += 1;
            ControlFlow::Continue(())
        };
        self.fs.readdir(&self.dir, ReaddirStart::First, each).unwrap();
        seen
    }
}

#[test]
fn a_cold_lookup_reads_one_leaf_and_its_index_blocks_in_every_mode() {
    let image = image();
    for number in (0..ENTRIES).step_by(ENTRIES as usize / 12) {
        for dx_read_ahead in MODES {
            for name in [name(number), format!("{number} is missing")] {
                let cold = Cold::open(&image.path(), Options { dx_read_ahead, ..Options::default() });
                assert_eq!(cold.finds(&name), !name.ends_with("missing"));
                let reads = cold.reads();
                assert!(reads <= 1 + INDEX_LEVELS, "{dx_read_ahead:?}, {name}: {reads} reads");
            }
        }
    }
    // Index blocks stay cached: without read-ahead a name reads its leaf, and sometimes an index
    // block.
    let cold = Cold::open(&image.path(), Options { dx_read_ahead: DxReadAhead::Off, ..Options::default() });
    let numbers: Vec<_> = (0..ENTRIES).step_by(997).collect();
    assert!(numbers.iter().all(|&number| cold.finds(&name(number))));
    let nodes = cold.fs.attr(&cold.dir).size / 1024 / 100;
    assert!(cold.reads() <= numbers.len() as u64 + nodes + 2, "{} reads", cold.reads());
}

#[test]
fn a_cold_listing_needs_few_more_requests_than_a_sequential_read() {
    let image = image();
    for writable in [false, true] {
        let cold = Cold::open(&image.path(), Options { writable, ..Options::default() });
        let bytes = cold.fs.attr(&cold.dir).size;
        assert_eq!(cold.list(), ENTRIES);
        let (reads, sequential) = (cold.reads(), bytes.div_ceil(REQUEST));
        println!("writable {writable}: {reads} requests for {bytes} bytes, {sequential} of the largest");
        // A listing by hash reads the index first, and windows start small.
        assert!(reads * 10 <= sequential * 13 + 10 * INDEX_LEVELS, "{reads} of {sequential}");
        cold.fs.close().unwrap();
    }
}

#[test]
fn a_listing_by_hash_larger_than_the_cache_waits_seldom() {
    let image = image();
    let options = Options { writable: true, cache_bytes: 1 << 20, ..Options::default() };
    let cold = Cold::open(&image.path(), options);
    let before = cold.fs.buffer_stats();
    assert_eq!(cold.list(), ENTRIES);
    let (stats, blocks) = (cold.fs.buffer_stats(), cold.fs.attr(&cold.dir).size / 1024);
    let (misses, read) = (stats.misses - before.misses, stats.ahead_read - before.ahead_read);
    println!("{blocks} blocks: {misses} missed, {read} read ahead");
    assert!(
        blocks * 1024 > (1 << 20) && misses * 16 < blocks,
        "{misses} of {blocks} blocks were not read ahead"
    );
    assert!(misses + read < blocks + blocks / 8, "{read} blocks read ahead, {misses} missed, of {blocks}");
    cold.fs.close().unwrap();
}

#[test]
fn files_created_among_free_inodes_read_no_inode_table() {
    const FILES: u64 = 400;
    let image = Image::new("-t ext4 -b 1024 -N 4000", "24M", |_| ());
    let mut generations = Vec::new();
    for round in 0..3 {
        let cold = {
            let tree = Tree::open(&image);
            drop(tree.dir("dir"));
            tree.close();
            Cold::open(&image.path(), Options { writable: true, ..Options::default() })
        };
        let Cold { fs, device, before, .. } = cold;
        let vfs = dentree_vfs::Vfs::new(fs).unwrap();
        let tree = Tree { vfs, who: dentree_vfs::Identity::Superuser };
        let dir = tree.at("dir");
        for number in 0..FILES {
            let made = tree.make(&dir, &name(number), NewKind::Regular);
            generations.push((made.ino(), made.attr().generation));
        }
        let reads = device.counts().total_reads() - before;
        println!("round {round}: {reads} reads for {FILES} files");
        // Four inodes share a block. Reads are bitmaps and the directory.
        assert!(reads < FILES / 4 / 4, "round {round}: {reads} reads for {FILES} files");
        (0..FILES).for_each(|number| tree.unlink(&dir, &name(number)));
        drop(dir);
        tree.close();
        crate::tree::check(&image, "made and removed");
    }
    let files = generations.len();
    generations.sort_unstable();
    generations.dedup();
    assert_eq!(generations.len(), files, "an inode has come back with the generation that it had");
}

#[test]
fn presized_directories_are_listed_with_few_misses() {
    const DIRS: u64 = 300;
    let image = Image::new("-t ext4 -b 1024 -N 4000", "24M", |top| {
        (0..DIRS).for_each(|number| std::fs::create_dir_all(top.join(name(number)).join("inside")).unwrap());
    });
    let misses = |is_expected: bool| {
        let fs = image.open();
        let root = fs.load(fs.root()).unwrap();
        let dirs: Vec<_> = crate::common::list(&fs, &root).into_values().map(|(ino, _)| ino).collect();
        let before = fs.buffer_stats().misses;
        if is_expected {
            fs.prefetch_listings(&dirs);
        }
        let found: usize =
            dirs.iter().map(|&dir| crate::common::list(&fs, &fs.load(dir).unwrap()).len()).sum();
        assert!(found as u64 >= DIRS);
        fs.buffer_stats().misses - before
    };
    let [one_by_one, expected] = [false, true].map(misses);
    println!("{one_by_one} misses for {DIRS} directories one by one, {expected} where they were expected");
    assert!(one_by_one >= DIRS && expected * 10 < one_by_one, "{expected} of {one_by_one}");
}

#[test]
#[ignore = "measures: minutes with --release"]
fn a_million_entries_on_slow_devices() {
    const MILLION: u64 = 1_000_000;
    let image = laid_out("-t ext4 -b 4096 -N 4000", "256M", MILLION);
    let memory = Arc::new(MemoryDevice::from(std::fs::read(image.path()).unwrap()));
    for latency in [100, 1000, 8000].map(Duration::from_micros) {
        let device = Arc::new(SlowDevice::new(memory.clone(), latency));
        let bytes = {
            let cold = Cold::on(memory.clone(), Options::default());
            cold.fs.attr(&cold.dir).size
        };
        let (start, mut buf) = (Instant::now(), vec![0; REQUEST as usize]);
        (0..bytes / REQUEST).for_each(|number| device.read_at(number * REQUEST, &mut buf).unwrap());
        let sequential = start.elapsed();
        println!("{latency:?}: {bytes} bytes end to end, {REQUEST} at a time, in {sequential:.2?}");
        for writable in [false, true] {
            let cold = Cold::on(device.clone(), Options { writable, ..Options::default() });
            let start = Instant::now();
            assert_eq!(cold.list(), MILLION);
            let (time, reads) = (start.elapsed(), cold.reads());
            let ratio = time.as_secs_f64() / sequential.as_secs_f64();
            println!("  listed (writable: {writable}) in {time:.2?} with {reads} requests: x{ratio:.2}");
            cold.fs.close().unwrap();
        }
        for dx_read_ahead in MODES {
            let (mut times, mut reads) = (Vec::new(), Vec::new());
            for number in (0..MILLION).step_by(MILLION as usize / 15) {
                let cold = Cold::on(device.clone(), Options { dx_read_ahead, ..Options::default() });
                let start = Instant::now();
                assert!(cold.finds(&name(number)));
                times.push(start.elapsed());
                reads.push(cold.reads());
            }
            times.sort_unstable();
            println!(
                "  first lookup, {dx_read_ahead:?}: {:.2?} [{:.2?} .. {:.2?}], at most {:?} reads",
                times[times.len() / 2],
                times[0],
                times[times.len() - 1],
                reads.iter().max()
            );
        }
    }
}
