//! The benchmark of the source: P clients, each of which sets an attribute of its F files to a
//! value drawn from V. [`InProcess`] sets them in this process, as [`Store`](super::store) does.

use crate::mounts::command;
use crate::unavailable::Unavailable;
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Node, Options};
use dentree_vfs::{FileSystem, SetXattr};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const NAME: &str = "user.bench";

/// One cell of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// P.
    pub clients: usize,
    /// F.
    pub files: usize,
    /// V.
    pub values: usize,
    /// Sets per client.
    pub sets: usize,
}

/// Sets attributes.
pub trait Setter: Sync {
    /// Sets the attribute of a client's file to value `value` of V.
    fn set(&self, client: usize, file: usize, value: usize);
}

/// The files whose attribute a client sets in a round, in order from the end of the last round, and
/// the values drawn.
pub(super) fn sets_of(cell: &Cell, client: usize, round: u64) -> impl Iterator<Item = (usize, usize)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(round << 16 | client as u64);
    let Cell { files, values, sets, .. } = *cell;
    let first = round as usize * sets;
    (first..first + sets).map(move |set| (set % files, random.random_range(0..values)))
}

/// The time from the common start until the last client is done. Clients are threads.
pub fn run(setter: &dyn Setter, cell: &Cell, round: u64) -> Duration {
    let (ready, go) = (Barrier::new(cell.clients + 1), Barrier::new(cell.clients + 1));
    let mut began = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..cell.clients {
            let (ready, go) = (&ready, &go);
            scope.spawn(move || {
                let sets: Vec<(usize, usize)> = sets_of(cell, client, round).collect();
                ready.wait();
                go.wait();
                sets.into_iter().for_each(|(file, value)| setter.set(client, file, value));
            });
        }
        ready.wait();
        // Before the start: this thread may run last.
        began = Instant::now();
        go.wait();
    });
    began.elapsed()
}

/// The path of a client's file.
pub(super) fn name_of(client: usize, file: usize) -> String {
    format!("{client}/{file}")
}

/// "value-" and eight digits.
pub(super) fn text_of(value: usize) -> [u8; 14] {
    let mut text = *b"value-00000000";
    let mut rest = value;
    for digit in text.iter_mut().rev().take(8) {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// An image in memory with the files of a cell. Its inodes are too small for attributes, which
/// therefore go to blocks.
pub struct BenchImage {
    folder: TempDir,
}

impl BenchImage {
    /// An image for this many clients and files.
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

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Runs e2fsck.
    ///
    /// # Errors
    /// e2fsck's output, if it finds a defect.
    pub fn check(&self) -> Result<(), Unavailable> {
        command(Command::new("e2fsck").arg("-fn").arg(self.path()))
    }

    fn open(&self) -> Result<Ext4, Unavailable> {
        // Like the kernel it may cache the whole image.
        let cache_bytes = std::fs::metadata(self.path()).map_or(0, |metadata| metadata.len() as usize);
        let default = Options::default();
        let options =
            Options { writable: true, cache_bytes: cache_bytes.max(default.cache_bytes), ..default };
        FileDevice::open(self.path(), Access::ReadWrite)
            .map_err(|why| Unavailable::because("cannot open an image", why))
            .and_then(|device| {
                Ext4::open(Arc::new(device), options)
                    .map_err(|why| Unavailable::because("cannot open an image", why))
            })
    }
}

fn make_files(fs: &Ext4, clients: usize, files: usize) -> dentree_vfs::Result<()> {
    use dentree_vfs::{NewInode, NewKind};
    let new = |kind| NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] };
    let root = fs.load(fs.root())?;
    for client in 0..clients {
        let dir = fs.create(&root, client.to_string().as_bytes(), &new(NewKind::Directory))?;
        for file in 0..files {
            fs.evict(&fs.create(&dir, file.to_string().as_bytes(), &new(NewKind::Regular))?);
        }
        fs.evict(&dir);
    }
    Ok(())
}

/// This file system, called directly.
pub struct InProcess {
    fs: Ext4,
    nodes: Vec<Vec<Node>>,
}

impl InProcess {
    /// Opens the image and its files.
    ///
    /// # Errors
    /// If the image is unreadable.
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

    /// Writes everything to the image.
    ///
    /// # Errors
    /// If the image cannot be written.
    pub fn end(self) -> Result<(), Unavailable> {
        drop(self.nodes);
        self.fs.close().map_err(|why| Unavailable::because("cannot close an image", why))
    }
}

impl Setter for InProcess {
    fn set(&self, client: usize, file: usize, value: usize) {
        let set =
            self.fs.setxattr(&self.nodes[client][file], NAME.as_bytes(), &text_of(value), SetXattr::Any);
        set.expect("there is space for all attributes");
    }
}
