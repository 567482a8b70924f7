//! Concurrent threads. Each test checks invariants at any moment; all end with a check for leaks.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::thread;

use dentree_lab::schemes::{Dentry, Path, SCHEMES, Scheme, Variant};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::{assert_nothing_leaked, inode, name, small};

/// Rounds of each thread: every interleaving that ever failed occurs many times.
const ROUNDS: usize = 8_000;

fn each_scheme(entries: usize, test: impl Fn(&dyn Scheme, Variant)) {
    for scheme in SCHEMES {
        println!("{}", scheme.name);
        let cache = (scheme.build)(small(entries));
        test(&*cache, scheme);
        assert_nothing_leaked(&*cache, scheme.name);
    }
}

/// Makes directories in the root, with the inodes 2, 3, …
fn directories(cache: &dyn Scheme, count: usize) -> Vec<Dentry> {
    let make = |n: usize| {
        let name = format!("dir{n}");
        cache.create(Dentry::ROOT, name.as_bytes(), Some(inode(2 + n as u64))).expect("room")
    };
    (0..count).map(make).collect()
}

/// Clears its flag when dropped, also after a panic, for threads that wait for the end.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// A hit is always the wanted entry, and a held entry is always found, during any operation.
#[test]
fn held_names_are_found_and_no_name_leads_elsewhere() {
    const DIRS: usize = 3;
    const NAMES: usize = 24;
    each_scheme(160, |cache, scheme| {
        let dirs = directories(cache, DIRS);
        let number_of = |dir: usize, name: usize| (1000 * (dir + 1) + name) as u64;
        let held: Vec<_> = (0..DIRS)
            .flat_map(|dir| (0..4).map(move |name| (dir, name)))
            .map(|(dir, n)| {
                cache.create(dirs[dir], name(n).as_bytes(), Some(inode(number_of(dir, n)))).expect("room")
            })
            .collect();
        let i_sem: Vec<_> = (0..DIRS).map(|_| Mutex::new(())).collect();
        let writers = AtomicUsize::new(2);
        thread::scope(|scope| {
            for seed in 0..2 {
                let (dirs, i_sem, writers) = (&dirs, &i_sem, &writers);
                scope.spawn(move || {
                    let _done = Done(writers);
                    let mut random = SmallRng::seed_from_u64(seed);
                    for _ in 0..ROUNDS {
                        let (dir, n) = (random.random_range(0..DIRS), random.random_range(4..NAMES));
                        let _i_sem = i_sem[dir].lock().expect("i_sem");
                        let known = cache.lookup(dirs[dir], name(n).as_bytes());
                        match known {
                            Some(dentry) if cache.inode(dentry).is_some() => {
                                cache.delete(dentry);
                                cache.dput(dentry);
                            }
                            other => {
                                other.into_iter().for_each(|dentry| cache.dput(dentry));
                                let made = cache.create(
                                    dirs[dir],
                                    name(n).as_bytes(),
                                    Some(inode(number_of(dir, n))),
                                );
                                made.into_iter().for_each(|dentry| cache.dput(dentry));
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                while writers.load(Acquire) > 0 {
                    cache.prune(3);
                    cache.select_parent(dirs[1]);
                    thread::yield_now();
                }
            });
            for seed in 10..12 {
                let (dirs, writers) = (&dirs, &writers);
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed);
                    while writers.load(Acquire) > 0 {
                        let (dir, n) = (random.random_range(0..DIRS), random.random_range(0..NAMES));
                        let found = cache.lookup(dirs[dir], name(n).as_bytes());
                        assert!(n >= 4 || found.is_some(), "{}: a held name was not found", scheme.name);
                        if let Some(dentry) = found {
                            let found = cache.inode(dentry);
                            let right = found.is_none_or(|found| found == inode(number_of(dir, n)));
                            assert!(right, "{}: {dir}/{n} led to {found:?}", scheme.name);
                            cache.dput(dentry);
                        }
                    }
                });
            }
        });
        held.into_iter().chain(dirs).for_each(|dentry| cache.dput(dentry));
    });
}

/// A name that moves between two directories is always in one of them.
#[test]
fn a_renamed_entry_is_never_in_neither_place() {
    each_scheme(64, |cache, scheme| {
        let places = [("a", 3), ("b", 5)].map(|(dir, n)| {
            (cache.create(Dentry::ROOT, dir.as_bytes(), Some(inode(2))).expect("room"), name(n))
        });
        let moving = cache.create(places[0].0, places[0].1.as_bytes(), Some(inode(99))).expect("room");
        let neighbours: Vec<_> = (6..16)
            .map(|n| cache.create(places[n % 2].0, name(n).as_bytes(), Some(inode(n as u64))).expect("room"))
            .collect();
        let moves = AtomicU32::new(0);
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !end.load(Acquire) {
                        let before = moves.load(Acquire);
                        let found: Vec<_> = places
                            .iter()
                            .filter_map(|(dir, name)| cache.lookup(*dir, name.as_bytes()))
                            .filter(|dentry| {
                                // A scheme may cache its absence.
                                let absent = cache.inode(*dentry).is_none();
                                if absent {
                                    cache.dput(*dentry);
                                }
                                !absent
                            })
                            .collect();
                        for dentry in &found {
                            assert_eq!(
                                (cache.inode(*dentry), *dentry),
                                (Some(inode(99)), moving),
                                "{}",
                                scheme.name
                            );
                            cache.dput(*dentry);
                        }
                        let still = moves.load(Acquire) == before && before.is_multiple_of(2);
                        assert!(!still || found.len() == 1, "{}: found {} times", scheme.name, found.len());
                        for n in 6..16 {
                            let found = cache.lookup(places[n % 2].0, name(n).as_bytes());
                            cache.dput(
                                found.unwrap_or_else(|| panic!("{}: a neighbour was not found", scheme.name)),
                            );
                        }
                    }
                });
            }
            for turn in 1..=ROUNDS {
                let (dir, name) = &places[turn % 2];
                moves.fetch_add(1, Release);
                cache.rename(moving, *dir, name.as_bytes());
                moves.fetch_add(1, Release);
                if turn % 16 == 0 {
                    thread::yield_now();
                }
            }
            end.store(true, Release);
        });
        neighbours.into_iter().chain([moving]).for_each(|dentry| cache.dput(dentry));
        places.into_iter().for_each(|(dir, _)| cache.dput(dir));
    });
}

/// Walkers race with a rename of the directory in the middle of their path; their results match the
/// path.
#[test]
fn walks_through_a_renamed_directory_find_what_the_path_says() {
    each_scheme(64, |cache, scheme| {
        let make = |parent, name: &str, number| {
            cache.create(parent, name.as_bytes(), Some(inode(number))).expect("room")
        };
        let top = make(Dentry::ROOT, "top", 2);
        let (one, two) = (make(top, "one", 10), make(top, "spare", 20));
        let (in_one, in_two) = (make(one, "file", 11), make(two, "file", 21));
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !end.load(Acquire) {
                        for (path, right) in
                            [([&b"top"[..], b"one", b"file"], 11_u64), ([b"top", b"two", b"file"], 21)]
                        {
                            let walked = cache.walk(Path::new(&path, &path.join(&b'/')));
                            if walked.depth == 3 {
                                let found = cache.inode(walked.dentry);
                                assert_eq!(found, Some(inode(right)), "{}: {path:?}", scheme.name);
                            }
                            cache.dput(walked.dentry);
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                cache.rename(one, top, b"elsewhere");
                cache.rename(two, top, b"two");
                cache.rename(two, top, b"spare");
                cache.rename(one, top, b"one");
            }
            end.store(true, Release);
        });
        [in_two, in_one, two, one, top].into_iter().for_each(|dentry| cache.dput(dentry));
    });
}

/// Aliases, references, renames onto existing names and pruning of the same few names, in a cache
/// that is too small.
#[test]
fn everything_at_once_leaks_nothing() {
    const DIRS: usize = 4;
    const NAMES: usize = 16;
    each_scheme(48, |cache, scheme| {
        let dirs = directories(cache, DIRS);
        // One lock for all directories, as renames need two: the test is of the cache, not of its
        // callers.
        let i_sem = Mutex::new(());
        let hits = AtomicUsize::new(0);
        thread::scope(|scope| {
            for seed in 0..4 {
                let (dirs, i_sem, hits) = (&dirs, &i_sem, &hits);
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed);
                    for _ in 0..ROUNDS {
                        let mut any =
                            || (dirs[random.random_range(0..DIRS)], name(random.random_range(0..NAMES)));
                        let ((dir, from), (to_dir, to)) = (any(), any());
                        match random.random_range(0..8) {
                            0 | 1 => {
                                let _i_sem = i_sem.lock().expect("i_sem");
                                let number = Some(inode(random.random_range(50..56)));
                                let made = cache.create(dir, from.as_bytes(), number);
                                made.into_iter().for_each(|dentry| cache.dput(dentry));
                            }
                            2 => {
                                let _i_sem = i_sem.lock().expect("i_sem");
                                if let Some(dentry) = cache.lookup(dir, from.as_bytes()) {
                                    cache.delete(dentry);
                                    cache.dput(dentry);
                                }
                            }
                            3 => {
                                let _i_sem = i_sem.lock().expect("i_sem");
                                if let Some(dentry) = cache.lookup(dir, from.as_bytes()) {
                                    cache.rename(dentry, to_dir, to.as_bytes());
                                    cache.dput(dentry);
                                }
                            }
                            4 => {
                                cache.prune(2);
                            }
                            5 => {
                                for dentry in cache.aliases(inode(random.random_range(50..56))) {
                                    cache.dget(dentry);
                                    cache.dput(dentry);
                                    cache.dput(dentry);
                                }
                            }
                            6 if random.random_range(0..16) == 0 => {
                                cache.select_parent(dir);
                            }
                            _ => {
                                if let Some(dentry) = cache.lookup(dir, from.as_bytes()) {
                                    hits.fetch_add(1, Relaxed);
                                    cache.dput(dentry);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(hits.load(Relaxed) > 100, "{}: the load hardly ever found anything", scheme.name);
        dirs.into_iter().for_each(|dentry| cache.dput(dentry));
    });
}
