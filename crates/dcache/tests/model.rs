//! Random operations against a tree in a map: the cache and the tree give the same results.

use dentree_dcache::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

const ROOT: u64 = 1;

/// A minimal file system.
#[derive(Default)]
struct Disk {
    names: BTreeMap<(u64, Vec<u8>), (u64, Kind)>,
    inodes: u64,
}

impl Disk {
    fn get(&self, dir: u64, name: &[u8]) -> Option<(u64, Kind)> {
        self.names.get(&(dir, name.to_vec())).copied()
    }

    fn resolve(&self, path: &[Vec<u8>]) -> Option<(u64, Kind)> {
        path.iter().try_fold((ROOT, Kind::Directory), |(dir, _), name| self.get(dir, name))
    }

    fn is_empty(&self, dir: u64) -> bool {
        self.list(dir).next().is_none()
    }

    fn list(&self, dir: u64) -> impl Iterator<Item = (&[u8], u64, Kind)> {
        let range = self.names.range((dir, Vec::new())..(dir + 1, Vec::new()));
        range.map(|((_, name), &(inode, kind))| (&name[..], inode, kind))
    }

    fn is_below(&self, inode: u64, dir: u64) -> bool {
        inode == dir
            || self.list(dir).any(|(_, child, kind)| kind == Kind::Directory && self.is_below(inode, child))
    }
}

struct Both {
    disk: RefCell<Disk>,
    cache: Dcache<u64>,
}

fn child(inode: u64, kind: Kind) -> Child<u64> {
    Child { handle: inode, kind, search: !inode.is_multiple_of(3) }
}

fn join(path: &[Vec<u8>]) -> Vec<u8> {
    path.join(&b'/')
}

impl Both {
    /// Walks as a virtual file system does.
    fn walk(&self, path: &[Vec<u8>]) -> Option<DentryRef<'_, u64>> {
        let path = join(path);
        let (mut at, mut rest) = (self.cache.root(), 0);
        loop {
            let stopped = match self.cache.walk(&at, &path[rest..], WalkOptions::default(), |_| true) {
                Walk::Found(dentry) => return Some(dentry),
                Walk::Negative { .. } => return None,
                Walk::Stopped(stopped) => stopped,
            };
            match stopped.why {
                Reason::NotADirectory => return None,
                Reason::Miss => {}
                why => panic!("nothing to stop for: {why:?}"),
            }
            let name = path[rest + stopped.rest..].split(|&byte| byte == b'/').next().expect("a name");
            let fill = || {
                Ok::<_, Infallible>(match self.disk.borrow().get(*stopped.dir.handle(), name) {
                    // One file in seven is not cached.
                    Some((inode, Kind::Other)) if inode % 7 == 0 => {
                        Fill::NotCached(Some(child(inode, Kind::Other)))
                    }
                    Some((inode, kind)) => Fill::Positive(child(inode, kind)),
                    None => Fill::Negative,
                })
            };
            let Ok(found) = self.cache.lookup_or_fill(&stopped.dir, name, fill);
            rest += stopped.rest + name.len();
            at = found?;
            if rest < path.len() && at.kind() != Kind::Directory {
                return None;
            }
        }
    }

    fn directory(&self, path: &[Vec<u8>]) -> Option<DentryRef<'_, u64>> {
        self.walk(path).filter(|dentry| dentry.kind() == Kind::Directory)
    }

    fn apply(&self, op: &Op) {
        match op {
            Op::Create(path, kind) => self.create(path, *kind),
            Op::Unlink(path) => self.unlink(path),
            Op::Rename(from, to) => self.rename(from, to),
            Op::Exchange(a, b) => self.exchange(a, b),
            Op::Look(path) => {
                let found = self.walk(path).map(|dentry| (*dentry.handle(), dentry.kind()));
                assert_eq!(found, self.disk.borrow().resolve(path), "{path:?}");
            }
            Op::Invalidate(path) => {
                let (name, dir) = path.split_last().expect("not empty");
                if let Some(dir) = self.directory(dir) {
                    self.cache.invalidate(&dir, name);
                }
            }
            Op::PruneSubtree(path) => {
                if let Some(dir) = self.directory(path) {
                    self.cache.prune_subtree(&dir);
                }
            }
            Op::Complete(path) => self.complete(path),
            Op::Prune(n) => {
                self.cache.prune(*n);
            }
        }
    }

    /// Walks to everything below a directory.
    fn check_all(&self, path: &mut Vec<Vec<u8>>, dir: u64) {
        let disk = self.disk.borrow();
        for (name, inode, _) in disk.list(dir) {
            path.push(name.to_vec());
            assert_eq!(self.walk(path).map(|dentry| *dentry.handle()), Some(inode), "{path:?}");
            self.check_all(path, inode);
            path.pop();
        }
    }

    fn create(&self, path: &[Vec<u8>], kind: Kind) {
        let (name, dir) = path.split_last().expect("not empty");
        if self.disk.borrow().resolve(path).is_some() {
            return;
        }
        let inode = self.disk.borrow().inodes + 2;
        let created = self.directory(dir).map(|dir| {
            self.cache.create(&dir, name, child(inode, kind));
            *dir.handle()
        });
        if let Some(dir) = created {
            self.disk.borrow_mut().inodes += 1;
            self.disk.borrow_mut().names.insert((dir, name.clone()), (inode, kind));
        }
    }

    fn unlink(&self, path: &[Vec<u8>]) {
        let (name, dir) = path.split_last().expect("not empty");
        let Some((inode, _)) =
            self.disk.borrow().resolve(path).filter(|&(inode, _)| self.disk.borrow().is_empty(inode))
        else {
            return;
        };
        let dir = self.directory(dir).expect("it has an entry");
        assert_ne!(inode, *dir.handle());
        self.disk.borrow_mut().names.remove(&(*dir.handle(), name.clone()));
        self.cache.unlink(&dir, name);
    }

    fn rename(&self, from: &[Vec<u8>], to: &[Vec<u8>]) {
        let ((old, old_dir), (new, new_dir)) =
            (from.split_last().expect("not empty"), to.split_last().expect("not empty"));
        let (Some(moved), Some((new_parent, Kind::Directory))) =
            (self.disk.borrow().resolve(from), self.disk.borrow().resolve(new_dir))
        else {
            return;
        };
        let replaceable =
            self.disk.borrow().resolve(to).is_none_or(|(inode, _)| self.disk.borrow().is_empty(inode));
        if !replaceable
            || self.disk.borrow().is_below(new_parent, moved.0) && moved.1 == Kind::Directory
            || from == to
        {
            return;
        }
        let (old_parent, target) =
            (self.directory(old_dir).expect("there"), self.directory(new_dir).expect("there"));
        self.disk.borrow_mut().names.remove(&(*old_parent.handle(), old.clone()));
        self.disk.borrow_mut().names.insert((new_parent, new.clone()), moved);
        self.cache.rename(&old_parent, old, &target, new);
    }

    fn exchange(&self, a: &[Vec<u8>], b: &[Vec<u8>]) {
        let ((name_a, dir_a), (name_b, dir_b)) =
            (a.split_last().expect("not empty"), b.split_last().expect("not empty"));
        let (Some(inode_a), Some(inode_b)) = (self.disk.borrow().resolve(a), self.disk.borrow().resolve(b))
        else {
            return;
        };
        let (Some(parent_a), Some(parent_b)) = (self.directory(dir_a), self.directory(dir_b)) else { return };
        let circle = self.disk.borrow().is_below(*parent_a.handle(), inode_b.0)
            || self.disk.borrow().is_below(*parent_b.handle(), inode_a.0);
        if circle {
            return;
        }
        self.cache.exchange(&parent_a, name_a, &parent_b, name_b);
        self.disk.borrow_mut().names.insert((*parent_a.handle(), name_a.clone()), inode_b);
        self.disk.borrow_mut().names.insert((*parent_b.handle(), name_b.clone()), inode_a);
    }

    fn complete(&self, path: &[Vec<u8>]) {
        let Some(dir) = self.directory(path) else { return };
        let mut completion = self.cache.begin_complete(&dir);
        let disk = self.disk.borrow();
        for (name, inode, kind) in disk.list(*dir.handle()) {
            completion.enter(name, child(inode, kind));
        }
        if !completion.finish() {
            return;
        }
        assert!(dir.is_complete());
        for (name, inode, _) in disk.list(*dir.handle()) {
            let found = self.cache.lookup(&dir, name).flatten();
            assert_eq!(found.map(|found| *found.handle()), Some(inode), "{path:?} {name:?}");
        }
        assert_eq!(self.cache.lookup(&dir, b"no such name"), Some(None), "{path:?}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Create(Vec<Vec<u8>>, Kind),
    Unlink(Vec<Vec<u8>>),
    Rename(Vec<Vec<u8>>, Vec<Vec<u8>>),
    Exchange(Vec<Vec<u8>>, Vec<Vec<u8>>),
    Look(Vec<Vec<u8>>),
    Invalidate(Vec<Vec<u8>>),
    PruneSubtree(Vec<Vec<u8>>),
    Complete(Vec<Vec<u8>>),
    Prune(usize),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..4_u8).prop_map(|i| vec![b'a' + i]),
        1 => (15..18_usize).prop_map(|len| vec![b'm'; len]),
        1 => (31..35_usize).prop_map(|len| vec![b'l'; len]),
        1 => Just(vec![b'z'; 255]),
    ]
}

fn path(min: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(name(), min..5)
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![3 => Just(Kind::Directory), 1 => Just(Kind::Other)];
    prop_oneof![
        8 => (path(1), kind).prop_map(|(path, kind)| Op::Create(path, kind)),
        3 => path(1).prop_map(Op::Unlink),
        4 => (path(1), path(1)).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (path(1), path(1)).prop_map(|(a, b)| Op::Exchange(a, b)),
        8 => path(1).prop_map(Op::Look),
        1 => path(1).prop_map(Op::Invalidate),
        1 => path(0).prop_map(Op::PruneSubtree),
        2 => path(0).prop_map(Op::Complete),
        1 => (0..60_usize).prop_map(Op::Prune),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 2000 }))]

    #[test]
    fn the_cache_agrees_with_the_disk_after_any_operations(ops in prop::collection::vec(op(), 1..150)) {
        let cache = Dcache::builder().seed(7).negatives(20).build(Child::directory(ROOT));
        let both = Both { disk: RefCell::default(), cache };
        for op in &ops {
            both.apply(op);
        }
        both.check_all(&mut Vec::new(), ROOT);
        let stats = both.cache.stats();
        prop_assert_eq!(stats.held, 0);
        prop_assert!(stats.negatives <= 20);
    }
}
