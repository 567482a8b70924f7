//! Changes next to readers: `churn` and `invalidate`.
//!
//! Both have a tree of 64 directories with 64 files each; all clients but the first look up files
//! at random.
//!
//! - `churn`: the first client creates a file in one directory, renames it into another, and
//!   deletes it there;
//! - `invalidate`: the first client frees all unused entries below one directory after another
//!   (`select_parent`), and prunes some more, so that readers miss. The lock tables show how long
//!   it holds locks.
//!
//! A single client reads.

use std::num::NonZeroU64;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Client, Front, Workload};
use crate::schemes::{Config, Dentry, Inode, Path};

const DIRECTORIES: usize = 64;
const FILES: usize = 64;

/// Entries of the cache: the tree, the names that change, and freed entries in their grace period.
const ENTRIES: usize = 8 * DIRECTORIES * FILES;

/// Entries pruned after each subtree, by the study's `prune_dcache`.
const PRUNED: usize = 64;

/// A load with one client that changes the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creation, renaming and deletion of names.
    Churn,
    /// Invalidation of entries.
    Invalidate,
}

fn directory(number: usize) -> Vec<u8> {
    format!("directory{number:02}").into_bytes()
}

fn file(number: usize) -> Vec<u8> {
    format!("file{number:02}.c").into_bytes()
}

/// The inode of a directory, or of a file in it.
fn inode(directory: usize, file: Option<usize>) -> Inode {
    let number = 2 + directory * (FILES + 1) + file.map_or(0, |file| file + 1);
    let kind = if file.is_some() { Inode::FILE } else { 0 };
    Inode(NonZeroU64::new(number as u64 | kind).unwrap_or(NonZeroU64::MIN))
}

/// The inode of the file that churn creates. No other file has it.
const PASSING: Inode = Inode(NonZeroU64::MAX);

impl Workload for Change {
    fn name(&self) -> &'static str {
        match self {
            Self::Churn => "churn",
            Self::Invalidate => "invalidate",
        }
    }

    fn config(&self, _clients: usize) -> Config {
        Config { entries: ENTRIES, heads: ENTRIES, prefetch: false }
    }

    fn prepare(&self, front: &Front, _clients: usize) {
        for at in 0..DIRECTORIES {
            let made = front.create(Dentry::ROOT, &directory(at), inode(at, None));
            (0..FILES)
                .for_each(|number| front.close(front.create(made, &file(number), inode(at, Some(number)))));
            front.close(made);
        }
    }

    fn client(&self, number: usize, clients: usize) -> Box<dyn Client + '_> {
        let random = SmallRng::seed_from_u64(number as u64);
        let directories: Vec<_> = (0..DIRECTORIES).map(directory).collect();
        let files: Vec<_> = (0..FILES).map(file).collect();
        let below =
            |directory: &Vec<u8>| files.iter().map(|file| [&directory[..], file].join(&b'/')).collect();
        let paths = directories.iter().flat_map(|directory| -> Vec<_> { below(directory) }).collect();
        let names = Names { directories, files, paths };
        match self {
            _ if number > 0 || clients == 1 => Box::new(Reader { random, names }),
            Self::Churn => Box::new(Churner { random, names }),
            Self::Invalidate => Box::new(Invalidator { next: 0, names }),
        }
    }
}

struct Names {
    directories: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
    /// Paths of all files, by directory.
    paths: Vec<Vec<u8>>,
}

impl Names {
    fn open(&self, front: &Front, at: usize) -> Dentry {
        let name = &self.directories[at][..];
        let found = front.open(Path::new(&[name], name), |_| Some(inode(at, None)));
        found.expect("directories stay")
    }
}

struct Reader {
    random: SmallRng,
    names: Names,
}

impl Client for Reader {
    fn role(&self) -> &'static str {
        "readers"
    }

    fn step(&mut self, front: &Front) {
        let (at, number) = (self.random.random_range(0..DIRECTORIES), self.random.random_range(0..FILES));
        let ask = |depth| Some(inode(at, (depth == 2).then_some(number)));
        let components: [&[u8]; 2] = [&self.names.directories[at], &self.names.files[number]];
        let path = Path::new(&components, &self.names.paths[at * FILES + number]);
        let found = front.stat(path, ask);
        assert_eq!(found, Some(inode(at, Some(number))), "a file that stays");
    }
}

struct Churner {
    random: SmallRng,
    names: Names,
}

impl Client for Churner {
    fn role(&self) -> &'static str {
        "writer"
    }

    fn step(&mut self, front: &Front) {
        let mut any = || self.names.open(front, self.random.random_range(0..DIRECTORIES));
        let (from, to) = (any(), any());
        let made = front.create(from, b"passing.tmp", PASSING);
        assert!(front.rename((from, b"passing.tmp"), (to, b"passed.o")), "just made, and held");
        front.close(made);
        front.unlink(to, b"passed.o");
        let found = front.cache().lookup(to, b"passed.o");
        let inode = found.and_then(|found| front.cache().inode(found));
        assert_eq!(inode, None, "deleted");
        [from, to].into_iter().chain(found).for_each(|dentry| front.close(dentry));
    }
}

struct Invalidator {
    next: usize,
    names: Names,
}

impl Client for Invalidator {
    fn role(&self) -> &'static str {
        "writer"
    }

    fn step(&mut self, front: &Front) {
        let directory = self.names.open(front, self.next);
        self.next = (self.next + 1) % DIRECTORIES;
        front.cache().select_parent(directory);
        front.close(directory);
        front.cache().prune(PRUNED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;
    use crate::workloads::{Running, Shape, Watch};
    use std::time::Duration;

    #[test]
    fn every_scheme_keeps_its_answers_right_while_names_change_and_are_forgotten() {
        for load in [Change::Churn, Change::Invalidate] {
            for scheme in SCHEMES {
                let mut running =
                    Running::new(&load, &scheme, Shape { threads: 3, cpus: 2 }, |config| config);
                let measured = running.work(Duration::from_millis(15), Watch::Locks);
                assert!(
                    measured.operations["readers"] > 0 && measured.operations["writer"] > 0,
                    "{}",
                    scheme.name
                );
                assert!(measured.locks.is_some());
            }
        }
    }
}
