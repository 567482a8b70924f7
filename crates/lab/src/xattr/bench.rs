//! The benchmark of the source: P clients, each of which sets an attribute of its F files, to a value that is drawn from V.
//!
//! For the caches alone the blocks are in memory ([`Store`]): what is measured is finding a block with the value, becoming its user or
//! making a new one, and leaving the old one. Kernel and fuse2fs are asked by `setxattr(2)`, [`Ext4`] by a call.

use super::BlockCache;
use crate::mounts::{Unavailable, command};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Node, Options};
use dentree_mbcache::MbCache;
use dentree_vfs::{FileSystem, SetXattr};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::fs::XattrFlags;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Most users of a block, as in ext4.
const USERS_MAX: u32 = 1024;
const NAME: &str = "user.bench";

/// One cell of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// P.
    pub clients: usize,
    /// F.
    pub files: usize,
    /// V.
    pub values: usize,
    /// How often each client sets an attribute.
    pub sets: usize,
}

/// Somebody who sets attributes.
pub trait Setter: Sync {
    /// Sets the attribute of a client's file to value `value` of V.
    fn set(&self, client: usize, file: usize, value: usize);
}

/// How long it took until the last client was done, from when all were there.
pub fn run(setter: &dyn Setter, cell: &Cell, seed: u64) -> Duration {
    let start = Barrier::new(cell.clients + 1);
    let mut began = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..cell.clients {
            let start = &start;
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 16 | client as u64);
                start.wait();
                for set in 0..cell.sets {
                    setter.set(client, set % cell.files, random.random_range(0..cell.values));
                }
            });
        }
        // Before they are let go: this thread may be the last to run.
        began = Instant::now();
        start.wait();
    });
    began.elapsed()
}

/// Blocks in memory, shared through a cache.
pub struct Store<C> {
    cache: C,
    /// Value and users of each block; 0 users: free.
    blocks: Vec<(AtomicU64, AtomicU32)>,
    free: Mutex<Vec<u32>>,
    /// The block of each file, by client.
    files: Vec<Vec<AtomicU32>>,
}

/// A file has no block.
const NONE: u32 = u32::MAX;

impl<C: BlockCache> Store<C> {
    /// For one cell, with nothing set.
    pub fn new(cell: &Cell, cache: C) -> Self {
        let most = cell.clients * (cell.files + 1);
        let files = || (0..cell.files).map(|_| AtomicU32::new(NONE)).collect();
        Store {
            cache,
            blocks: (0..most).map(|_| Default::default()).collect(),
            free: Mutex::new((0..most as u32).collect()),
            files: (0..cell.clients).map(|_| files()).collect(),
        }
    }

    /// Becomes a user of a block that has this value, room, and users.
    fn join(&self, block: u64, value: u64) -> bool {
        let (has, users) = &self.blocks[block as usize];
        has.load(Ordering::Acquire) == value
            && users
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| {
                    (1..USERS_MAX).contains(&users).then(|| users + 1)
                })
                .is_ok()
    }

    /// Leaves a block; the last to leave frees it.
    fn leave(&self, block: u32) {
        let (value, users) = &self.blocks[block as usize];
        let key = key_of(value.load(Ordering::Acquire));
        let leave = |least| {
            users
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| (users > least).then(|| users - 1))
        };
        while leave(1).is_err() {
            self.cache.forget(key, u64::from(block));
            // Nobody can find it: alone now means alone.
            if users.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.free.lock().unwrap_or_else(PoisonError::into_inner).push(block);
                return;
            }
            self.cache.insert(key, u64::from(block));
        }
    }

    /// Whether each block has as many users as files point at it.
    pub fn is_sound(&self) -> bool {
        let mut users = vec![0; self.blocks.len()];
        for block in self.files.iter().flatten().map(|file| file.load(Ordering::Relaxed)) {
            if block != NONE {
                users[block as usize] += 1;
            }
        }
        users.iter().zip(&self.blocks).all(|(users, (_, counted))| counted.load(Ordering::Relaxed) == *users)
    }
}

impl<C: BlockCache> Setter for Store<C> {
    fn set(&self, client: usize, file: usize, value: usize) {
        let (file, value) = (&self.files[client][file], value as u64);
        let old = file.load(Ordering::Relaxed);
        if old != NONE && self.blocks[old as usize].0.load(Ordering::Acquire) == value {
            return;
        }
        let key = key_of(value);
        let new = self.cache.share(key, &|block| self.join(block, value));
        let new = new.map(|block| block as u32).unwrap_or_else(|| {
            let taken = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let block = taken.expect("there is a block for each file and one for each client");
            let (place, users) = &self.blocks[block as usize];
            place.store(value, Ordering::Release);
            users.store(1, Ordering::Release);
            self.cache.insert(key, u64::from(block));
            block
        });
        file.store(new, Ordering::Relaxed);
        if old != NONE {
            self.leave(old);
        }
    }
}

/// A hash of the value, as the blocks' own.
fn key_of(value: u64) -> u32 {
    (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

impl BlockCache for MbCache {
    fn share(&self, key: u32, wanted: &dyn Fn(u64) -> bool) -> Option<u64> {
        let mut candidate = self.find_first(key);
        while let Some(entry) = candidate {
            if wanted(entry.value()) {
                entry.touch();
                return Some(entry.value());
            }
            candidate = entry.find_next();
        }
        None
    }

    fn insert(&self, key: u32, block: u64) {
        MbCache::insert(self, key, block, true);
    }

    fn forget(&self, key: u32, block: u64) {
        while let Some(held) = self.delete_or_get(key, block) {
            held.wait_unused();
        }
    }
}

fn text_of(value: usize) -> Vec<u8> {
    format!("value-{value:08}").into_bytes()
}

/// An image in memory whose inodes have room for attributes in blocks only, with the files of a cell.
pub struct BenchImage {
    folder: TempDir,
}

impl BenchImage {
    /// For so many clients and files.
    ///
    /// # Errors
    /// Needs `mke2fs`.
    pub fn new(clients: usize, files: usize) -> Result<Self, Unavailable> {
        let in_memory = Path::new("/dev/shm");
        let place = if in_memory.is_dir() { in_memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("dentree-lab").tempdir_in(place);
        let folder = folder.map_err(|why| Unavailable::because("cannot make a temporary folder", why))?;
        let image = BenchImage { folder };
        let count = clients * files;
        let bytes = (96 << 20) + (count as u64) * 6144;
        let file = std::fs::File::create(image.path()).and_then(|file| file.set_len(bytes));
        file.map_err(|why| Unavailable::because("cannot make an image", why))?;
        let inodes = (count + clients + 100).to_string();
        let mke2fs = ["-q", "-F", "-t", "ext4", "-I", "128", "-b", "4096", "-N", &inodes];
        command(Command::new("mke2fs").args(mke2fs).arg(image.path()))?;
        let fs = image.open()?;
        let made = make_files(&fs, clients, files).and_then(|_| Ok(fs.close()?));
        made.map_err(|why| Unavailable::because("cannot fill an image", why))?;
        Ok(image)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn open(&self) -> Result<Ext4, Unavailable> {
        let options = Options { writable: true, ..Options::default() };
        FileDevice::open(self.path(), Access::ReadWrite)
            .map_err(|why| Unavailable::because("cannot open an image", why))
            .and_then(|device| {
                Ext4::open(std::sync::Arc::new(device), options)
                    .map_err(|why| Unavailable::because("cannot open an image", why))
            })
    }
}

fn make_files(fs: &Ext4, clients: usize, files: usize) -> dentree_vfs::Result<()> {
    use dentree_vfs::{NewInode, NewKind};
    let new = |kind| NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] };
    let root = fs.load(fs.root())?;
    for client in 0..clients {
        let dir = fs.make(&root, client.to_string().as_bytes(), &new(NewKind::Directory))?;
        for file in 0..files {
            fs.evict(&fs.make(&dir, file.to_string().as_bytes(), &new(NewKind::Regular))?);
        }
        fs.evict(&dir);
    }
    Ok(())
}

/// This file system, called.
pub struct InProcess {
    fs: Ext4,
    nodes: Vec<Vec<Node>>,
}

impl InProcess {
    /// Opens the image and its files.
    ///
    /// # Errors
    /// That it cannot be read.
    pub fn new(image: &BenchImage, clients: usize, files: usize) -> Result<Self, Unavailable> {
        let fs = image.open()?;
        let nodes = || -> dentree_vfs::Result<Vec<Vec<Node>>> {
            let find = |dir: &Node, name: usize| {
                let found =
                    fs.lookup(dir, name.to_string().as_bytes())?.ok_or(dentree_vfs::Error::NotFound)?;
                fs.load(found.ino)
            };
            let root = fs.load(fs.root())?;
            (0..clients)
                .map(|client| {
                    let dir = find(&root, client)?;
                    (0..files).map(|file| find(&dir, file)).collect()
                })
                .collect()
        };
        let nodes = nodes().map_err(|why| Unavailable::because("cannot read an image", why))?;
        Ok(InProcess { fs, nodes })
    }
}

impl Setter for InProcess {
    fn set(&self, client: usize, file: usize, value: usize) {
        let set =
            self.fs.setxattr(&self.nodes[client][file], NAME.as_bytes(), &text_of(value), SetXattr::Any);
        set.expect("there is space for all attributes");
    }
}

/// Whoever has mounted the image.
pub struct Mounted {
    /// Unmounted before the folder goes.
    point: TempDir,
}

impl Mounted {
    /// By the kernel, or, given the program and what stands before and behind image and place, by that.
    ///
    /// # Errors
    /// Needs root, or the program.
    pub fn new(image: &BenchImage, by: &[&str]) -> Result<Self, Unavailable> {
        let point = tempfile::Builder::new().prefix("dentree-lab").tempdir();
        let point = point.map_err(|why| Unavailable::because("cannot make a temporary folder", why))?;
        let (program, options) = by.split_first().unwrap_or((&"mount", &[]));
        command(Command::new(program).args(options).arg(image.path()).arg(point.path()))?;
        Ok(Mounted { point })
    }
}

impl Setter for Mounted {
    fn set(&self, client: usize, file: usize, value: usize) {
        let path = self.point.path().join(format!("{client}/{file}"));
        let set = rustix::fs::setxattr(&path, NAME, &text_of(value), XattrFlags::empty());
        set.expect("there is space for all attributes");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point.path()).status();
    }
}
