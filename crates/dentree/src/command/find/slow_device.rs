//! A traversal of a cold image on a slow device, by `find` and `du`, takes at most twice the time
//! of reading the same metadata sequentially.
//!
//! The test asserts the number of waits, which does not depend on the machine's load. Times for
//! devices of 0.1, 1 and 8 ms: `cargo test --release -p dentree --bin dentree slow_device --
//! --ignored --nocapture`.

use super::*;
use crate::args::Global;
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
        let above = vfs.create(&SUPERUSER, vfs.root(), name.as_bytes(), NewKind::Directory, 0o755).unwrap();
        for below in 0..shape.below {
            let name = format!("part{below}");
            let dir = vfs.create(&SUPERUSER, &above, name.as_bytes(), NewKind::Directory, 0o755).unwrap();
            for file in 0..shape.files {
                let name = format!("a file of some name {file}");
                vfs.create(&SUPERUSER, &dir, name.as_bytes(), NewKind::Regular, 0o644).unwrap();
            }
        }
    }
    let fs = vfs.into_fs().expect("no inode is held");
    fs.close().unwrap();
    device
}

/// Loads every inode of the image; returns the number of entries.
fn search(image: &Arc<Image>) -> usize {
    let file = tempfile::NamedTempFile::new().unwrap();
    let words = ["-size", "-1000000G", "-fprint", file.path().to_str().unwrap()].map(OsString::from);
    let session = Session::new(Global::default());
    let split = compile::split(&words).unwrap();
    let files = LocalFiles::default();
    let mut find = Find { session: &session, split: &split, now: now(), files, row: None };
    let (plan, sink) = (find.plan(Some(image)).unwrap(), Sink::new(Printed::Path, None));
    let (tree, interrupted) = (Tree::new(image, &session.report), AtomicBool::new(false));
    Search::new(tree, (b"/".to_vec(), Vec::new()), &plan, &sink, false, &interrupted).run(image.vfs.root());
    assert!(find.files.finish().is_empty());
    std::fs::read_to_string(file.path()).unwrap().lines().count()
}

/// A command's name, and its traversal.
type Command = (&'static str, fn(&Arc<Image>, Shape));

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
        let image = Arc::new(Image::on(disk.clone()).unwrap());
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
            let image = Arc::new(Image::on(device.clone()).unwrap());
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
