//! The benchmark of single names, what a file system asks for most: a name in a directory is
//! entered, looked up, renamed and removed, in Dentree's cache and in the maps of crates.
//!
//! Each round makes every variant anew, in turn, and does the same with each. Names are looked up
//! in the order of the tree, at random, and a thousand of them again and again.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use dentree_dcache::{Child, Dcache, DentryRef, Walk, WalkOptions};
use dentree_sync::RwLock;
use hashbrown::HashMap;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use crate::harness::Timing;
use crate::outcome::{OURS, Outcome};
use crate::rivals::key::{Key, KeyRef};
use crate::rivals::{DashMap, LockedMap, Papaya, SccIndex, hasher};
use crate::rows::Heading;
use crate::tree::{NodeId, Shape, TINY, Tree};

/// The one map whose rename is a single step for readers, as ours is.
const LOCKED: &str = "rwlock-hashmap";
const BUDGET_PER_ENTRY: usize = 400;
const BUDGET_MIN: usize = 64 << 20;
/// Names that are looked up again and again, and how often.
const HOT: (usize, usize) = (1_000, 1_000);

/// The size of the work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Trees, whose leaves are the names, and rounds of each variant with each number of threads.
    pub shapes: &'static [(Shape, usize)],
}

/// The benchmark's size: one million names and ten.
pub const FULL: Size = Size {
    shapes: &[
        (Shape { name: "1M", fans: &[10, 10, 10, 10, 100] }, 5),
        (Shape { name: "10M", fans: &[10, 10, 10, 100, 100] }, 2),
    ],
};
/// The smallest size, for tests.
pub const SMALL: Size = Size { shapes: &[(TINY, 2)] };

/// A map of names that can be asked for one at a time.
trait Names: Sync {
    fn insert(&self, parent: NodeId, name: &[u8], node: NodeId);
    fn step(&self, parent: NodeId, name: &[u8]) -> Option<NodeId>;
    fn remove(&self, parent: NodeId, name: &[u8]);
    fn rename(&self, parent: NodeId, (from, to): (&[u8], &[u8]), node: NodeId) {
        self.remove(parent, from);
        self.insert(parent, to, node);
    }
}

impl Names for LockedMap {
    fn insert(&self, parent: NodeId, name: &[u8], node: NodeId) {
        self.map.write().insert(Key::new(parent, name), node);
    }

    fn step(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.map.read().get(&KeyRef { parent, name }).copied()
    }

    fn remove(&self, parent: NodeId, name: &[u8]) {
        self.map.write().remove(&KeyRef { parent, name });
    }

    fn rename(&self, parent: NodeId, (from, to): (&[u8], &[u8]), node: NodeId) {
        let mut map = self.map.write();
        map.remove(&KeyRef { parent, name: from });
        map.insert(Key::new(parent, to), node);
    }
}

impl Names for Papaya {
    fn insert(&self, parent: NodeId, name: &[u8], node: NodeId) {
        self.map.pin().insert(Key::new(parent, name), node);
    }

    fn step(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.map.pin().get(&KeyRef { parent, name }).copied()
    }

    fn remove(&self, parent: NodeId, name: &[u8]) {
        self.map.pin().remove(&KeyRef { parent, name });
    }
}

impl Names for SccIndex {
    fn insert(&self, parent: NodeId, name: &[u8], node: NodeId) {
        self.map.insert_sync(Key::new(parent, name), node).expect("a name stands once in a directory");
    }

    fn step(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.map.peek_with(&KeyRef { parent, name }, |_, node| *node)
    }

    fn remove(&self, parent: NodeId, name: &[u8]) {
        self.map.remove_sync(&KeyRef { parent, name });
    }
}

impl Names for DashMap {
    fn insert(&self, parent: NodeId, name: &[u8], node: NodeId) {
        self.map.insert(Key::new(parent, name), node);
    }

    fn step(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.get(KeyRef { parent, name })
    }

    fn remove(&self, parent: NodeId, name: &[u8]) {
        self.map.remove(&Key::new(parent, name));
    }
}

/// Dentree's cache, whose directories the caller holds, as a FUSE server and `vfs` do.
struct Ours<'c> {
    cache: &'c Dcache<NodeId>,
    directories: Vec<DentryRef<'c, NodeId>>,
}

impl Names for Ours<'_> {
    fn insert(&self, parent: NodeId, name: &[u8], node: NodeId) {
        self.cache.create(&self.directories[parent.index()], name, Child::other(node));
    }

    fn step(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let dir = &self.directories[parent.index()];
        match self.cache.find(dir, name, WalkOptions::default(), |_| true) {
            Walk::Found(seen) => Some(seen.handle),
            _ => None,
        }
    }

    fn remove(&self, parent: NodeId, name: &[u8]) {
        self.cache.unlink(&self.directories[parent.index()], name);
    }

    fn rename(&self, parent: NodeId, (from, to): (&[u8], &[u8]), _: NodeId) {
        let dir = &self.directories[parent.index()];
        self.cache.rename(dir, from, dir, to);
    }
}

fn with_ours(tree: &Tree, visit: &mut dyn FnMut(&dyn Names)) {
    let memory = BUDGET_MIN + tree.len() * BUDGET_PER_ENTRY;
    let cache = Dcache::builder().memory(memory).seed(0x5eed).build(Child::directory(NodeId::ROOT));
    let mut directories = vec![cache.root()];
    for (node, parent, name) in tree.entries().take_while(|(node, ..)| tree.is_directory(*node)) {
        directories.push(cache.create(&directories[parent.index()], name, Child::directory(node)));
    }
    visit(&Ours { cache: &cache, directories });
}

/// A variant: makes an empty map of a tree's names and shows it.
type Variant = (&'static str, fn(&Tree, &mut dyn FnMut(&dyn Names)));

const VARIANTS: [Variant; 5] = [
    (OURS, with_ours),
    (LOCKED, |_, visit| visit(&LockedMap { map: RwLock::new(HashMap::with_hasher(hasher())) })),
    ("papaya", |_, visit| visit(&Papaya { map: papaya::HashMap::with_hasher(hasher()) })),
    ("scc", |_, visit| visit(&SccIndex { map: scc::HashIndex::with_hasher(hasher()) })),
    ("dashmap", |_, visit| visit(&DashMap { map: dashmap::DashMap::with_hasher(hasher()) })),
];

/// The names of a tree in the orders in which they are asked for.
struct Load {
    tree: Tree,
    in_order: Vec<NodeId>,
    random: Vec<NodeId>,
    hot: Vec<NodeId>,
    renamed: Vec<(NodeId, Vec<u8>)>,
}

impl Load {
    fn new(shape: Shape) -> Load {
        let tree = Tree::generate(shape, 7);
        let in_order: Vec<NodeId> = tree.leaves().map(NodeId).collect();
        let mut random = in_order.clone();
        random.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(20_02));
        let few = &random[..HOT.0.min(random.len())];
        let hot = few.iter().copied().cycle().take(few.len() * HOT.1).collect();
        let tenth = &random[..random.len() / 10];
        let renamed = tenth.iter().map(|&node| (node, [tree.name(node), b"+"].concat())).collect();
        Load { in_order, random, hot, renamed, tree }
    }

    /// Nanoseconds a name of each operation, as one thread sees them.
    fn run(&self, names: &dyn Names, threads: usize) -> Vec<(&'static str, f64)> {
        let of = |node: NodeId| (self.tree.parent(node), self.tree.name(node));
        let insert = |&node: &NodeId| names.insert(of(node).0, of(node).1, node);
        let step = |&node: &NodeId| {
            assert_eq!(black_box(names.step(of(node).0, of(node).1)), Some(node), "a name that was entered");
        };
        let remove = |&node: &NodeId| names.remove(of(node).0, of(node).1);
        let rename = |(node, to): &(NodeId, Vec<u8>)| names.rename(of(*node).0, (of(*node).1, to), *node);
        let back = |(node, to): &(NodeId, Vec<u8>)| names.rename(of(*node).0, (to, of(*node).1), *node);
        let figures = vec![
            ("insert", time(threads, &self.in_order, insert)),
            ("step-in-order", time(threads, &self.in_order, step)),
            ("step-random", time(threads, &self.random, step)),
            ("step-hot", time(threads, &self.hot, step)),
            ("rename", time(threads, &self.renamed, rename)),
        ];
        time(threads, &self.renamed, back);
        let removed = time(threads, &self.random, remove);
        let is_gone = |&node: &NodeId| names.step(of(node).0, of(node).1).is_none();
        assert!(self.random.iter().all(is_gone), "a name that was removed");
        figures.into_iter().chain([("remove", removed)]).collect()
    }
}

/// Does this with each of the things, each thread with its share; nanoseconds per thing and thread.
fn time<T: Sync>(threads: usize, things: &[T], work: impl Fn(&T) + Sync) -> f64 {
    let (barrier, work) = (&Barrier::new(threads + 1), &work);
    let begun = std::thread::scope(|scope| {
        for share in things.chunks(things.len().div_ceil(threads)) {
            scope.spawn(move || {
                barrier.wait();
                share.iter().for_each(work);
            });
        }
        barrier.wait();
        Instant::now()
    });
    begun.elapsed().as_nanos() as f64 * threads as f64 / things.len() as f64
}

/// Runs the benchmark.
pub fn run(size: Size, progress: &dyn Fn(&str)) -> Outcome {
    let mut outcome = Outcome::default();
    for &(shape, rounds) in size.shapes {
        let load = Load::new(shape);
        for threads in [1, 2] {
            let mut timings: Vec<(&str, Vec<Timing>)> = Vec::new();
            for round in 0..rounds {
                for turn in 0..VARIANTS.len() {
                    let at = (round + turn) % VARIANTS.len();
                    let (name, with) = VARIANTS[at];
                    progress(&format!("{}, {threads} threads, round {}: {name}", shape.name, round + 1));
                    with(&load.tree, &mut |names| {
                        for (case, figure) in load.run(names, threads) {
                            add(&mut timings, case, at, figure);
                        }
                    });
                }
            }
            timings.iter().for_each(|(case, timings)| {
                report(&format!("{case}-{}", shape.name), threads, timings, &mut outcome);
            });
        }
    }
    outcome
}

fn add(timings: &mut Vec<(&'static str, Vec<Timing>)>, case: &'static str, variant: usize, figure: f64) {
    let at = timings.iter().position(|(name, _)| *name == case).unwrap_or_else(|| {
        let of = |&(name, _): &Variant| Timing { name, rounds: Vec::new() };
        timings.push((case, VARIANTS.iter().map(of).collect()));
        timings.len() - 1
    });
    timings[at].1[variant].rounds.push(figure);
}

fn report(case: &str, threads: usize, timings: &[Timing], outcome: &mut Outcome) {
    for timing in timings {
        let heading = Heading { case, variant: timing.name, threads, metric: "ns/name", unit: "ns" };
        outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
    }
    let Some((ours, theirs)) = timings.split_first() else { return };
    // A rename that readers can see half done is no rival.
    let is_rival = |theirs: &&Timing| theirs.name == LOCKED || !case.starts_with("rename");
    theirs.iter().filter(is_rival).for_each(|theirs| outcome.compare(case, threads, ours, theirs, Some(1.0)));
}
