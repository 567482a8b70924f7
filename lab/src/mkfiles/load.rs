//! The load: an image with large directories, and files made in them.

use dentree_blockdev::{Access, BlockDevice, Done, FileDevice, MemoryDevice, SlowDevice};
use dentree_ext4::mkfs::{MkfsOptions, mkfs};
use dentree_ext4::{BhLruSize, BlockSize, Clock, DxReadAhead, Ext4, InodeTime, Node, Options};
use dentree_vfs::{FileSystem, NewInode, NewKind};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

use crate::unavailable::Unavailable;

/// The size of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Directories.
    pub directories: usize,
    /// Names per directory before the measurement.
    pub files: usize,
    /// Files made in all of them.
    pub creates: usize,
    /// Lays the directories out for their names in advance, each contiguously. Otherwise they grow
    /// interleaved, as the source's.
    pub laid_out: bool,
}

/// Names of one inode: ext4 allows 65,000.
const LINKS: usize = 60_000;
/// Directories whose first access is timed.
const FIRST: usize = 8;
/// 4 KiB, as the source's file system has.
const BLOCK: u64 = 4096;

/// An image in memory with directories of the load's size.
pub(super) struct Image {
    bytes: Vec<u8>,
    size: Size,
    /// Mean blocks per directory.
    pub(super) blocks: f64,
}

fn because(why: impl std::fmt::Display) -> Unavailable {
    Unavailable::because("mkfiles", why)
}

fn directory(number: usize) -> Vec<u8> {
    format!("directory{number}").into_bytes()
}

/// As long as the names of bonnie++, the source's benchmark.
fn file(number: usize) -> Vec<u8> {
    format!("{number:010}dentree").into_bytes()
}

impl Image {
    /// Makes the image. The names are links to few inodes: only the directories have to be large.
    pub(super) fn new(size: Size, seed: u64) -> Result<Self, Unavailable> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let names = (size.directories * size.files) as u64;
        // The journal and tables; 64 bytes per name, a block per small directory; an inode per 16
        // KiB.
        let bytes = (24 << 20)
            + names * 64
            + (size.directories as u64) * BLOCK
            + (size.creates + size.directories) as u64 * (16 << 10);
        let device = MemoryDevice::new(usize::try_from(bytes.next_multiple_of(BLOCK)).map_err(because)?);
        let made = MkfsOptions {
            block_size: BlockSize::from_log_block_size(2),
            ..MkfsOptions::new([20; 16], [(); 4].map(|()| random.random()), InodeTime::default())
        };
        mkfs(&device, &made).map_err(because)?;
        let options = Options {
            writable: true,
            journaled: false,
            cache_bytes: 512 << 20,
            clock: Clock::Fixed(InodeTime::default()),
            ..Options::default()
        };
        let fs = Ext4::open(Arc::new(device.clone()), options).map_err(because)?;
        let blocks = fill(&fs, size, &mut random).map_err(because)?;
        fs.close().map_err(because)?;
        Ok(Self { bytes: device.to_vec(), size, blocks })
    }

    /// Bytes of all directories' blocks.
    pub(super) fn directory_bytes(&self) -> f64 {
        self.blocks * self.size.directories as f64 * BLOCK as f64
    }
}

/// Fills the directories; returns their mean number of blocks.
fn fill(fs: &Ext4, size: Size, random: &mut Xoshiro256PlusPlus) -> dentree_vfs::Result<f64> {
    let root = fs.load(fs.root())?;
    let make = |number| fs.create(&root, &directory(number), &new(NewKind::Directory));
    let dirs = (0..size.directories).map(make).collect::<dentree_vfs::Result<Vec<_>>>()?;
    for dir in dirs.iter().filter(|_| size.laid_out) {
        fs.reserve_entries(dir, (size.files + size.creates / size.directories) as u64)?;
    }
    let mut linked = fs.create(&root, b"linked0", &new(NewKind::Regular))?;
    for number in 0..size.directories * size.files {
        if number > 0 && number.is_multiple_of(LINKS) {
            linked = fs.create(&root, format!("linked{number}").as_bytes(), &new(NewKind::Regular))?;
        }
        fs.link(&dirs[random.random_range(0..dirs.len())], &file(number), &linked)?;
    }
    let bytes: u64 = dirs.iter().map(|dir| fs.attr(dir).size).sum();
    Ok(bytes as f64 / BLOCK as f64 / dirs.len() as f64)
}

fn new(kind: NewKind<'static>) -> NewInode<'static> {
    NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] }
}

/// The image's device, and its mount options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    /// The latency of a read; `None`: an image in a file.
    pub(super) latency: Option<Duration>,
    /// Reads that the slow device serves at a time.
    pub(super) depth: usize,
    pub(super) cache_bytes: usize,
    pub(super) mode: DxReadAhead,
    pub(super) lru: BhLruSize,
}

/// The results of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Made {
    /// The time of the creates, without the journal's commits.
    pub(super) time: Duration,
    /// The buffer cache's counts.
    pub(super) counts: Counts,
    /// The mean time of a directory's first lookup.
    pub(super) first: Duration,
}

/// The buffer cache's counts for creates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Requests to the device.
    pub(super) reads: u64,
    /// Requests that a create waited for from their start.
    pub(super) misses: u64,
    /// Reads ahead whose end a create waited for.
    pub(super) late: u64,
    /// Blocks read ahead, used and wasted.
    pub(super) ahead: u64,
    pub(super) used: u64,
    pub(super) wasted: u64,
    /// Hits in the buffer LRU.
    pub(super) recent: u64,
}

impl Counts {
    /// The counts so far.
    fn of(fs: &Ext4) -> Self {
        let stats = fs.buffer_stats();
        Self {
            reads: stats.device_reads,
            misses: stats.misses,
            late: stats.waits,
            ahead: stats.ahead_read,
            used: stats.ahead_used,
            wasted: stats.ahead_wasted,
            recent: stats.recent_hits,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            misses: self.misses - before.misses,
            late: self.late - before.late,
            ahead: self.ahead - before.ahead,
            used: self.used - before.used,
            wasted: self.wasted - before.wasted,
            recent: self.recent - before.recent,
        }
    }
}

/// Makes the files, each in a random directory.
pub(super) fn run(image: &Image, setting: Setting, seed: u64) -> Result<Made, Unavailable> {
    let first = first_access(image, setting)?;
    let place = Place::new(image, setting)?;
    let fs = open(&place, setting, true)?;
    let (time, counts) = make_files(&fs, image.size, seed).map_err(because)?;
    fs.close().map_err(because)?;
    Ok(Made { time, counts, first })
}

fn open(place: &Place, setting: Setting, writable: bool) -> Result<Ext4, Unavailable> {
    let Setting { cache_bytes, mode: dx_read_ahead, lru: bh_lru_size, .. } = setting;
    let options = Options { writable, cache_bytes, dx_read_ahead, bh_lru_size, ..Options::default() };
    Ext4::open(place.device.clone(), options).map_err(because)
}

fn directories(fs: &Ext4, count: usize) -> dentree_vfs::Result<Vec<Node>> {
    let root = fs.load(fs.root())?;
    let find = |number| {
        let found = fs.lookup(&root, &directory(number))?.ok_or(dentree_vfs::Error::NotFound)?;
        fs.load(found.ino)
    };
    (0..count).map(find).collect()
}

/// The first lookup in each of some directories, in turn: earlier read-ahead may still be in
/// flight.
fn first_access(image: &Image, setting: Setting) -> Result<Duration, Unavailable> {
    let place = Place::new(image, setting)?;
    let fs = open(&place, setting, false)?;
    let dirs = directories(&fs, image.size.directories.min(FIRST)).map_err(because)?;
    let start = Instant::now();
    for dir in &dirs {
        let found = fs.lookup(dir, b"there is no such name").map_err(because)?;
        assert!(found.is_none(), "the name does not exist");
    }
    Ok(start.elapsed() / dirs.len().max(1) as u32)
}

fn make_files(fs: &Ext4, size: Size, seed: u64) -> dentree_vfs::Result<(Duration, Counts)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let dirs = directories(fs, size.directories)?;
    let before = Counts::of(fs);
    let mut time = Duration::ZERO;
    for number in 0..size.creates {
        let dir = &dirs[random.random_range(0..dirs.len())];
        let name = format!("{:010}made", random.random::<u32>() ^ number as u32);
        let start = Instant::now();
        if fs.lookup(dir, name.as_bytes())?.is_none() {
            let made = fs.create(dir, name.as_bytes(), &new(NewKind::Regular))?;
            fs.evict(&made);
        }
        time += start.elapsed();
        // The source's journal commits once for a fraction of its directories. Changed blocks stay
        // in memory until then.
        if (number + 1).is_multiple_of(size.directories) {
            fs.sync()?;
        }
    }
    Ok((time, Counts::of(fs).since(before)))
}

/// A device, and its file.
struct Place {
    device: Arc<dyn BlockDevice>,
    _file: Option<NamedTempFile>,
}

impl Place {
    fn new(image: &Image, setting: Setting) -> Result<Self, Unavailable> {
        let Some(latency) = setting.latency else {
            let file = NamedTempFile::with_prefix("dentree-lab").map_err(because)?;
            std::fs::write(file.path(), &image.bytes).map_err(because)?;
            let device = FileDevice::open(file.path(), Access::ReadWrite).map_err(because)?;
            return Ok(Self { device: Arc::new(device), _file: Some(file) });
        };
        let memory = Arc::new(MemoryDevice::from(image.bytes.clone()));
        let reads = Arc::new(SlowDevice::with_depth(memory.clone(), latency, setting.depth));
        Ok(Self { device: Arc::new(LateReads { reads, memory }), _file: None })
    }
}

/// A disk with a write cache: only reads, the source's subject, have a latency.
struct LateReads {
    reads: Arc<SlowDevice>,
    memory: Arc<MemoryDevice>,
}

impl BlockDevice for LateReads {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.reads.read_vectored_at(offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.memory.write_vectored_at(offset, bufs)
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        self.reads.clone().submit(offset, buf, done);
    }
}
