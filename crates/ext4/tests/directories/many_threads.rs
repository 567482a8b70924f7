//! Random operations by several threads, in own directories and a shared one, as in memory.

use crate::common::{Image, compare};
use crate::tree::{KINDS, Node, Tree, check};
use dentree_vfs::{Error, NewKind, OnExisting, ReaddirStart, Result};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const THREADS: u64 = 3;
const STEPS: usize = 1500;

/// An entry of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    /// Links share this identity.
    File(u64),
    Dir(BTreeMap<String, Thing>),
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(end).unwrap()).unwrap()
    }
}

struct Worker<'a> {
    tree: &'a Tree,
    random: Random,
    dirs: Vec<(Node, BTreeMap<String, Thing>)>,
    next: u64,
}

impl Worker<'_> {
    fn name(&mut self) -> String {
        let n = self.random.below(60);
        format!("{n:x>width$}", width = 1 + (n * 37) % 200)
    }

    fn step(&mut self) {
        let (a, b) = (self.random.below(self.dirs.len()), self.random.below(self.dirs.len()));
        let (name, other) = (self.name(), self.name());
        match self.random.below(10) {
            0..=3 => self.make(a, name),
            4 => self.make_dir(a, name),
            5 => self.remove(a, &name),
            6 => self.link(a, &name, b, other),
            _ => self.rename(a, &name, b, other),
        }
    }

    fn make(&mut self, at: usize, name: String) {
        let (node, model) = &mut self.dirs[at];
        let made = self.tree.vfs.create(&self.tree.who, node, name.as_bytes(), NewKind::Regular, 0o644);
        match made {
            Ok(_) => {
                self.next += 1;
                assert!(model.insert(name, Thing::File(self.next)).is_none());
            }
            Err(error) => assert!(matches!(error, Error::Exists) && model.contains_key(&name), "{error}"),
        }
    }

    fn make_dir(&mut self, at: usize, name: String) {
        let (node, model) = &mut self.dirs[at];
        let made = self.tree.vfs.create(&self.tree.who, node, name.as_bytes(), NewKind::Directory, 0o755);
        match made {
            Ok(_) => assert!(model.insert(name, Thing::Dir(BTreeMap::new())).is_none()),
            Err(error) => assert!(matches!(error, Error::Exists) && model.contains_key(&name), "{error}"),
        }
    }

    fn remove(&mut self, at: usize, name: &str) {
        let (node, model) = &mut self.dirs[at];
        let removed: Result<_> = match model.get(name) {
            Some(Thing::Dir(_)) => self.tree.vfs.rmdir(&self.tree.who, node, name.as_bytes()),
            _ => self.tree.vfs.unlink(&self.tree.who, node, name.as_bytes()),
        };
        assert_eq!(removed.is_ok(), model.remove(name).is_some());
    }

    fn link(&mut self, from: usize, old: &str, to: usize, new: String) {
        let Some(Thing::File(file)) = self.dirs[from].1.get(old).cloned() else { return };
        let node = self.tree.vfs.lookup(&self.tree.who, &self.dirs[from].0, old.as_bytes()).unwrap().unwrap();
        let (dir, model) = &mut self.dirs[to];
        match self.tree.vfs.link(&self.tree.who, &node, dir, new.as_bytes()) {
            Ok(()) => assert!(model.insert(new, Thing::File(file)).is_none()),
            Err(error) => assert!(matches!(error, Error::Exists) && model.contains_key(&new), "{error}"),
        }
    }

    fn rename(&mut self, from: usize, old: &str, to: usize, new: String) {
        let exchange = self.random.below(3) == 0;
        let how = if exchange { OnExisting::Exchange } else { OnExisting::Replace };
        let (old_dir, new_dir) = (&self.dirs[from].0, &self.dirs[to].0);
        let renamed =
            self.tree.vfs.rename(&self.tree.who, old_dir, old.as_bytes(), new_dir, new.as_bytes(), how);
        let moved = self.dirs[from].1.get(old).cloned();
        let target = self.dirs[to].1.get(&new).cloned();
        let (Some(moved), Ok(_)) = (&moved, &renamed) else {
            let kinds = |thing: &Option<Thing>| thing.as_ref().map(|t| matches!(t, Thing::Dir(_)));
            let refused = moved.is_none()
                || exchange && target.is_none()
                || target.is_some() && kinds(&moved) != kinds(&target);
            assert!(refused, "{:?}", renamed.err());
            return;
        };
        if Some(moved) == target.as_ref() && matches!(moved, Thing::File(_)) || from == to && old == new {
            return;
        }
        match target.filter(|_| exchange) {
            Some(target) => self.dirs[from].1.insert(old.to_owned(), target),
            None => self.dirs[from].1.remove(old),
        };
        self.dirs[to].1.insert(new, moved.clone());
    }

    fn verify(&self) {
        for (node, model) in &self.dirs {
            let mut names = Vec::new();
            let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
                names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                ControlFlow::Continue(())
            };
            self.tree.vfs.readdir(&self.tree.who, node, ReaddirStart::First, each).unwrap();
            names.sort();
            assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
            for name in model.keys() {
                assert!(self.tree.vfs.lookup(&self.tree.who, node, name.as_bytes()).unwrap().is_some());
            }
        }
    }
}

#[test]
fn threads_in_own_directories_match_a_tree_in_memory() {
    for (seed, (options, _)) in (1..).zip(KINDS) {
        let image = Image::new(options, "32M", |_| ());
        let tree = Tree::open(&image);
        let free = tree.free();
        let shared = tree.dir("shared");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (tree, shared) = (&tree, &shared);
                scope.spawn(move || {
                    let dirs =
                        (0..3).map(|n| (tree.dir(&format!("{thread}/{n}")), BTreeMap::new())).collect();
                    let random = Random(seed * 1000 + thread);
                    let mut worker = Worker { tree, random, dirs, next: 0 };
                    for step in 0..STEPS {
                        worker.step();
                        if step % 10 == 0 {
                            tree.make(shared, &format!("{thread} at {step}"), NewKind::Fifo);
                        }
                    }
                    worker.verify();
                });
            }
        });
        drop(shared);
        assert_eq!(tree.names("shared").len(), usize::try_from(THREADS).unwrap() * STEPS / 10);
        tree.close();
        check(&image, options);
        if let Some(mount) = image.mount() {
            compare(&image.open(), mount.path());
        }
        remove_all(&image, free);
    }
}

/// The space is free again.
fn remove_all(image: &Image, free: (u64, u64)) {
    let tree = Tree::open(image);
    for name in tree.names("/").into_iter().filter(|name| name != "lost+found") {
        remove_below(&tree, &tree.at(&name));
        tree.rmdir(&tree.root(), &name);
    }
    assert_eq!(tree.free(), free);
    tree.close();
    check(image, "emptied");
}

fn remove_below(tree: &Tree, dir: &Node) {
    let mut names = Vec::new();
    let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    };
    tree.vfs.readdir(&tree.who, dir, ReaddirStart::First, each).unwrap();
    for name in names {
        let node = tree.vfs.lookup(&tree.who, dir, name.as_bytes()).unwrap().unwrap();
        if node.attr().is_dir() {
            remove_below(tree, &node);
            drop(node);
            tree.rmdir(dir, &name);
        } else {
            drop(node);
            tree.unlink(dir, &name);
        }
    }
}
