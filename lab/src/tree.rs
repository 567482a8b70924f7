//! Trees to walk: realistic names, shapes of known size, the same on every machine.

use std::collections::HashSet;
use std::ops::Range;

use foldhash::fast::FixedState;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A node of a [`Tree`]: 0 is the root, the others follow breadth first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root of every tree.
    pub const ROOT: Self = Self(0);

    /// The index into arrays with one element per node.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The longest name that [`Tree::generate`] makes, in bytes.
pub const LONGEST_NAME: usize = 40;

/// Entries, besides the shape's, that rename loads move; see [`Tree::movers`].
pub const MOVERS: usize = 64;

/// The number of children per level, from the root down.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Name for cases and messages.
    pub name: &'static str,
    /// Children of each node, by level.
    pub fans: &'static [u32],
}

/// 5,031 entries, six components, twelve to a directory at the bottom: fits the first caches.
pub const HOT: Shape = Shape { name: "hot", fans: &[1, 2, 2, 8, 12, 12] };
/// 101,802 entries, six components: fits the last-level cache.
pub const WARM: Shape = Shape { name: "warm", fans: &[3, 3, 6, 12, 12, 12] };
/// 2,985,983 entries, six components, twelve to a directory: far larger than any cache.
pub const COLD: Shape = Shape { name: "cold", fans: &[11, 12, 12, 12, 12, 12] };
/// 100,002 entries in 16,667 chains: no two paths share a component, so only the root is cached.
pub const DEEP: Shape = Shape { name: "deep", fans: &[16_667, 1, 1, 1, 1, 1] };
/// 212,088 entries in 10,489 directories: the tree of `find`.
pub const FIND: Shape = Shape { name: "find", fans: &[8, 10, 10, 12, 21] };
/// 258 entries, for tests.
pub const TINY: Shape = Shape { name: "tiny", fans: &[2, 2, 3, 3, 2, 2] };

impl Shape {
    /// Entries without root and movers.
    pub fn entries(&self) -> usize {
        let mut level = 1;
        self.fans
            .iter()
            .map(|&fan| {
                level *= fan as usize;
                level
            })
            .sum()
    }
}

/// A directory tree in a few flat arrays.
#[derive(Clone, Debug)]
pub struct Tree {
    parents: Vec<u32>,
    names: Vec<Range<u32>>,
    text: Vec<u8>,
    leaves: Range<u32>,
}

impl Tree {
    /// Makes the tree of a shape, the same for the same seed.
    pub fn generate(shape: Shape, seed: u64) -> Self {
        let mut maker = Maker::new(seed);
        let mut level = 0..1;
        for (depth, &fan) in shape.fans.iter().enumerate() {
            let leaf = depth + 1 == shape.fans.len();
            let first = maker.tree.next_id();
            for parent in level {
                maker.children(parent, fan, leaf);
            }
            level = first..maker.tree.next_id();
        }
        maker.tree.leaves = level;
        maker.movers();
        maker.tree
    }

    /// The number of entries, with the movers, without the root.
    pub fn len(&self) -> usize {
        self.parents.len() - 1
    }

    /// Whether the root is the only node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last level, which paths lead to.
    pub fn leaves(&self) -> Range<u32> {
        self.leaves.clone()
    }

    /// The entries that rename loads move: files of the lowest directories that no walk leads to.
    pub fn movers(&self) -> Range<u32> {
        self.leaves.end..self.next_id()
    }

    /// The directory of a node.
    pub fn parent(&self, node: NodeId) -> NodeId {
        NodeId(self.parents[node.index()])
    }

    /// The last component of a node's path.
    pub fn name(&self, node: NodeId) -> &[u8] {
        let range = &self.names[node.index()];
        &self.text[range.start as usize..range.end as usize]
    }

    /// Whether the node is a directory.
    pub fn is_directory(&self, node: NodeId) -> bool {
        node.0 < self.leaves.start
    }

    /// Every entry, parents before children: node, its directory, its name.
    pub fn entries(&self) -> impl Iterator<Item = (NodeId, NodeId, &[u8])> {
        (1..self.next_id()).map(NodeId).map(|node| (node, self.parent(node), self.name(node)))
    }

    /// Appends the path of a node, without a leading slash.
    pub fn push_path(&self, node: NodeId, out: &mut Vec<u8>) {
        if node == NodeId::ROOT {
            return;
        }
        let parent = self.parent(node);
        if parent != NodeId::ROOT {
            self.push_path(parent, out);
            out.push(b'/');
        }
        out.extend_from_slice(self.name(node));
    }

    /// Moves a node to another directory and name. The name must be free there.
    pub fn rename(&mut self, node: NodeId, parent: NodeId, name: &[u8]) {
        self.parents[node.index()] = parent.0;
        self.names[node.index()] = self.push_name(name);
    }

    fn next_id(&self) -> u32 {
        u32::try_from(self.parents.len()).expect("trees have fewer than 2^32 nodes")
    }

    fn push_name(&mut self, name: &[u8]) -> Range<u32> {
        let offset = |len: usize| u32::try_from(len).expect("names of a tree fit 4 GiB");
        let start = offset(self.text.len());
        self.text.extend_from_slice(name);
        start..offset(self.text.len())
    }

    fn push(&mut self, parent: u32, name: &[u8]) {
        let name = self.push_name(name);
        self.parents.push(parent);
        self.names.push(name);
    }
}

const WORDS: [&str; 48] = [
    "lib", "src", "include", "linux", "net", "core", "test", "main", "util", "config", "driver", "module",
    "cache", "index", "data", "server", "client", "common", "image", "python", "perl", "share", "doc",
    "locale", "icon", "theme", "module", "kernel", "crypto", "video", "sound", "block", "inode", "super",
    "bitmap", "stream", "buffer", "parser", "format", "device", "system", "network", "session", "account",
    "message", "widget", "window", "service",
];
const DIRECTORY_TAILS: [&str; 6] = ["", "", "", ".d", "-dev", "-1.2"];
const FILE_TAILS: [&str; 12] =
    [".h", ".c", ".rs", ".txt", ".so.1", ".png", ".html", ".py", ".json", ".svg", "", ".conf"];

struct Maker {
    tree: Tree,
    rng: Xoshiro256PlusPlus,
    name: Vec<u8>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self {
            tree: Tree {
                parents: vec![NodeId::ROOT.0],
                names: vec![Range::default()],
                text: Vec::new(),
                leaves: 0..0,
            },
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            name: Vec::new(),
        }
    }

    fn children(&mut self, parent: u32, fan: u32, leaf: bool) {
        // A new set per directory: clearing one that a large directory has grown costs its size
        // each time.
        let mut taken = HashSet::with_hasher(FixedState::default());
        for _ in 0..fan {
            loop {
                self.make_name(leaf);
                if taken.insert(self.name.clone()) {
                    break;
                }
            }
            self.tree.push(parent, &self.name);
        }
    }

    /// One to three words, often a number, an ending: 10 bytes in the median, sometimes 40.
    fn make_name(&mut self, leaf: bool) {
        self.name.clear();
        let words = [1, 1, 1, 2, 2, 3][self.rng.random_range(0..6)];
        for at in 0..words {
            if at > 0 {
                self.name.push(b"_-"[self.rng.random_range(0..2)]);
            }
            self.name.extend_from_slice(WORDS[self.rng.random_range(0..WORDS.len())].as_bytes());
        }
        if self.rng.random_ratio(2, 3) {
            let number: u32 = self.rng.random_range(0..100_000);
            self.name.extend_from_slice(number.to_string().as_bytes());
        }
        if self.rng.random_ratio(1, 200) {
            while self.name.len() < 34 {
                self.name.extend_from_slice(b"-generated");
            }
        }
        let tail = if leaf {
            FILE_TAILS[self.rng.random_range(0..FILE_TAILS.len())]
        } else {
            DIRECTORY_TAILS[self.rng.random_range(0..DIRECTORY_TAILS.len())]
        };
        self.name.truncate(LONGEST_NAME - tail.len());
        self.name.extend_from_slice(tail.as_bytes());
    }

    fn movers(&mut self) {
        let leaves = self.tree.leaves();
        for at in 0..MOVERS {
            let beside = NodeId(self.rng.random_range(leaves.clone()));
            let parent = self.tree.parent(beside).0;
            self.tree.push(parent, format!("mover{at}.part").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_sizes_that_their_names_promise() {
        assert_eq!(HOT.entries(), 5_031);
        assert_eq!(WARM.entries(), 101_802);
        assert_eq!(COLD.entries(), 2_985_983);
        assert_eq!(DEEP.entries(), 100_002);
        assert_eq!(FIND.entries(), 212_088);
    }

    #[test]
    fn names_are_unique_in_their_directory_and_fit() {
        let tree = Tree::generate(HOT, 7);
        let mut seen = HashSet::new();
        for (_, parent, name) in tree.entries() {
            assert!((1..=LONGEST_NAME).contains(&name.len()));
            assert!(!name.contains(&b'/'));
            assert!(seen.insert((parent, name)), "{:?} twice", String::from_utf8_lossy(name));
        }
        assert_eq!(seen.len(), HOT.entries() + MOVERS);
        assert!(seen.iter().any(|(_, name)| name.len() > 32), "some names are longer than a record holds");
    }

    #[test]
    fn equal_seeds_give_equal_trees() {
        let (a, b, c) = (Tree::generate(TINY, 1), Tree::generate(TINY, 1), Tree::generate(TINY, 2));
        assert!(a.entries().eq(b.entries()));
        assert!(!a.entries().eq(c.entries()));
    }

    #[test]
    fn a_renamed_directory_takes_its_paths_along() {
        let mut tree = Tree::generate(TINY, 1);
        tree.rename(NodeId(1), NodeId::ROOT, b"moved");
        let mut path = Vec::new();
        tree.push_path(NodeId(tree.leaves().start), &mut path);
        assert!(path.starts_with(b"moved/"));
        assert_eq!(path.split(|&b| b == b'/').count(), 6);
    }
}
