//! Models of `lock.rs` in every interleaving: `RUSTFLAGS="--cfg loom" cargo test --release -p
//! dentree-ext4 --lib models`. A directory of two levels; blocks are versions behind mutexes. Locks
//! and search loop are the real ones; steps have the order of `split_leaf_for` and
//! `insert_index_entry`.

use super::lock::DirectoryLocks;
use super::lookup::search_until_stable;
use dentree_ext4_format::{InodeNumber, LogicalBlock};
use loom::sync::{Arc, Mutex};
use loom::thread;

const DIR: InodeNumber = InodeNumber(12);

/// An index has the least name of each child.
#[derive(Clone, PartialEq, Debug)]
enum Block {
    Leaf(Vec<u32>),
    Index(Vec<(u32, usize)>),
}

struct Directory {
    locks: DirectoryLocks,
    /// Root first. A free block is an empty leaf.
    blocks: Vec<Mutex<Arc<Block>>>,
    size: Mutex<usize>,
}

impl Directory {
    fn new(blocks: Vec<Block>, spare: usize) -> Arc<Directory> {
        let size = Mutex::new(blocks.len());
        let spare = std::iter::repeat_n(Block::Leaf(Vec::new()), spare);
        let blocks = blocks.into_iter().chain(spare).map(|block| Mutex::new(Arc::new(block))).collect();
        Arc::new(Directory { locks: DirectoryLocks::new(), blocks, size })
    }

    fn read(&self, at: usize) -> Arc<Block> {
        Arc::clone(&self.blocks[at].lock().unwrap())
    }

    fn write(&self, at: usize, block: Block) {
        *self.blocks[at].lock().unwrap() = Arc::new(block);
    }

    fn size(&self) -> usize {
        *self.size.lock().unwrap()
    }

    /// `None` past the size read before.
    fn path(&self, name: u32) -> Option<Vec<usize>> {
        let size = self.size();
        let mut path = vec![0];
        loop {
            let at = *path.last().unwrap();
            match &*self.read(at) {
                Block::Leaf(_) if at == 0 => unreachable!("the root is an index"),
                Block::Leaf(_) => return Some(path),
                Block::Index(entries) => {
                    let &(_, child) = entries.iter().rev().find(|&&(from, _)| from <= name).unwrap();
                    path.push(child);
                }
            }
            if *path.last().unwrap() >= size {
                return None;
            }
        }
    }

    fn leaf(&self, name: u32) -> usize {
        loop {
            // The snapshot may be stale.
            if let Some(path) = self.path(name) {
                return *path.last().unwrap();
            }
            thread::yield_now();
        }
    }

    fn has(&self, name: u32) -> bool {
        let search = |&leaf: &usize| match &*self.read(leaf) {
            Block::Leaf(names) => Ok::<_, ()>(names.contains(&name).then_some(())),
            Block::Index(_) => unreachable!("a leaf stays one"),
        };
        let moved = |&leaf: &usize| {
            let now = self.leaf(name);
            Ok((now != leaf).then_some(now))
        };
        search_until_stable(self.leaf(name), search, moved).unwrap().is_some()
    }

    fn names(&self, leaf: usize) -> Vec<u32> {
        let Block::Leaf(names) = &*self.read(leaf) else { unreachable!("a leaf stays one") };
        names.clone()
    }

    /// A leaf has room for two.
    fn add(&self, name: u32) {
        let _tree = self.locks.share_tree(DIR);
        loop {
            let leaf = self.leaf(name);
            let _leaf = self.locks.leaf(DIR, LogicalBlock(u32::try_from(leaf).unwrap()));
            if self.leaf(name) != leaf {
                continue;
            }
            let mut names = self.names(leaf);
            names.push(name);
            names.sort_unstable();
            if names.len() <= 2 {
                self.write(leaf, Block::Leaf(names));
                return;
            }
            let _growth = self.locks.growth(DIR);
            let high = names.split_off(2);
            self.grow(leaf, names, high);
            return;
        }
    }

    /// Writes from right to left.
    fn grow(&self, leaf: usize, low: Vec<u32>, high: Vec<u32>) {
        let first = high[0];
        let path = self.path(first).expect("the size is current under the growth lock");
        let new = self.take(Block::Leaf(high));
        self.enter(path[path.len() - 2], first, new);
        self.write(leaf, Block::Leaf(low));
    }

    fn take(&self, block: Block) -> usize {
        let new = self.size();
        self.write(new, block);
        *self.size.lock().unwrap() += 1;
        new
    }

    fn enter(&self, parent: usize, first: u32, new: usize) {
        let Block::Index(entries) = &*self.read(parent) else { unreachable!("a parent is an index") };
        let mut entries = entries.clone();
        entries.push((first, new));
        entries.sort_unstable();
        self.write(parent, Block::Index(entries));
    }

    fn split_index(&self, at: usize) {
        let _tree = self.locks.tree_alone(DIR);
        let Block::Index(entries) = &*self.read(at) else { unreachable!("it is an index block") };
        let (low, high) = entries.split_at(entries.len() / 2);
        let new = self.take(Block::Index(high.to_vec()));
        self.enter(0, high[0].0, new);
        self.write(at, Block::Index(low.to_vec()));
    }
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn two_leaves() -> Arc<Directory> {
    let index = Block::Index(vec![(0, 1), (50, 2)]);
    Directory::new(vec![index, Block::Leaf(vec![10, 20]), Block::Leaf(vec![50, 60])], 2)
}

#[test]
fn models_a_name_is_found_while_its_leaf_is_split() {
    model(|| {
        let directory = two_leaves();
        let writer = Arc::clone(&directory);
        let thread = thread::spawn(move || writer.add(15));
        assert!(directory.has(20) && directory.has(10) && !directory.has(11));
        thread.join().unwrap();
        assert!([10, 15, 20, 50, 60].into_iter().all(|name| directory.has(name)));
    });
}

#[test]
fn models_two_that_add_to_one_leaf_or_to_two_lose_nothing() {
    for other in [17, 55] {
        model(move || {
            let directory = two_leaves();
            let writer = Arc::clone(&directory);
            let thread = thread::spawn(move || writer.add(15));
            directory.add(other);
            thread.join().unwrap();
            let all = [10, 15, 20, 50, 60, other];
            assert!(all.into_iter().all(|name| directory.has(name)), "{other}");
        });
    }
}

#[test]
fn models_names_are_found_while_an_index_block_above_them_is_split() {
    model(|| {
        let blocks = vec![
            Block::Index(vec![(0, 1)]),
            Block::Index(vec![(0, 2), (50, 3)]),
            Block::Leaf(vec![10, 20]),
            Block::Leaf(vec![50, 60]),
        ];
        let directory = Directory::new(blocks, 2);
        let writer = Arc::clone(&directory);
        let thread = thread::spawn(move || {
            writer.split_index(1);
            writer.add(55);
        });
        assert!(directory.has(60) && directory.has(10) && !directory.has(11));
        thread.join().unwrap();
        assert!([10, 20, 50, 55, 60].into_iter().all(|name| directory.has(name)));
    });
}
