//! `find` with everything cached and a hash table that is too small: the mail of 2005's test of a
//! layout.
//!
//! Clients visit a tree directory by directory, hold the current one, and look up every name in it,
//! as find(1) does by `fstatat(2)`. The number of chains gives them the wanted average length (the
//! mail: 16). [`against_kernel`] times single passes in turn with find(1) on the same tree.

use std::num::NonZeroU64;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Client, Front, PATH_MAX, Workload};
use crate::mounts::HiddenMount;
use crate::rivals::create_below;
use crate::rows::{Heading, Row};
use crate::schemes::{Config, Dentry, Inode, Path, Variant};
use crate::stats::{Sample, paired_ratio};
use crate::tree::{NodeId, Shape, Tree};
use crate::unavailable::Unavailable;

const SEED: u64 = 20_05;
/// The kernel's side of [`against_kernel`].
pub const KERNEL: &str = "kernel-find";

/// A tree and the length of chains.
#[derive(Debug)]
pub struct Find {
    tree: Tree,
    chain: usize,
}

impl Find {
    /// A tree of this shape in a table with chains of this average length, at least 1.
    pub fn new(shape: Shape, chain: usize) -> Self {
        Self { tree: Tree::generate(shape, SEED), chain: chain.max(1) }
    }

    /// Entries that a pass visits.
    pub fn entries(&self) -> usize {
        self.tree.len()
    }
}

fn inode(node: NodeId) -> Inode {
    Inode(NonZeroU64::MIN.saturating_add(u64::from(node.0)))
}

impl Workload for Find {
    fn name(&self) -> &'static str {
        "find"
    }

    fn config(&self, _clients: usize) -> Config {
        let entries = self.tree.len();
        Config { entries: entries + entries / 8 + 64, heads: (entries / self.chain).max(1), prefetch: false }
    }

    fn prepare(&self, front: &Front, _clients: usize) {
        let mut held = vec![Dentry::ROOT; self.tree.len() + 1];
        for (node, parent, name) in self.tree.entries() {
            held[node.index()] = front.create(held[parent.index()], name, inode(node));
        }
        held[1..].iter().for_each(|dentry| front.close(*dentry));
    }

    fn client(&self, number: usize, clients: usize) -> Box<dyn Client + '_> {
        Box::new(Finder {
            tree: &self.tree,
            next: number * self.tree.len() / clients,
            directory: None,
            text: Vec::new(),
        })
    }
}

/// A client's position in the tree.
struct Finder<'t> {
    tree: &'t Tree,
    /// Entries before the next one.
    next: usize,
    /// The current directory, held.
    directory: Option<(NodeId, Dentry)>,
    /// Its path.
    text: Vec<u8>,
}

impl Finder<'_> {
    /// Opens a directory by its path.
    fn enter(&mut self, front: &Front, directory: NodeId) -> Dentry {
        if let Some((_, left)) = self.directory.take() {
            front.close(left);
        }
        let mut path = [(b"".as_slice(), NodeId::ROOT); PATH_MAX];
        let (mut at, mut len) = (directory, 0);
        while at != NodeId::ROOT {
            path[len] = (self.tree.name(at), at);
            (at, len) = (self.tree.parent(at), len + 1);
        }
        path[..len].reverse();
        let names = path.map(|(name, _)| name);
        self.text.clear();
        for name in &names[..len] {
            self.text.extend_from_slice(name);
            self.text.push(b'/');
        }
        self.text.pop();
        let found = front.open(Path::new(&names[..len], &self.text), |depth| Some(inode(path[depth - 1].1)));
        let entered = found.expect("a directory of the tree is found");
        self.directory = Some((directory, entered));
        entered
    }
}

impl Client for Finder<'_> {
    fn step(&mut self, front: &Front) {
        let node = NodeId(u32::try_from(self.next + 1).expect("trees have fewer than 2^32 nodes"));
        self.next = (self.next + 1) % self.tree.len();
        let parent = self.tree.parent(node);
        let directory = match self.directory {
            Some((at, held)) if at == parent => held,
            _ => self.enter(front, parent),
        };
        let found = front.cache().lookup(directory, self.tree.name(node));
        let found = found.expect("the table is small, not the cache");
        assert_eq!(front.cache().inode(found), Some(inode(node)));
        front.close(found);
    }
}

/// Single passes of every scheme, one client each, in turn with find(1) on a tmpfs of the same
/// tree, warm: nanoseconds per entry, and ratios to the kernel's. `progress` is called before each
/// pass.
///
/// The kernel's figure has more in it: find(1) starts, reads the directories and makes a system
/// call per entry. It shows what part of a whole `find` a name cache can be.
///
/// # Errors
/// Without root or find(1).
pub fn against_kernel(
    load: &Find,
    schemes: &[Variant],
    rounds: usize,
    progress: &dyn Fn(&str),
) -> Result<Vec<Row>, Unavailable> {
    let mount = HiddenMount::tmpfs()?;
    create_below(&mount, &load.tree)?;
    find(&mount)?;
    let mut caches: Vec<_> = schemes
        .iter()
        .map(|scheme| {
            let front = Front::new((scheme.build)(load.config(1)));
            load.prepare(&front, 1);
            (front, load.client(0, 1))
        })
        .collect();
    let mut kernel = Vec::new();
    let mut ours: Vec<Vec<f64>> = schemes.iter().map(|_| Vec::new()).collect();
    let each = |start: Instant| start.elapsed().as_nanos() as f64 / load.entries() as f64;
    for round in 0..rounds {
        progress(KERNEL);
        let start = Instant::now();
        find(&mount)?;
        kernel.push(each(start));
        for turn in 0..caches.len() {
            let at = (round + turn) % caches.len();
            progress(schemes[at].name);
            let (front, client) = &mut caches[at];
            let start = Instant::now();
            (0..load.entries()).for_each(|_| client.step(front));
            ours[at].push(each(start));
        }
    }
    let time = Heading { case: "find-pass", variant: KERNEL, threads: 1, metric: "ns/entry", unit: "ns" };
    let row = |variant, runs: &[f64]| Some(Heading { variant, ..time }.sampled(&Sample::new(runs.to_vec())?));
    let mut rows: Vec<Row> = row(KERNEL, &kernel).into_iter().collect();
    for (scheme, ours) in schemes.iter().zip(&ours) {
        rows.extend(row(scheme.name, ours));
        let variant = format!("{}/{KERNEL}", scheme.name);
        let heading = Heading { variant: &variant, metric: "ratio", unit: "1", ..time };
        rows.extend(paired_ratio(ours, &kernel).map(|ratio| heading.ratio(&ratio)));
    }
    Ok(rows)
}

/// find(1) with a predicate that needs every entry's attributes.
fn find(mount: &HiddenMount) -> Result<(), Unavailable> {
    let mut command = Command::new("find");
    command.current_dir(mount.working_folder()).args([".", "-size", "+1G"]).stdout(Stdio::null());
    let status = command.status().map_err(|why| Unavailable::because("find", why))?;
    if status.success() { Ok(()) } else { Err(Unavailable::because("find", status)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;
    use crate::tree::TINY;

    #[test]
    fn clients_find_every_entry_under_every_scheme() {
        let load = Find::new(TINY, 16);
        assert_eq!(load.config(2).heads, load.entries() / 16);
        for scheme in SCHEMES {
            let front = Front::new((scheme.build)(load.config(2)));
            load.prepare(&front, 2);
            let mut clients: Vec<_> = (0..2).map(|number| load.client(number, 2)).collect();
            for _ in 0..2 * load.entries() {
                clients.iter_mut().for_each(|client| client.step(&front));
            }
        }
    }

    #[test]
    fn a_pass_is_timed_beside_the_kernels_find() {
        let load = Find::new(TINY, 16);
        match against_kernel(&load, &SCHEMES[..2], 3, &|_| {}) {
            Err(why) => println!("skipped: {why}"),
            Ok(rows) => {
                let variants: Vec<_> =
                    rows.iter().map(|row| (row.variant.as_str(), row.metric, row.n)).collect();
                assert_eq!(variants.len(), 5);
                assert_eq!(variants[0], (KERNEL, "ns/entry", 3));
                assert_eq!(variants[4], ("2 bucket locks/kernel-find", "ratio", 3));
                assert!(rows.iter().all(|row| row.median > 0.0));
            }
        }
    }
}
