//! Random operations against a map from names to inodes.

use std::collections::{HashMap, HashSet};

use dentree_lab::schemes::{Dentry, LAYOUTS, Path, SCHEMES, Scheme};
use proptest::prelude::*;

use crate::{assert_nothing_leaked, inode, name, small};

const DIRECTORIES: usize = 4;
const NAMES: usize = 12;

#[derive(Clone, Copy, Debug)]
enum Op {
    Create { dir: usize, name: usize, inode: u64 },
    Negative { dir: usize, name: usize },
    Lookup { dir: usize, name: usize },
    Hold { dir: usize, name: usize },
    Drop { which: usize },
    Delete { dir: usize, name: usize },
    Rename { dir: usize, name: usize, new_dir: usize, new_name: usize },
    Prune { wanted: usize },
    SelectParent { dir: usize },
    Aliases { inode: u64 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (dir, name) = (|| 0..DIRECTORIES, || 0..NAMES);
    let op = prop_oneof![
        6 => (dir(), name(), 100_u64..108).prop_map(|(dir, name, inode)| Op::Create { dir, name, inode }),
        2 => (dir(), name()).prop_map(|(dir, name)| Op::Negative { dir, name }),
        8 => (dir(), name()).prop_map(|(dir, name)| Op::Lookup { dir, name }),
        3 => (dir(), name()).prop_map(|(dir, name)| Op::Hold { dir, name }),
        3 => (0_usize..8).prop_map(|which| Op::Drop { which }),
        4 => (dir(), name()).prop_map(|(dir, name)| Op::Delete { dir, name }),
        4 => (dir(), name(), dir(), name())
            .prop_map(|(dir, name, new_dir, new_name)| Op::Rename { dir, name, new_dir, new_name }),
        2 => (0_usize..6).prop_map(|wanted| Op::Prune { wanted }),
        1 => dir().prop_map(|dir| Op::SelectParent { dir }),
        2 => (100_u64..108).prop_map(|inode| Op::Aliases { inode }),
    ];
    prop::collection::vec(op, 1..120)
}

/// A file system of four directories (the root, two in it, one in the first of them), whose truth
/// is a map, and a cache that may evict but must not err.
struct Model<'a> {
    cache: &'a dyn Scheme,
    dirs: Vec<Dentry>,
    truth: HashMap<(usize, usize), u64>,
    /// Names that must be cached: used since the last pruning.
    certain: HashSet<(usize, usize)>,
    held: Vec<Held>,
}

/// A held entry, its name, if it has one, and its inode.
type Held = (Dentry, Option<(usize, usize)>, u64);

impl<'a> Model<'a> {
    fn new(cache: &'a dyn Scheme) -> Self {
        let mut dirs = vec![Dentry::ROOT];
        for (parent, number) in [(0, 2), (0, 3), (1, 4)] {
            let dir = cache.create(dirs[parent], format!("dir{number}").as_bytes(), Some(inode(number)));
            dirs.push(dir.expect("room"));
        }
        Self { cache, dirs, truth: HashMap::new(), certain: HashSet::new(), held: Vec::new() }
    }

    /// The entry, checked against the truth.
    fn lookup(&self, at: (usize, usize)) -> Option<Dentry> {
        let found = self.cache.lookup(self.dirs[at.0], name(at.1).as_bytes());
        match found {
            Some(dentry) => {
                let found = self.cache.inode(dentry);
                assert_eq!(found, self.truth.get(&at).map(|number| inode(*number)), "{at:?} leads elsewhere");
            }
            None => assert!(!self.certain.contains(&at), "{at:?} was forgotten"),
        }
        found
    }

    /// Whether the entry of this name is held, besides by the operation's caller.
    fn is_held(&self, at: (usize, usize)) -> bool {
        self.held.iter().any(|(_, name, _)| *name == Some(at))
    }

    fn forget_unheld(&mut self) {
        let held: HashSet<_> = self.held.iter().filter_map(|(_, name, _)| *name).collect();
        self.certain.retain(|at| held.contains(at));
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Create { dir, name: number, inode: wanted } => {
                let at = (dir, number);
                let expected = *self.truth.entry(at).or_insert(wanted);
                let dentry =
                    self.cache.create(self.dirs[dir], name(number).as_bytes(), Some(inode(expected)));
                let dentry = dentry.expect("room");
                assert_eq!(self.cache.inode(dentry), Some(inode(expected)));
                self.cache.dput(dentry);
                self.certain.insert(at);
            }
            Op::Negative { dir, name: number } => {
                let at = (dir, number);
                if !self.truth.contains_key(&at) {
                    let dentry =
                        self.cache.create(self.dirs[dir], name(number).as_bytes(), None).expect("room");
                    assert_eq!(self.cache.inode(dentry), None);
                    self.cache.dput(dentry);
                    self.certain.insert(at);
                }
            }
            Op::Lookup { dir, name } => {
                if let Some(dentry) = self.lookup((dir, name)) {
                    self.cache.dput(dentry);
                }
            }
            Op::Hold { dir, name } => {
                let found = self.lookup((dir, name));
                if let (Some(dentry), Some(number)) = (found, self.truth.get(&(dir, name))) {
                    self.cache.dget(dentry);
                    self.cache.dput(dentry);
                    self.held.push((dentry, Some((dir, name)), *number));
                } else {
                    found.into_iter().for_each(|dentry| self.cache.dput(dentry));
                }
            }
            Op::Drop { which } => {
                if which < self.held.len() {
                    let (dentry, _, number) = self.held.swap_remove(which);
                    assert_eq!(
                        self.cache.inode(dentry),
                        Some(inode(number)),
                        "a held entry changed its inode"
                    );
                    self.cache.dput(dentry);
                }
            }
            Op::Delete { dir, name } => self.delete((dir, name)),
            Op::Rename { dir, name, new_dir, new_name } => self.rename((dir, name), (new_dir, new_name)),
            Op::Prune { wanted } => {
                let before = self.cache.usage().on_lru;
                let pruned = self.cache.prune(wanted);
                assert!(
                    pruned < wanted + self.cache.prune_batch() && pruned <= before,
                    "{pruned} of {wanted}, {before} on the list"
                );
                if pruned > 0 {
                    self.forget_unheld();
                }
            }
            Op::SelectParent { dir } => self.select_parent(dir),
            Op::Aliases { inode: number } => self.aliases(number),
        }
    }

    fn delete(&mut self, at: (usize, usize)) {
        let Some(dentry) = self.lookup(at) else { return };
        if self.truth.remove(&at).is_some() {
            let held = self.is_held(at);
            self.cache.delete(dentry);
            assert_eq!(self.cache.inode(dentry).is_some(), held, "it keeps its inode while it is held");
            self.certain.remove(&at);
            for (_, name, _) in self.held.iter_mut().filter(|(_, name, _)| *name == Some(at)) {
                *name = None;
            }
        }
        self.cache.dput(dentry);
        if let Some(dentry) = self.lookup(at) {
            self.cache.dput(dentry);
        }
    }

    fn rename(&mut self, from: (usize, usize), to: (usize, usize)) {
        let Some(dentry) = self.lookup(from) else { return };
        if let (Some(number), true) = (self.truth.get(&from).copied(), from != to) {
            self.cache.rename(dentry, self.dirs[to.0], name(to.1).as_bytes());
            self.truth.remove(&from);
            self.truth.insert(to, number);
            self.certain.remove(&from);
            self.certain.insert(to);
            for (_, name, _) in &mut self.held {
                match *name {
                    Some(at) if at == to => *name = None,
                    Some(at) if at == from => *name = Some(to),
                    _ => {}
                }
            }
        }
        self.cache.dput(dentry);
        for at in [from, to] {
            if let Some(dentry) = self.lookup(at) {
                self.cache.dput(dentry);
            }
        }
    }

    fn select_parent(&mut self, dir: usize) {
        self.cache.select_parent(self.dirs[dir]);
        self.forget_unheld();
        let below: &[usize] = [&[0, 1, 2, 3][..], &[1, 3], &[2], &[3]][dir];
        for at in below.iter().flat_map(|dir| (0..NAMES).map(|name| (*dir, name))) {
            if let Some(dentry) = self.lookup(at) {
                assert!(self.is_held(at), "{at:?} is unused and was not freed");
                self.cache.dput(dentry);
            }
        }
    }

    fn aliases(&mut self, number: u64) {
        if !self.cache.keeps_aliases() {
            return;
        }
        let found = self.cache.aliases(inode(number));
        for dentry in &found {
            assert_eq!(self.cache.inode(*dentry), Some(inode(number)));
        }
        let named: Vec<_> =
            self.truth.iter().filter(|(_, inode)| **inode == number).map(|(at, _)| *at).collect();
        let certain = named.iter().filter(|at| self.certain.contains(at)).count();
        assert!(
            (certain..=named.len()).contains(&found.len()),
            "{} aliases of {certain} to {}",
            found.len(),
            named.len()
        );
        found.into_iter().for_each(|dentry| self.cache.dput(dentry));
    }

    fn end(self) {
        self.held.iter().for_each(|(dentry, ..)| self.cache.dput(*dentry));
        self.dirs[1..].iter().for_each(|dentry| self.cache.dput(*dentry));
    }
}

/// Walks find exactly what lookups of every component find.
fn assert_walks(cache: &dyn Scheme) {
    let parts = |path: &'static str| path.split('/').map(str::as_bytes).collect::<Vec<_>>();
    let walk = |path| {
        let walked = cache.walk(Path::new(&parts(path), path.as_bytes()));
        let found = (walked.depth, cache.inode(walked.dentry).map(|inode| inode.0.get()));
        cache.dput(walked.dentry);
        found
    };
    let usr = cache.create(Dentry::ROOT, b"usr", Some(inode(2))).expect("room");
    let bin = cache.create(usr, b"bin", Some(inode(3))).expect("room");
    let gone = cache.create(bin, b"gone", None).expect("room");
    assert_eq!(walk("usr/bin"), (2, Some(3)));
    assert_eq!(walk("usr/bin/gone"), (3, None));
    assert_eq!(walk("usr/bin/gone/below"), (3, None));
    assert_eq!(walk("usr/bin/unknown/below"), (2, Some(3)));
    assert_eq!(walk("unknown"), (0, Some(1)));
    cache.rename(bin, Dentry::ROOT, b"sbin");
    assert!([(1, Some(2)), (2, None)].contains(&walk("usr/bin")), "not there, or known not to be");
    assert_eq!(walk("sbin/gone"), (2, None));
    [usr, bin, gone].into_iter().for_each(|dentry| cache.dput(dentry));
    assert_eq!(walk("sbin/gone"), (2, None));
}

#[test]
fn walks_go_as_far_as_the_cache_does() {
    for scheme in SCHEMES.into_iter().chain(LAYOUTS) {
        println!("{}", scheme.name);
        let cache = (scheme.build)(small(64));
        assert_walks(&*cache);
        assert_nothing_leaked(&*cache, scheme.name);
    }
}

#[test]
fn a_full_cache_makes_room_by_pruning_and_says_when_it_cannot() {
    for scheme in SCHEMES.into_iter().chain(LAYOUTS) {
        let cache = (scheme.build)(small(16));
        for number in 0..84 {
            let dentry =
                cache.create(Dentry::ROOT, name(number).as_bytes(), Some(inode(7))).expect(scheme.name);
            cache.dput(dentry);
        }
        let held: Vec<_> =
            (84..100).map_while(|n| cache.create(Dentry::ROOT, name(n).as_bytes(), Some(inode(7)))).collect();
        assert_eq!(held.len(), 15, "{}: all but the root's place", scheme.name);
        held.into_iter().for_each(|dentry| cache.dput(dentry));
        assert_nothing_leaked(&*cache, scheme.name);
    }
}

#[test]
fn the_entries_looked_up_last_are_pruned_last() {
    for scheme in SCHEMES {
        let cache = (scheme.build)(small(256));
        for number in 0..96 {
            cache.dput(cache.create(Dentry::ROOT, name(number).as_bytes(), Some(inode(7))).expect("room"));
        }
        let used = |number: usize| {
            cache.lookup(Dentry::ROOT, name(number).as_bytes()).map(|dentry| cache.dput(dentry)).is_some()
        };
        let prune = || {
            let pruned = cache.prune(8);
            assert!((8..8 + cache.prune_batch()).contains(&pruned), "{}: {pruned}", scheme.name);
        };
        // Some schemes treat new entries as used; after a pruning they do not.
        prune();
        let late: Vec<_> = (0..96).rev().filter(|number| used(*number)).take(2).collect();
        prune();
        assert!(late.iter().all(|number| used(*number)), "{}: {late:?}", scheme.name);
        assert_nothing_leaked(&*cache, scheme.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_agree_with_a_map(ops in ops()) {
        for scheme in SCHEMES {
            let cache = (scheme.build)(small(256));
            let mut model = Model::new(&*cache);
            println!("{}", scheme.name);
            for op in &ops {
                model.apply(*op);
            }
            model.end();
            assert_nothing_leaked(&*cache, scheme.name);
        }
    }
}
