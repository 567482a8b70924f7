//! Block traces: a file system's accesses to its buffer cache, in order.
//!
//! A cache of capacity zero reads each block from the device, which therefore sees every access.
//! Blocks that a transaction changed stay in memory until they are checkpointed, at any capacity:
//! their accesses are missing in the trace, for all policies alike.

use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_ext4::mkfs::{Features, MkfsOptions, mkfs};
use dentree_ext4::{BlockSize, Clock, Ext4, InodeTime, Options};
use dentree_sync::Mutex;
use dentree_vfs::{Identity, Ino, Inode, NewKind, ReaddirStart, Vfs, WalkOptions};
use foldhash::HashSet;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

const BLOCK: usize = 4096;
const USER: Identity = Identity::Superuser;

/// A load's accesses.
pub struct Trace {
    /// The load.
    pub name: &'static str,
    /// Blocks, in order of access.
    pub blocks: Vec<u64>,
    /// The index blocks among them: of a directory's names, or of a file's extents.
    pub index: HashSet<u64>,
}

impl Trace {
    /// The number of distinct blocks.
    pub fn distinct(&self) -> usize {
        self.blocks.iter().collect::<HashSet<_>>().len()
    }
}

/// A device that records the blocks read and which of them are index blocks.
struct Recorder {
    device: MemoryDevice,
    seen: Mutex<(Vec<u64>, HashSet<u64>)>,
}

impl Recorder {
    fn take(&self, name: &'static str) -> Trace {
        let mut seen = self.seen.lock();
        let (blocks, index) = std::mem::take(&mut *seen);
        Trace { name, blocks, index }
    }
}

impl BlockDevice for Recorder {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)?;
        let mut seen = self.seen.lock();
        for (block, bytes) in (offset / BLOCK as u64..).zip(buf.chunks(BLOCK)) {
            seen.0.push(block);
            if is_index(bytes) {
                seen.1.insert(block);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Recognizes an index block by its beginning.
fn is_index(bytes: &[u8]) -> bool {
    let u16_at =
        |at: usize| bytes.get(at..at + 2).map_or(0, |pair| u16::from(pair[0]) | u16::from(pair[1]) << 8);
    let length = u16_at(4);
    // A node: one empty entry as long as the block. A root: "." and a ".." that takes the rest.
    let is_node = bytes.starts_with(&[0; 4]) && usize::from(length) == BLOCK && u16_at(6) == 0;
    let is_root =
        length == 12 && usize::from(u16_at(16)) == BLOCK - 12 && u16_at(24) == 0 && u16_at(28) & 0xFF00 != 0;
    let is_extents = u16_at(0) == 0xF30A;
    bytes.len() == BLOCK && (is_node || is_root || is_extents)
}

/// Why a load could not be recorded.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Records the loads on an image with `directories` of `files` each: their creation in random order
/// over all directories, a walk of everything, and a large file read with lookups in between.
///
/// # Errors
/// Those of the file system: none are expected.
pub fn record(directories: usize, files: usize, tell: &dyn Fn(&str)) -> Result<Vec<Trace>, Failure> {
    // mkfs provides an inode per 16 KiB, most of which stay untouched.
    let bytes = (64 << 20) + 2 * LARGE + directories * files * 17_000;
    let device = Arc::new(Recorder { device: MemoryDevice::new(bytes), seen: Mutex::default() });
    let now = InodeTime { seconds: 1_700_000_000, nanos: 0 };
    // 4 KiB, as `BLOCK`: 2 to the power of 2 + 10.
    let block_size = BlockSize::from_log_block_size(2);
    // Without a journal a synced change is on the device: no block stays in memory for a
    // checkpoint.
    let features = Features::parse("^has_journal")?;
    mkfs(
        &device.device,
        &MkfsOptions { features, block_size, ..MkfsOptions::new([7; 16], [1, 2, 3, 4], now) },
    )?;
    let open = |writable| -> Result<Vfs<Ext4>, Failure> {
        let options = Options { cache_bytes: 0, writable, clock: Clock::Fixed(now), ..Options::default() };
        Ok(Vfs::new(Ext4::open(device.clone(), options)?)?)
    };
    tell("filling directories");
    let vfs = open(true)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let dirs: Vec<_> = (0..directories)
        .map(|at| vfs.create(&USER, vfs.root(), format!("d{at}").as_bytes(), NewKind::Directory, 0o755))
        .collect::<Result<_, _>>()?;
    let mut order: Vec<usize> = (0..directories * files).collect();
    order.shuffle(&mut random);
    let create = |file: usize| {
        let name = format!("{file:08}.{:016x}", file.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        vfs.create(&USER, &dirs[file % directories], name.as_bytes(), NewKind::Regular, 0o644)
    };
    let (before, recorded) = order.split_at(order.len() / 2);
    before.iter().try_for_each(|file| create(*file).map(drop))?;
    let large = vfs.create(&USER, vfs.root(), b"large", NewKind::Regular, 0o644)?;
    for at in (0..LARGE).step_by(1 << 20) {
        vfs.write(&USER, &large, at as u64, &[1; 1 << 20])?;
    }
    vfs.sync()?;
    device.take("");
    tell("creating");
    recorded.iter().try_for_each(|file| create(*file).and_then(|_| vfs.sync()))?;
    let mut traces = vec![device.take("creates")];
    drop((dirs, large));
    drop(vfs);
    tell("find");
    device.take("");
    find(&open(false)?)?;
    traces.push(device.take("find"));
    tell("copying");
    copy(&open(false)?, directories, &mut random)?;
    traces.push(device.take("copy"));
    // All loads on one machine, in turn.
    let blocks = traces.iter().flat_map(|trace| trace.blocks.iter().copied()).collect();
    let index = traces.iter().flat_map(|trace| trace.index.iter().copied()).collect();
    traces.push(Trace { name: "all in turn", blocks, index });
    Ok(traces)
}

/// Size of the large file.
const LARGE: usize = 64 << 20;

/// Lists every directory and loads every inode, as `find -newer` and `du` do.
fn find(vfs: &Vfs<Ext4>) -> Result<(), Failure> {
    let mut left: Vec<Arc<Inode<Ext4>>> = vec![Arc::clone(vfs.root())];
    while let Some(dir) = left.pop() {
        let mut entries: Vec<Ino> = Vec::new();
        vfs.readdir(&USER, &dir, ReaddirStart::First, &mut |entry| {
            entries.push(entry.ino);
            ControlFlow::Continue(())
        })?;
        for ino in entries {
            let inode = vfs.inode(ino)?;
            if inode.is_dir() {
                left.push(inode);
            }
        }
    }
    Ok(())
}

/// Reads the large file, and after each quarter of a MiB looks up a few names, most of which do not
/// exist.
fn copy(vfs: &Vfs<Ext4>, directories: usize, random: &mut Xoshiro256PlusPlus) -> Result<(), Failure> {
    let large = vfs.walk(&USER, vfs.root(), b"large", WalkOptions::FOLLOW)?;
    let mut buf = vec![0; 256 << 10];
    for at in (0..LARGE).step_by(buf.len()) {
        vfs.read(&large, at as u64, &mut buf)?;
        for _ in 0..8 {
            let dir = random.random_range(0..directories);
            let path = format!("d{dir}/{:08}", random.random_range(0..u32::MAX));
            match vfs.walk(&USER, vfs.root(), path.as_bytes(), WalkOptions::FOLLOW) {
                Ok(_) | Err(dentree_vfs::Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_every_load_and_knows_index_blocks_from_others() {
        let traces = record(4, 1600, &|_| {}).unwrap();
        let names: Vec<_> = traces.iter().map(|trace| trace.name).collect();
        assert_eq!(names, ["creates", "find", "copy", "all in turn"]);
        for trace in &traces {
            // Each of the four directories, half filled before, has a root; the large file may have
            // a block of extents.
            assert!((4..=8).contains(&trace.index.len()), "{}: {:?}", trace.name, trace.index);
            assert!(trace.distinct() > trace.index.len() && trace.blocks.len() > trace.distinct());
        }
        // The copy reads each block of the file once.
        assert!(traces[2].distinct() >= LARGE / BLOCK);
    }
}
