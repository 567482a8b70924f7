//! Threads change one tree: no deadlock, no inode lost or evicted twice, and the caches agree with
//! the file system.

mod common;

use common::tree;
use dentree_vfs::*;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};

/// Checks guarantees of `Vfs`: one node per inode, evicted or freed once.
struct Watched {
    fs: MemoryFs,
    alive: Mutex<HashSet<Ino>>,
    born: AtomicU64,
    evicted: AtomicU64,
    freed: AtomicU64,
}

impl Watched {
    fn new() -> Self {
        let alive = Mutex::default();
        let [born, evicted, freed] = [0; 3].map(AtomicU64::new);
        Watched { fs: MemoryFs::default(), alive, born, evicted, freed }
    }

    fn born(&self, node: &Arc<MemoryNode>) {
        let ino = self.fs.attr(node).ino;
        assert!(self.alive.lock().unwrap().insert(ino), "a second node of inode {ino}");
        self.born.fetch_add(1, Relaxed);
    }
}

impl FileSystem for Watched {
    type Node = Arc<MemoryNode>;

    fn root(&self) -> Ino {
        self.fs.root()
    }
    fn load(&self, ino: Ino) -> Result<Self::Node> {
        let node = self.fs.load(ino)?;
        self.born(&node);
        Ok(node)
    }
    fn node_bytes(&self, node: &Self::Node) -> usize {
        self.fs.node_bytes(node)
    }
    fn attr(&self, node: &Self::Node) -> Attr {
        self.fs.attr(node)
    }
    fn lookup(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<Lookup>> {
        self.fs.lookup(dir, name)
    }
    fn readdir(
        &self,
        dir: &Self::Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.fs.readdir(dir, start, each)
    }
    fn parent(&self, dir: &Self::Node) -> Result<Ino> {
        self.fs.parent(dir)
    }
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(node, offset, buf)
    }
    fn extent(&self, node: &Self::Node, offset: u64) -> Result<Extent> {
        self.fs.extent(node, offset)
    }
    fn readlink(&self, node: &Self::Node) -> Result<Vec<u8>> {
        self.fs.readlink(node)
    }
    fn getxattr(&self, node: &Self::Node, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.fs.getxattr(node, name)
    }
    fn listxattr(&self, node: &Self::Node) -> Result<Vec<Vec<u8>>> {
        self.fs.listxattr(node)
    }
    fn statfs(&self) -> Result<FsStat> {
        self.fs.statfs()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn create(&self, dir: &Self::Node, name: &[u8], new: &NewInode<'_>) -> Result<Self::Node> {
        assert!(self.fs.lookup(dir, name)?.is_none(), "the name is there");
        let node = self.fs.create(dir, name, new)?;
        // A node under eviction with this number is counted already.
        self.born(&node);
        Ok(node)
    }
    fn create_unnamed(&self, dir: &Self::Node, new: &NewInode<'_>) -> Result<Self::Node> {
        let node = self.fs.create_unnamed(dir, new)?;
        self.born(&node);
        Ok(node)
    }
    fn link(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        assert!(self.fs.lookup(dir, name)?.is_none(), "the name is there");
        self.fs.link(dir, name, node)
    }
    fn unlink(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        assert_eq!(self.fs.lookup(dir, name)?.unwrap().ino, self.fs.attr(node).ino);
        self.fs.unlink(dir, name, node)
    }
    fn rmdir(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<()> {
        assert_eq!(self.fs.lookup(dir, name)?.unwrap().ino, self.fs.attr(node).ino);
        self.fs.rmdir(dir, name, node)
    }
    fn unlink_and_free(&self, dir: &Self::Node, name: &[u8], node: &Self::Node) -> Result<bool> {
        let ino = self.fs.attr(node).ino;
        assert_eq!(self.fs.lookup(dir, name)?.unwrap().ino, ino);
        // As if it took several steps.
        if self.born.load(Relaxed).is_multiple_of(8) {
            return Ok(false);
        }
        // Before the number can be reused.
        assert!(self.alive.lock().unwrap().remove(&ino), "inode {ino} is freed twice");
        match self.fs.unlink_and_free(dir, name, node) {
            Ok(true) => {
                self.freed.fetch_add(1, Relaxed);
                Ok(true)
            }
            other => {
                self.alive.lock().unwrap().insert(ino);
                other
            }
        }
    }
    fn rename(&self, rename: &Rename<'_, Self::Node>) -> Result<()> {
        let ino = |name: &NameIn<'_, Self::Node>| {
            self.fs.lookup(name.dir, name.name).unwrap().map(|found| found.ino)
        };
        assert_eq!(ino(&rename.from), Some(self.fs.attr(rename.moved).ino));
        assert_eq!(ino(&rename.to), rename.replaced.map(|replaced| self.fs.attr(replaced).ino));
        self.fs.rename(rename)
    }
    fn set_attr(&self, node: &Self::Node, changes: &SetAttr) -> Result<()> {
        self.fs.set_attr(node, changes)
    }
    fn evict(&self, node: &Self::Node) {
        let ino = self.fs.attr(node).ino;
        assert!(self.alive.lock().unwrap().remove(&ino), "inode {ino} is evicted twice");
        self.evicted.fetch_add(1, Relaxed);
        self.fs.evict(node);
    }
}

/// Pseudorandom.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn path(&mut self) -> String {
        let parts: Vec<String> = (0..=self.below(3)).map(|_| format!("{}", self.below(4))).collect();
        parts.join("/")
    }
}

/// The result depends on the other threads.
fn step(
    vfs: &Vfs<Watched>,
    caller: &Identity,
    random: &mut Random,
    held: &mut Vec<Arc<Inode<Watched>>>,
) -> Result<()> {
    let (a, b) = (random.path(), random.path());
    let root = vfs.root();
    match random.below(14) {
        0..3 => {
            let at = vfs.walk_parent(caller, root, a.as_bytes())?;
            held.push(vfs.create(caller, &at.dir, at.name, NewKind::Directory, 0o755)?);
        }
        3..5 => {
            let at = vfs.walk_parent(caller, root, a.as_bytes())?;
            held.push(vfs.open_or_create(caller, &at.dir, at.name, 0o644)?.0);
        }
        5 => {
            let at = vfs.walk_parent(caller, root, a.as_bytes())?;
            match random.below(2) {
                0 => vfs.unlink(caller, &at.dir, at.name)?,
                _ => held.push(vfs.unlink_and_hold(caller, &at.dir, at.name)?),
            }
        }
        6 => {
            let at = vfs.walk_parent(caller, root, a.as_bytes())?;
            match random.below(2) {
                0 => vfs.rmdir(caller, &at.dir, at.name)?,
                _ => held.push(vfs.rmdir_and_hold(caller, &at.dir, at.name)?),
            }
        }
        7..10 => {
            let from = vfs.walk_parent(caller, root, a.as_bytes())?;
            let to = vfs.walk_parent(caller, root, b.as_bytes())?;
            let how = [OnExisting::Replace, OnExisting::Fail, OnExisting::Exchange][random.below(3) as usize];
            held.extend(vfs.rename(caller, &from.dir, from.name, &to.dir, to.name, how)?);
        }
        10 => {
            let inode = vfs.walk(caller, root, a.as_bytes(), WalkOptions::KEEP_LINK)?;
            let to = vfs.walk_parent(caller, root, b.as_bytes())?;
            vfs.link(caller, &inode, &to.dir, to.name)?;
        }
        11 => {
            let inode = vfs.walk(caller, root, a.as_bytes(), WalkOptions::KEEP_LINK)?;
            let mode = if random.below(2) == 0 { 0o755 } else { 0o700 };
            vfs.set_attr(caller, &inode, &SetAttr { permissions: Some(mode), ..SetAttr::default() })?;
        }
        12 => {
            let dir = vfs.walk(caller, root, a.as_bytes(), WalkOptions::FOLLOW)?;
            vfs.readdir(caller, &dir, ReaddirStart::First, &mut |entry| {
                assert_eq!(vfs.inode(entry.ino).unwrap().ino(), entry.ino);
                ControlFlow::Continue(())
            })?;
        }
        _ => {
            if let Some(inode) = held.last() {
                // With or without a name.
                assert!(Arc::ptr_eq(&vfs.inode(inode.ino())?, inode));
            }
        }
    }
    Ok(())
}

/// Other threads can cause it.
fn is_expected(error: &Error) -> bool {
    !matches!(error, Error::Stale | Error::Corrupt(_) | Error::Io(_) | Error::AccessDenied)
}

fn run(budgets: Budgets, threads: u64, steps: usize) {
    let vfs = Vfs::with_budgets(Watched::new(), budgets).unwrap();
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (vfs, barrier) = (&vfs, &barrier);
            scope.spawn(move || {
                let (caller, mut random) = (Identity::Superuser, Random(thread * 7919 + 12_345));
                let mut held = Vec::new();
                barrier.wait();
                for _ in 0..steps {
                    if let Err(error) = step(vfs, &caller, &mut random, &mut held) {
                        assert!(is_expected(&error), "{error:?}");
                    }
                    if held.len() > 8 {
                        held.remove(random.below(8) as usize);
                    }
                }
            });
        }
    });
    assert_eq!(vfs.stats().inodes.unhashed, 0, "nobody holds an inode");
    // As the caches have it, and as the file system has it.
    let cached = tree::of_vfs(&vfs);
    let watched = vfs.into_fs().expect("nobody holds an inode");
    let [born, evicted, freed] = [&watched.born, &watched.evicted, &watched.freed].map(|n| n.load(Relaxed));
    assert_eq!(born, evicted + freed, "each node is evicted or freed once");
    assert!(freed > 0, "none was freed with its name");
    let inodes = watched.fs.statfs().unwrap();
    let afresh = Vfs::new(watched.fs).unwrap();
    assert_eq!(tree::of_vfs(&afresh), cached);
    assert_eq!(inodes.inodes - inodes.inodes_free, tree::inodes(&cached), "no inode without a name is left");
}

#[test]
fn small_caches_agree_with_the_file_system_after_concurrent_changes() {
    run(Budgets { names: 0, inodes: 1500 }, 4, 20_000);
}

#[test]
fn large_caches_agree_with_the_file_system_after_concurrent_changes() {
    run(Budgets::default(), 4, 20_000);
}

#[test]
fn an_unnamed_file_can_be_linked_once_and_is_freed_with_its_last_reference() {
    let vfs = Vfs::new(MemoryFs::default()).unwrap();
    let (caller, root) = (Identity::Superuser, vfs.root().clone());
    let free = vfs.statfs().unwrap();
    drop(vfs.create_unnamed(&caller, &root, 0o600).unwrap());
    assert_eq!(vfs.statfs().unwrap(), free);
    let file = vfs.create_unnamed(&caller, &root, 0o600).unwrap();
    vfs.write(&caller, &file, 0, b"content").unwrap();
    assert!(Arc::ptr_eq(&vfs.inode(file.ino()).unwrap(), &file));
    vfs.link(&caller, &file, &root, b"named").unwrap();
    drop(file);
    let file = vfs.lookup(&caller, &root, b"named").unwrap().unwrap();
    assert_eq!((file.attr().size, file.attr().nlink), (7, 1));
    vfs.unlink(&caller, &root, b"named").unwrap();
    // After its last name is removed, it cannot be linked.
    assert!(matches!(vfs.link(&caller, &file, &root, b"again"), Err(Error::NotFound)));
    drop(file);
    assert_eq!(vfs.statfs().unwrap(), free);
}

#[test]
fn a_removed_directory_has_no_names_and_accepts_none() {
    let vfs = Vfs::new(MemoryFs::default()).unwrap();
    let (caller, root) = (Identity::Superuser, vfs.root().clone());
    let dir = vfs.create(&caller, &root, b"d", NewKind::Directory, 0o755).unwrap();
    vfs.rmdir(&caller, &root, b"d").unwrap();
    assert!(vfs.lookup(&caller, &dir, b"x").unwrap().is_none());
    assert!(matches!(vfs.create(&caller, &dir, b"x", NewKind::Regular, 0o644), Err(Error::NotFound)));
    vfs.readdir(&caller, &dir, ReaddirStart::First, &mut |_| panic!("it has no entries")).unwrap();
    // The number is reused, and does not lead to the old directory.
    let ino = dir.ino();
    drop(dir);
    let file = vfs.create(&caller, &root, b"f", NewKind::Regular, 0o644).unwrap();
    assert_eq!((file.ino(), file.kind()), (ino, FileType::Regular));
    assert!(vfs.lookup(&caller, &root, b"d").unwrap().is_none());
}
