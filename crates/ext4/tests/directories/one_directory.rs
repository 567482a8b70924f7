//! Many threads change and list one directory. Each knows the state of its own names; some names
//! are contested, and some last.
//!
//! `make crash` does ten million operations, and prints its progress every ten seconds.

use crate::common::Image;
use crate::tree::{Node, Tree, check};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Budgets, DirEntry, Error, Identity, NewKind, OnExisting, ReaddirStart, Vfs};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::DirEntry as DirEntryOfTheKernel;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const WHO: Identity = Identity::Superuser;
const LASTING: usize = 200;
const CONTESTED: usize = 24;

#[derive(Clone, Copy)]
struct Load {
    threads: u64,
    steps: u64,
    own: u64,
    /// One operation in so many, a multiple of 100.
    listing: u64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Leaves hold few long or many short names.
fn name(owner: &str, number: u64) -> String {
    let pad = usize::try_from(number * 37 % 180).unwrap();
    format!("{owner}.{number}.{:x<pad$}", "")
}

fn lasting(number: usize) -> String {
    name("lasting", number as u64)
}

fn contested(number: usize) -> String {
    name("anybody", number as u64)
}

struct Stage {
    vfs: Vfs<Ext4>,
    dir: Node,
    /// Creations less removals, by name.
    balance: Vec<AtomicI64>,
    listed: AtomicU64,
    done: AtomicU64,
    /// Cannot have an index.
    is_linear: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    File(u64),
    Dir,
}

struct Worker<'a> {
    stage: &'a Stage,
    random: Random,
    owner: String,
    load: Load,
    has: HashMap<String, Own>,
    next: u64,
}

impl Worker<'_> {
    fn name(&mut self) -> String {
        let number = self.random.below(self.load.own);
        name(&self.owner, number)
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..40 => self.make(),
            40..60 => self.remove(),
            60..64 => self.make_dir(),
            64..68 => self.link(),
            68..72 => self.rename(),
            72..92 => self.lookup(),
            92..99 => self.contend(),
            _ if self.random.below(self.load.listing / 100) == 0 => self.list(),
            _ => self.lookup(),
        }
        self.stage.done.fetch_add(1, Relaxed);
    }

    fn make(&mut self) {
        let name = self.name();
        match self.stage.vfs.create(&WHO, &self.stage.dir, name.as_bytes(), NewKind::Regular, 0o644) {
            Ok(_) => {
                self.next += 1;
                assert_eq!(self.has.insert(name, Own::File(self.next)), None);
            }
            Err(error) => assert!(matches!(error, Error::Exists) && self.has.contains_key(&name), "{error}"),
        }
    }

    fn make_dir(&mut self) {
        let name = self.name();
        match self.stage.vfs.create(&WHO, &self.stage.dir, name.as_bytes(), NewKind::Directory, 0o755) {
            Ok(_) => assert_eq!(self.has.insert(name, Own::Dir), None),
            Err(error) => assert!(matches!(error, Error::Exists) && self.has.contains_key(&name), "{error}"),
        }
    }

    fn remove(&mut self) {
        let name = self.name();
        let (vfs, dir) = (&self.stage.vfs, &self.stage.dir);
        let removed = match self.has.remove(&name) {
            Some(Own::Dir) => vfs.rmdir(&WHO, dir, name.as_bytes()),
            Some(Own::File(_)) => vfs.unlink(&WHO, dir, name.as_bytes()),
            None => match vfs.unlink(&WHO, dir, name.as_bytes()) {
                Err(Error::NotFound) => Ok(()),
                other => panic!("{name}, which is not there: {other:?}"),
            },
        };
        removed.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    fn link(&mut self) {
        let (old, new) = (self.name(), self.name());
        let Some(&Own::File(file)) = self.has.get(&old) else { return };
        let (vfs, dir) = (&self.stage.vfs, &self.stage.dir);
        let node = vfs.lookup(&WHO, dir, old.as_bytes()).unwrap().unwrap();
        match vfs.link(&WHO, &node, dir, new.as_bytes()) {
            Ok(()) => assert_eq!(self.has.insert(new, Own::File(file)), None),
            Err(error) => assert!(matches!(error, Error::Exists) && self.has.contains_key(&new), "{error}"),
        }
    }

    fn rename(&mut self) {
        let (old, new) = (self.name(), self.name());
        let dir = &self.stage.dir;
        let how = OnExisting::Fail;
        match self.stage.vfs.rename(&WHO, dir, old.as_bytes(), dir, new.as_bytes(), how) {
            Ok(_) => {
                let moved = self.has.remove(&old).expect("it was there");
                assert_eq!(self.has.insert(new, moved), None);
            }
            Err(Error::NotFound) => assert!(!self.has.contains_key(&old)),
            Err(error) => assert!(matches!(error, Error::Exists) && self.has.contains_key(&new), "{error}"),
        }
    }

    fn lookup(&mut self) {
        let own = self.name();
        assert_eq!(self.finds(&own), self.has.contains_key(&own), "{own}");
        let number = usize::try_from(self.random.below(LASTING as u64)).unwrap();
        assert!(self.finds(&lasting(number)), "{}", lasting(number));
        assert!(!self.finds(&format!("{own} is not there")));
    }

    fn finds(&self, name: &str) -> bool {
        self.stage.vfs.lookup(&WHO, &self.stage.dir, name.as_bytes()).unwrap().is_some()
    }

    fn contend(&mut self) {
        let number = usize::try_from(self.random.below(CONTESTED as u64)).unwrap();
        let (name, Stage { vfs, dir, balance, .. }) = (contested(number), self.stage);
        let (outcome, change) = if self.random.below(2) == 0 {
            (vfs.create(&WHO, dir, name.as_bytes(), NewKind::Fifo, 0o644).map(drop), 1)
        } else {
            (vfs.unlink(&WHO, dir, name.as_bytes()), -1)
        };
        match outcome {
            Ok(()) => drop(balance[number].fetch_add(change, Relaxed)),
            Err(error) => assert!(matches!(error, Error::Exists | Error::NotFound), "{error}"),
        }
    }

    /// Lists in parts: lasting names appear once, none appears twice.
    fn list(&mut self) {
        let (mine, part) = (format!("{}.", self.owner), 1 + usize::try_from(self.random.below(100)).unwrap());
        let all = list(self.stage, &mine, part);
        let own: HashSet<_> = all.iter().filter(|name| name.starts_with(&mine)).collect();
        assert!(own.len() == self.has.len() && own.into_iter().all(|name| self.has.contains_key(name)));
        assert!((0..LASTING).all(|number| all.contains(&lasting(number))));
    }
}

/// The names of `lister` do not change.
fn list(stage: &Stage, lister: &str, part: usize) -> HashSet<String> {
    let (mut all, mut next) = (HashSet::new(), ReaddirStart::First);
    loop {
        let (mut count, start) = (0, next);
        let each = &mut |entry: DirEntry<'_>| {
            if count == part {
                return ControlFlow::Break(());
            }
            count += 1;
            next = ReaddirStart::After(entry.cookie);
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            // Without an index a name made again may reappear later.
            let is_remade = stage.is_linear && !name.starts_with("lasting") && !name.starts_with(lister);
            assert!(all.insert(name.clone()) || is_remade, "{name} comes twice");
            assert_eq!(stage.vfs.inode(entry.ino).unwrap().ino(), entry.ino);
            ControlFlow::Continue(())
        };
        stage.vfs.readdir(&WHO, &stage.dir, start, each).unwrap();
        if count == 0 {
            stage.listed.fetch_add(1, Relaxed);
            return all;
        }
    }
}

fn run(options: &str, size: &str, load: Load) -> u64 {
    let image = Image::new(options, size, |_| ());
    let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let fs = Ext4::open(Arc::new(device), Options { writable: true, ..Options::default() }).unwrap();
    // With so little memory most lookups reach the file system.
    let vfs = Vfs::with_budgets(fs, Budgets { names: 0, inodes: 1 << 20 }).unwrap();
    let dir = vfs.create(&WHO, vfs.root(), b"dir", NewKind::Directory, 0o755).unwrap();
    let balance = (0..CONTESTED).map(|_| AtomicI64::new(0)).collect();
    let is_linear = options.contains("^dir_index");
    let stage = Stage { vfs, dir, balance, listed: AtomicU64::new(0), done: AtomicU64::new(0), is_linear };
    for number in 0..LASTING {
        stage.vfs.create(&WHO, &stage.dir, lasting(number).as_bytes(), NewKind::Regular, 0o644).unwrap();
    }
    let left = work(&stage, load);
    let mut expected: BTreeSet<String> = left.into_iter().flat_map(HashMap::into_keys).collect();
    expected.extend((0..LASTING).map(lasting));
    for (number, balance) in stage.balance.iter().enumerate() {
        match balance.load(Relaxed) {
            0 => {}
            1 => drop(expected.insert(contested(number))),
            other => panic!("{} was made {other} times more often than removed", contested(number)),
        }
    }
    assert_eq!(list(&stage, "", 50).into_iter().collect::<BTreeSet<_>>(), expected);
    let Stage { vfs, dir, .. } = stage;
    drop(dir);
    vfs.into_fs().expect("no inode is in use").close().unwrap();
    check(&image, options);
    if !options.contains("^dir_index") {
        let dump = image.debugfs("htree_dump /dir\n");
        assert!(dump.contains("Root node dump") && !dump.contains("corrupt"), "{options}: {dump}");
    }
    let tree = Tree::open(&image);
    assert_eq!(tree.names("dir"), expected);
    tree.close();
    if let Some(mount) = image.mount() {
        let name = |entry: std::io::Result<DirEntryOfTheKernel>| entry.unwrap().file_name().into_string();
        let theirs = std::fs::read_dir(mount.path().join("dir")).unwrap().map(|entry| name(entry).unwrap());
        assert_eq!(theirs.collect::<BTreeSet<_>>(), expected, "{options}: what the kernel lists");
    }
    load.threads * load.steps
}

/// Returns the names left.
fn work(stage: &Stage, load: Load) -> Vec<HashMap<String, Own>> {
    let (end, ended) = channel::<()>();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            scope.spawn(move || {
                let (random, owner) = (Random(thread * 7919 + 5), format!("own{thread}"));
                let mut worker = Worker { stage, random, owner, load, has: HashMap::new(), next: 0 };
                (0..load.steps).for_each(|_| worker.step());
                worker.list();
                worker.has
            })
        };
        let threads: Vec<_> = (0..load.threads).map(work).collect();
        scope.spawn(move || {
            while ended.recv_timeout(Duration::from_secs(10)) == Err(RecvTimeoutError::Timeout) {
                let (done, listed) = (stage.done.load(Relaxed), stage.listed.load(Relaxed));
                let all = load.threads * load.steps;
                println!("{done} of {all} operations, {listed} listings, {:.0?}", start.elapsed());
            }
        });
        let left = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        drop(end);
        left
    })
}

#[test]
fn threads_that_change_one_directory_lose_nothing() {
    let load = Load { threads: 4, steps: 4000, own: 700, listing: 1000 };
    for options in [
        "-t ext4 -b 1024 -N 8000",
        "-t ext4 -N 8000",
        "-t ext4 -b 1024 -O ^metadata_csum,^has_journal -N 8000",
        "-t ext3 -b 1024 -N 8000",
    ] {
        run(options, "48M", load);
    }
    for options in ["-t ext4 -O inline_data -I 512", "-t ext2 -b 1024 -O ^dir_index"] {
        run(options, "24M", Load { threads: 3, steps: 400, own: 60, listing: 1000 });
    }
}

#[test]
#[ignore = "ten million operations: some minutes with --release"]
fn ten_million_operations_in_one_directory_lose_nothing() {
    let start = Instant::now();
    let load = Load { threads: 8, steps: 1_250_000, own: 40_000, listing: 100_000 };
    let done = run("-t ext4 -b 1024 -O large_dir -N 500000", "1G", load);
    println!(
        "{done} operations by {} threads in {:.0?}: nothing lost, e2fsck clean",
        load.threads,
        start.elapsed()
    );
}
