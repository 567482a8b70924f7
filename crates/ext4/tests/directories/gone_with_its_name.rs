//! An unused inode is freed with its last link; one in use keeps its content until its release.

use crate::common::Image;
use crate::tree::{KINDS, Node, Tree, check};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Node as Inner, Options};
use dentree_vfs::{Durability, Error, FileSystem, NewInode, NewKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn new(kind: NewKind<'_>) -> NewInode<'_> {
    NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] }
}

/// The inode is freed in any case.
fn is_freed_at_once(fs: &Ext4, root: &Inner, kind: NewKind<'_>, prepare: impl FnOnce(&Inner)) -> bool {
    let is_dir = kind == NewKind::Directory;
    let node = fs.create(root, b"victim", &new(kind)).unwrap();
    prepare(&node);
    let gone = fs.unlink_and_free(root, b"victim", &node).unwrap();
    assert_eq!(fs.lookup(root, b"victim").unwrap().is_none(), gone);
    if !gone {
        let unlinked =
            if is_dir { fs.rmdir(root, b"victim", &node) } else { fs.unlink(root, b"victim", &node) };
        unlinked.unwrap();
        fs.evict(&node);
    }
    gone
}

#[test]
fn an_unused_inode_without_map_blocks_is_freed_with_its_last_link() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |_| ());
        let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
        let writable = Options { writable: true, ..Options::default() };
        let fs = Ext4::open(Arc::new(device), writable).unwrap();
        let root = fs.load(fs.root()).unwrap();
        let free = fs.statfs().unwrap();
        let has_extents = options.contains("ext4");

        assert!(is_freed_at_once(&fs, &root, NewKind::Regular, |_| ()), "{options}: an empty file");
        assert!(is_freed_at_once(&fs, &root, NewKind::Symlink(b"target"), |_| ()), "{options}: a link");
        let write = |node: &Inner, at| assert_eq!(fs.write(node, at, &[7; 9000]).unwrap(), 9000);
        assert!(
            is_freed_at_once(&fs, &root, NewKind::Regular, |node| write(node, 0)),
            "{options}: bytes in memory"
        );
        let store = |node: &Inner, runs: u64| {
            (0..runs).for_each(|run| write(node, run * 50_000));
            fs.fsync(node, Durability::Full).unwrap();
        };
        let stored = |runs| is_freed_at_once(&fs, &root, NewKind::Regular, |node| store(node, runs));
        assert_eq!(stored(4), has_extents, "{options}: bytes on the device");
        assert!(!stored(5), "{options}: a file with a tree of extents");
        let is_inline = options.contains("inline_data");
        let dir = is_freed_at_once(&fs, &root, NewKind::Directory, |_| ());
        assert_eq!(dir, has_extents || is_inline, "{options}: a directory");
        let link = |node: &Inner| fs.link(&root, b"other", node).unwrap();
        let node = fs.create(&root, b"victim", &new(NewKind::Regular)).unwrap();
        link(&node);
        assert!(!fs.unlink_and_free(&root, b"victim", &node).unwrap(), "{options}: it has two names");
        fs.unlink(&root, b"victim", &node).unwrap();
        assert!(fs.unlink_and_free(&root, b"other", &node).unwrap(), "{options}: it has one name");

        let dir = fs.create(&root, b"victim", &new(NewKind::Directory)).unwrap();
        let inside = fs.create(&dir, b"inside", &new(NewKind::Fifo)).unwrap();
        assert!(matches!(fs.unlink_and_free(&root, b"victim", &dir), Err(Error::NotEmpty) | Ok(false)));
        fs.unlink(&dir, b"inside", &inside).unwrap();
        fs.evict(&inside);
        fs.rmdir(&root, b"victim", &dir).unwrap();
        fs.evict(&dir);

        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap(), free, "{options}");
        drop(root);
        fs.close().unwrap();
        check(&image, options);
    }
}

const NAMES: u64 = 5;
const THREADS: u64 = 4;
const STEPS: u64 = 3000;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

struct Held {
    node: Node,
    says: Option<u64>,
}

struct Worker<'a> {
    tree: &'a Tree,
    dir: Node,
    next: &'a AtomicU64,
    random: Random,
    held: Vec<Held>,
}

impl Worker<'_> {
    fn step(&mut self) -> Result<()> {
        let name = format!("name {}", self.random.below(NAMES));
        let (name, vfs, who) = (name.as_bytes(), &self.tree.vfs, &self.tree.who);
        match self.random.below(12) {
            0..3 => {
                let made = vfs.create(who, &self.dir, name, NewKind::Regular, 0o644)?;
                let says = self.next.fetch_add(1, Relaxed);
                let words = usize::try_from(1 + self.random.below(2000)).unwrap();
                let bytes = says.to_le_bytes().repeat(words);
                assert_eq!(vfs.write(who, &made, 0, &bytes)?, bytes.len());
                self.held.push(Held { node: made, says: Some(says) });
            }
            3 => drop(vfs.create(who, &self.dir, name, NewKind::Directory, 0o755)?),
            4..6 => vfs.unlink(who, &self.dir, name)?,
            6 => vfs.rmdir(who, &self.dir, name)?,
            7 => {
                let node = vfs.unlink_and_hold(who, &self.dir, name)?;
                self.held.push(Held { node, says: None });
            }
            8 => {
                let node = vfs.lookup(who, &self.dir, name)?.ok_or(Error::NotFound)?;
                let other = format!("name {}", self.random.below(NAMES));
                vfs.link(who, &node, &self.dir, other.as_bytes())?;
            }
            9 => {
                // Look up and release at once.
                let node = vfs.lookup(who, &self.dir, name)?.ok_or(Error::NotFound)?;
                assert_eq!(node.attr().ino, node.ino());
            }
            _ => {
                let node = vfs.lookup(who, &self.dir, name)?.ok_or(Error::NotFound)?;
                self.held.push(Held { node, says: None });
            }
        }
        Ok(())
    }

    fn read(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let which = usize::try_from(self.random.below(self.held.len() as u64)).unwrap();
        let Held { node, says } = &mut self.held[which];
        if !node.is_dir() {
            let mut bytes = vec![0; 16_000];
            let len = self.tree.vfs.read(node, 0, &mut bytes).unwrap();
            let words = bytes[..len].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            for word in words {
                assert_eq!(*says.get_or_insert(word), word, "inode {}", node.ino());
            }
        }
        if self.held.len() > 6 {
            self.held.swap_remove(which);
        }
    }
}

#[test]
fn files_in_use_survive_removal_and_the_others_leave_nothing() {
    for (options, size) in [KINDS[0], KINDS[1], KINDS[5], KINDS[8]] {
        let image = Image::new(options, size, |_| ());
        let tree = Tree::open(&image);
        let dir = tree.dir("shared");
        drop(tree.file(&format!("shared/{}", "lasting".repeat(30))));
        tree.vfs.fs().sync().unwrap();
        let free = tree.free();
        let next = AtomicU64::new(1);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (tree, dir, next) = (&tree, dir.clone(), &next);
                scope.spawn(move || {
                    let random = Random(thread * 7919 + 1);
                    let mut worker = Worker { tree, dir, next, random, held: Vec::new() };
                    for _ in 0..STEPS {
                        if let Err(error) = worker.step() {
                            let is_expected = matches!(
                                error,
                                Error::Exists
                                    | Error::NotFound
                                    | Error::IsADirectory
                                    | Error::NotADirectory
                                    | Error::NotPermitted
                            );
                            assert!(is_expected, "{options}: {error}");
                        }
                        worker.read();
                    }
                });
            }
        });
        for number in 0..NAMES {
            let name = format!("name {number}");
            match tree.vfs.lookup(&tree.who, &dir, name.as_bytes()).unwrap().map(|node| node.is_dir()) {
                Some(true) => tree.rmdir(&dir, &name),
                Some(false) => tree.unlink(&dir, &name),
                None => {}
            }
        }
        assert_eq!(tree.vfs.stats().inodes.unhashed, 0, "{options}");
        tree.vfs.fs().sync().unwrap();
        assert_eq!(tree.free(), free, "{options}");
        drop(dir);
        tree.close();
        check(&image, options);
    }
}
