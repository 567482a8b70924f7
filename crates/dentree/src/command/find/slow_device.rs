//! A traversal of a cold image on a slow device, by `find` and `du`, takes at most twice the time
//! of reading the same metadata sequentially.
//!
//! The test asserts the number of waits, which does not depend on the machine's load. Times for
//! devices of 0.1, 1 and 8 ms: `cargo test --release -p dentree --bin dentree slow_device --
//! --ignored --nocapture`.

use super::*;
use crate::image::Image;
use crate::report::Report;
use dentree_blockdev::{BlockDevice, MemoryDevice, SlowDevice};
use dentree_ext4::mkfs::{MkfsOptions, mkfs};
use dentree_ext4::{BlockSize, Ext4, InodeTime, Options};
use dentree_vfs::{Identity, NewKind, Vfs};
use std::time::{Duration, Instant};

/// Directories per level, and files in each of the lowest.
#[derive(Clone, Copy)]
struct Shape {
    top: usize,
    below: usize,
    files: usize,
}

impl Shape {
    fn directories(self) -> usize {
        1 + self.top + self.top * self.below
    }

    fn entries(self) -> usize {
        self.directories() + self.top * self.below * self.files
    }
}

fn image(shape: Shape) -> MemoryDevice {
    const SUPERUSER: Identity = Identity::Superuser;
    // An inode for every 16 KiB.
    let device = MemoryDevice::new((32 << 20) + shape.entries() * (16 << 10));
    let options = MkfsOptions {
        block_size: BlockSize::from_log_block_size(2),
        ..MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default())
    };
    mkfs(&device, &options).unwrap();
    let options = Options { writable: true, cache_bytes: 256 << 20, ..Options::default() };
    let vfs = Vfs::new(Ext4::open(Arc::new(device.clone()), options).unwrap()).unwrap();
    for top in 0..shape.top {
        let name = format!("project{top}");
        let above = vfs.make(&SUPERUSER, vfs.root(), name.as_bytes(), NewKind::Directory, 0o755).unwrap();
        for below in 0..shape.below {
            let name = format!("part{below}");
            let dir = vfs.make(&SUPERUSER, &above, name.as_bytes(), NewKind::Directory, 0o755).unwrap();
            for file in 0..shape.files {
                let name = format!("a file of some name {file}");
                vfs.make(&SUPERUSER, &dir, name.as_bytes(), NewKind::Regular, 0o644).unwrap();
            }
        }
    }
    let fs = vfs.into_fs().expect("no inode is held");
    fs.close().unwrap();
    device
}

/// Loads every inode of the image; returns the number of entries.
fn search(image: &Image) -> usize {
    let args = FindArgs {
        locations: Vec::new(),
        name: Vec::new(),
        iname: Vec::new(),
        kinds: None,
        size: vec!["-1000000G".to_owned()],
        newer: None,
        mtime: Vec::new(),
        maxdepth: None,
        print0: false,
        json: false,
        sort: false,
    };
    let (filter, report) = (Filter::new(&args, None, now()).unwrap(), Report::default());
    let search = Search {
        tree: Tree::new(image, &report),
        filter: &filter,
        style: Style { names: Names::RAW, end: b'\n', json: false },
        order: Order::AsReady,
        depth: u32::MAX,
    };
    let start = Job::Start { path: b"/".as_slice().into(), node: image.vfs.root().clone() };
    let mut found = 0;
    let count = |paths: Vec<u8>| {
        found += paths.iter().filter(|&&byte| byte == b'\n').count();
        ControlFlow::Continue(())
    };
    fanout::run(2, Order::AsReady, vec![start], |job, emit| search.work(job, emit), count);
    found
}

/// A command's name, and its traversal.
type Command = (&'static str, fn(&Image, Shape));

/// The traversals of `find` and `du`.
const COMMANDS: [Command; 2] = [
    ("find", |image, shape| assert_eq!(search(image), shape.entries() + 1, "and lost+found")),
    ("du", |image, shape| {
        let (blocks, directories) = crate::command::du::sum_up(image);
        assert_eq!(directories, shape.directories() + 1, "and lost+found");
        assert!(blocks >= 8 * directories as u64);
    }),
];

#[test]
fn a_traversal_of_a_cold_image_waits_for_few_of_its_directories() {
    let shape = Shape { top: 8, below: 40, files: 20 };
    let disk = Arc::new(image(shape));
    for (command, go) in COMMANDS {
        let image = Image::on(disk.clone()).unwrap();
        let before = image.vfs.fs().buffer_stats();
        go(&image, shape);
        let after = image.vfs.fs().buffer_stats();
        let (misses, ahead) = (after.misses - before.misses, after.ahead_read - before.ahead_read);
        println!(
            "{command}, {} directories: {misses} blocks missed, {ahead} read ahead",
            shape.directories()
        );
        assert!(misses as usize * 8 < shape.directories(), "{misses} misses, {ahead} read ahead");
    }
}

#[test]
#[ignore = "measures: a minute with --release"]
fn a_cold_image_beside_reading_the_same_bytes_from_end_to_end() {
    const REQUEST: usize = 128 << 10;
    let shape = Shape { top: 40, below: 40, files: 40 };
    let disk = Arc::new(image(shape));
    for latency in [100, 1000, 8000].map(Duration::from_micros) {
        for (command, go) in COMMANDS {
            let device = Arc::new(SlowDevice::new(disk.clone(), latency));
            let image = Image::on(device.clone()).unwrap();
            let before = image.device.counts();
            let start = Instant::now();
            go(&image, shape);
            let time = start.elapsed();
            let bytes = (image.device.counts().read_bytes - before.read_bytes) as usize;
            let requests = image.device.counts().total_reads() - before.total_reads();
            let (start, mut buf) = (Instant::now(), vec![0; REQUEST]);
            for number in 0..bytes.div_ceil(REQUEST) {
                device.read_at((number * REQUEST) as u64, &mut buf).unwrap();
            }
            let sequential = start.elapsed();
            println!(
                "{command} at {latency:?}: {} entries in {time:.2?} with {requests} requests of {bytes} bytes; \
                 end to end, {REQUEST} at a time, {sequential:.2?}: x{:.2}",
                shape.entries(),
                time.as_secs_f64() / sequential.as_secs_f64()
            );
        }
    }
}
