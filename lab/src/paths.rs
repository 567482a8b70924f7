//! Paths to walk, prepared in advance: every variant walks the same bytes in the same order.

use std::ffi::CStr;

use rand::distr::Distribution;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;

use crate::tree::{NodeId, Tree};

/// The choice of the leaves to walk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every leaf with the same probability.
    Uniform,
    /// The k-th most popular leaf with weight k^−0.99; popular leaves are scattered over the tree.
    Zipf,
}

impl Pattern {
    /// Name for cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        }
    }
}

/// The last component of each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An existing file.
    Present,
    /// A missing name in an existing directory: a file's name and `.lock`, as tools probe for.
    Missing,
}

/// One path, without a leading slash, as bytes and as a C string.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    with_nul: &'a [u8],
}

impl<'a> Path<'a> {
    /// From bytes with one NUL, at the end.
    pub fn from_bytes_with_nul(with_nul: &'a [u8]) -> Self {
        debug_assert!(CStr::from_bytes_with_nul(with_nul).is_ok());
        Self { with_nul }
    }

    /// The path without the NUL.
    pub fn bytes(self) -> &'a [u8] {
        &self.with_nul[..self.with_nul.len() - 1]
    }

    /// The path for a system call.
    pub fn c_str(self) -> &'a CStr {
        CStr::from_bytes_with_nul(self.with_nul).unwrap_or_default()
    }

    /// The components, first to last.
    #[inline]
    pub fn components(self) -> Components<'a> {
        Components { bytes: self.bytes(), start: 0 }
    }
}

/// Splits a path eight bytes at a time. Byte by byte, and by `memchr_iter`, the split takes most of
/// a map's walk.
#[derive(Clone, Debug)]
pub struct Components<'a> {
    bytes: &'a [u8],
    /// One beyond the end after the last component.
    start: usize,
}

impl<'a> Iterator for Components<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.start..)?;
        let len = until_slash(rest);
        self.start += len + 1;
        Some(&rest[..len])
    }
}

#[inline]
fn until_slash(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);
    let (words, tail) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // A byte that equals a slash leaves its highest bit; the lowest such bit is a true one.
        let differs = u64::from_le_bytes(*word) ^ SLASHES;
        let equal = differs.wrapping_sub(ONES) & !differs & HIGHS;
        if equal != 0 {
            return 8 * at + equal.trailing_zeros() as usize / 8;
        }
    }
    let beyond = tail.iter().position(|&byte| byte == b'/').unwrap_or(tail.len());
    8 * words.len() + beyond
}

/// Many paths in one buffer, each with the node that a walk must find.
#[derive(Clone, Debug, Default)]
pub struct PathSet {
    text: Vec<u8>,
    ends: Vec<usize>,
    targets: Vec<Option<NodeId>>,
}

impl PathSet {
    /// Draws `count` paths from a tree, the same for the same arguments.
    pub fn draw(tree: &Tree, pattern: Pattern, ending: Ending, count: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut chooser = Chooser::new(tree, pattern);
        let mut set = Self::default();
        for _ in 0..count {
            let leaf = chooser.next(&mut rng);
            tree.push_path(leaf, &mut set.text);
            let target = match ending {
                Ending::Present => Some(leaf),
                Ending::Missing => {
                    set.text.extend_from_slice(b".lock");
                    None
                }
            };
            set.text.push(0);
            set.ends.push(set.text.len());
            set.targets.push(target);
        }
        set
    }

    /// The number of paths.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no paths.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The path at an index below [`len`](Self::len).
    pub fn path(&self, at: usize) -> Path<'_> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Path { with_nul: &self.text[start..self.ends[at]] }
    }

    /// The node that a walk of the path at an index must find; `None` if it must find nothing.
    pub fn target(&self, at: usize) -> Option<NodeId> {
        self.targets[at]
    }
}

/// Chooses leaves by a pattern.
struct Chooser {
    first: u32,
    leaves: u32,
    zipf: Option<Zipf<f64>>,
}

impl Chooser {
    fn new(tree: &Tree, pattern: Pattern) -> Self {
        let range = tree.leaves();
        let leaves = range.end - range.start;
        let zipf = match pattern {
            Pattern::Uniform => None,
            Pattern::Zipf => Zipf::new(f64::from(leaves), 0.99).ok(),
        };
        Self { first: range.start, leaves, zipf }
    }

    fn next(&mut self, rng: &mut Xoshiro256PlusPlus) -> NodeId {
        let at = match &self.zipf {
            None => rng.random_range(0..self.leaves),
            Some(zipf) => self.scatter(zipf.sample(rng) as u64 - 1),
        };
        NodeId(self.first + at)
    }

    /// Spreads ranks over the leaves: a multiplier coprime to their number makes a permutation.
    fn scatter(&self, rank: u64) -> u32 {
        const PRIME: u64 = 2_654_435_761;
        let at = rank.wrapping_mul(PRIME) % u64::from(self.leaves);
        u32::try_from(at).unwrap_or(0)
    }
}

/// A rename of an entry that no walk leads to.
#[derive(Clone, Debug)]
pub struct Rename {
    /// The entry; it keeps its identity.
    pub node: NodeId,
    /// The old directory.
    pub from_parent: NodeId,
    /// The new directory.
    pub to_parent: NodeId,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Rename {
    /// Renames a node in `tree`, and returns the rename for the caches under test.
    pub fn apply(tree: &mut Tree, node: NodeId, to_parent: NodeId, to_name: &[u8]) -> Self {
        let from_parent = tree.parent(node);
        let path = |tree: &Tree| {
            let mut path = Vec::new();
            tree.push_path(node, &mut path);
            path.push(0);
            path
        };
        let from = path(tree);
        tree.rename(node, to_parent, to_name);
        Self { node, from_parent, to_parent, from, to: path(tree) }
    }

    /// The path before.
    pub fn from(&self) -> Path<'_> {
        Path { with_nul: &self.from }
    }

    /// The path afterwards.
    pub fn to(&self) -> Path<'_> {
        Path { with_nul: &self.to }
    }

    /// The last component before.
    pub fn from_name(&self) -> &[u8] {
        last_component(self.from())
    }

    /// The last component afterwards.
    pub fn to_name(&self) -> &[u8] {
        last_component(self.to())
    }
}

fn last_component(path: Path<'_>) -> &[u8] {
    path.bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Renames of a tree's movers: each step gives a thread's next mover another directory and a new
/// name.
#[derive(Debug)]
pub struct RenameLoad {
    rng: Xoshiro256PlusPlus,
    step: u32,
}

impl RenameLoad {
    /// A load with its own random numbers.
    pub fn new(seed: u64) -> Self {
        Self { rng: Xoshiro256PlusPlus::seed_from_u64(seed), step: 0 }
    }

    /// The next `count` renames for each of `threads` threads. No two threads move the same entry,
    /// so their order does not matter.
    pub fn draw(&mut self, tree: &mut Tree, threads: usize, count: usize) -> Vec<Vec<Rename>> {
        let movers: Vec<NodeId> = tree.movers().map(NodeId).collect();
        let leaves = tree.leaves();
        (0..threads)
            .map(|thread| {
                let own: Vec<NodeId> = movers.iter().copied().skip(thread).step_by(threads).collect();
                (0..count)
                    .map(|at| {
                        self.step += 1;
                        let beside = NodeId(self.rng.random_range(leaves.clone()));
                        let name = format!("mover-step{}.part", self.step);
                        Rename::apply(tree, own[at % own.len()], tree.parent(beside), name.as_bytes())
                    })
                    .collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{HOT, TINY};

    #[test]
    fn paths_lead_to_their_targets() {
        let tree = Tree::generate(TINY, 1);
        let paths = PathSet::draw(&tree, Pattern::Uniform, Ending::Present, 500, 2);
        for at in 0..paths.len() {
            let mut expected = Vec::new();
            tree.push_path(paths.target(at).unwrap(), &mut expected);
            assert_eq!(paths.path(at).bytes(), expected);
            assert_eq!(paths.path(at).c_str().to_bytes(), expected);
            assert_eq!(paths.path(at).components().count(), 6);
        }
    }

    #[test]
    fn components_are_those_of_a_split_at_every_slash() {
        for path in
            ["a", "a/b", "abcdefg/h", "abcdefgh/i", "abcdefghijklmnop/q/rstuvwxyzabcdefgh/ij", "0/./1"]
        {
            let path = format!("{path}\0");
            let path = Path::from_bytes_with_nul(path.as_bytes());
            assert!(path.components().eq(path.bytes().split(|&byte| byte == b'/')));
        }
    }

    #[test]
    fn missing_names_are_in_no_directory() {
        let tree = Tree::generate(HOT, 1);
        let paths = PathSet::draw(&tree, Pattern::Uniform, Ending::Missing, 100, 2);
        assert!((0..100).all(|at| paths.target(at).is_none()));
        assert!(tree.entries().all(|(_, _, name)| !name.ends_with(b".lock")));
    }

    #[test]
    fn zipf_wants_one_leaf_far_more_often_than_uniform_does() {
        let tree = Tree::generate(HOT, 1);
        let most_wanted = |pattern| {
            let paths = PathSet::draw(&tree, pattern, Ending::Present, 20_000, 3);
            let mut wanted = std::collections::HashMap::new();
            (0..paths.len()).for_each(|at| *wanted.entry(paths.target(at)).or_insert(0) += 1);
            wanted.into_values().max().unwrap()
        };
        assert!(most_wanted(Pattern::Zipf) > 50 * most_wanted(Pattern::Uniform));
    }

    #[test]
    fn renames_of_two_threads_touch_different_entries() {
        let mut tree = Tree::generate(TINY, 1);
        let renames = RenameLoad::new(1).draw(&mut tree, 2, 100);
        let nodes = |at: usize| renames[at].iter().map(|r| r.node).collect::<std::collections::HashSet<_>>();
        assert!(nodes(0).is_disjoint(&nodes(1)));
        let last = renames[1].last().unwrap();
        assert_eq!(tree.name(last.node), last.to_name());
        assert_eq!(tree.parent(last.node), last.to_parent);
    }
}
