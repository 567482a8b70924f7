//! Threads walk, create, rename, unlink, prune and shrink at once, while checkers hold the
//! guarantees G1 to G7. Bounded by operations, not by time.

use dentree_dcache::*;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

const BUDGET: usize = 192 << 10;

/// Writers invalidated every attempt of a walk.
#[derive(Debug)]
struct Busy;

fn look<'c>(cache: &'c Dcache<Inode>, path: &str) -> Result<Option<DentryRef<'c, Inode>>, Busy> {
    match cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true) {
        Walk::Found(dentry) => Ok(Some(dentry)),
        Walk::Stopped(Stopped { why: Reason::Busy, .. }) => Err(Busy),
        _ => Ok(None),
    }
}

fn found<'c>(cache: &'c Dcache<Inode>, path: &str) -> Option<DentryRef<'c, Inode>> {
    look(cache, path).ok().flatten()
}

/// An inode that knows whether it is live, and counts the live ones.
#[derive(Clone, Debug)]
struct Inode(Arc<Body>);

#[derive(Debug)]
struct Body {
    number: u64,
    live: Arc<AtomicU64>,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PartialEq for Inode {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl Eq for Inode {}

impl Handle for Inode {}

impl std::hash::Hash for Inode {
    fn hash<S: std::hash::Hasher>(&self, state: &mut S) {
        self.0.number.hash(state);
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

struct World {
    cache: Dcache<Inode>,
    live: Arc<AtomicU64>,
}

impl World {
    fn new() -> Self {
        let live = Arc::new(AtomicU64::new(1));
        let root = Inode(Arc::new(Body { number: 0, live: live.clone() }));
        World { cache: Dcache::builder().memory(BUDGET).build(Child::directory(root)), live }
    }

    fn inode(&self, number: u64) -> Inode {
        self.live.fetch_add(1, Ordering::SeqCst);
        Inode(Arc::new(Body { number, live: self.live.clone() }))
    }

    fn check_budget(&self) {
        let stats = self.cache.stats();
        // Each thread may hold a few entries, and each pins its ancestors.
        let held = 64 * 160;
        assert!(stats.memory.used <= BUDGET + held, "{stats:?}");
    }
}

/// Runs all closures at once; panics if one does.
fn together(jobs: Vec<Box<dyn FnOnce() + Send + '_>>) {
    let start = Barrier::new(jobs.len());
    thread::scope(|scope| {
        for job in jobs {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                job();
            });
        }
    });
}

/// Regression: a rename that removes the old name before it adds the new one.
#[test]
fn a_directory_that_is_renamed_to_and_fro_is_always_found_under_one_of_its_names() {
    let world = World::new();
    let cache = &world.cache;
    let root = cache.root();
    let dir = cache.create(&root, b"a", Child::directory(world.inode(1)));
    let other = cache.create(&root, b"other", Child::directory(world.inode(2)));
    let deep = cache.create(&dir, b"deep", Child::directory(world.inode(3)));
    let file = cache.create(&deep, b"file", Child::other(world.inode(4)));
    // Odd while a rename is under way.
    let renames = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let rename = || {
        for i in 0..60_000 {
            renames.fetch_add(1, Ordering::SeqCst);
            if i % 2 == 0 {
                cache.rename(&root, b"a", &other, b"b");
            } else {
                cache.rename(&other, b"b", &root, b"a");
            }
            renames.fetch_add(1, Ordering::SeqCst);
        }
        done.store(true, Ordering::Release);
    };
    let walk = || {
        let mut claims = 0;
        while !done.load(Ordering::Acquire) {
            let before = renames.load(Ordering::SeqCst);
            let looks = ["a/deep/file", "other/b/deep/file", "a/deep/file"].map(|path| look(cache, path));
            let during = renames.load(Ordering::SeqCst) - before;
            // With at most one rename meanwhile the file is under one of the names.
            if during <= 1 && looks.iter().all(Result::is_ok) {
                claims += 1;
                assert!(looks.iter().any(|look| matches!(look, Ok(Some(_)))), "lost during {before}");
            }
            assert!(looks.iter().flatten().flatten().all(|dentry| *dentry == file));
        }
        assert!(claims > 0);
    };
    together(vec![Box::new(rename), Box::new(walk), Box::new(walk)]);
    assert!(found(cache, "a/deep/file").is_some());
}

#[test]
fn of_two_names_that_are_exchanged_each_is_always_there() {
    let world = World::new();
    let cache = &world.cache;
    let root = cache.root();
    for (name, number) in [("a", 1), ("b", 2)] {
        let dir = cache.create(&root, name.as_bytes(), Child::directory(world.inode(number)));
        cache.create(&dir, b"file", Child::other(world.inode(10 + number)));
    }
    let done = AtomicBool::new(false);
    let exchange = || {
        for _ in 0..50_000 {
            cache.exchange(&root, b"a", &root, b"b");
        }
        done.store(true, Ordering::Release);
    };
    let walk = || {
        while !done.load(Ordering::Acquire) {
            for path in ["a/file", "b/file"] {
                match cache.walk(&root, path.as_bytes(), WalkOptions::default(), |_| true) {
                    Walk::Found(file) => assert!(matches!(file.handle().0.number, 11 | 12)),
                    Walk::Stopped(Stopped { why: Reason::Busy, .. }) => {
                        // `Busy` says nothing; under the lock the file must be found.
                        let dir = cache
                            .lookup_or_fill(&root, &path.as_bytes()[..1], || Err("asked for what is there"));
                        assert!(dir.expect("cached").is_some());
                    }
                    other => panic!("{path}: {other:?}"),
                }
            }
        }
    };
    together(vec![Box::new(exchange), Box::new(walk), Box::new(walk)]);
}

#[test]
fn a_complete_directory_never_denies_what_is_in_it() {
    let world = World::new();
    let cache = &world.cache;
    let root = cache.root();
    let mut completion = cache.begin_complete(&root);
    completion.enter(b"moving-0", Child::directory(world.inode(1)));
    completion.enter(b"stays", Child::other(world.inode(2)));
    assert!(completion.finish());
    let done = AtomicBool::new(false);
    let rename = || {
        for i in 0..60_000 {
            let (from, to) = (format!("moving-{}", i % 7), format!("moving-{}", (i + 1) % 7));
            cache.rename(&root, from.as_bytes(), &root, to.as_bytes());
        }
        done.store(true, Ordering::Release);
    };
    let walk = || {
        while !done.load(Ordering::Acquire) {
            assert!(!matches!(
                cache.walk(&root, b"stays", WalkOptions::default(), |_| true),
                Walk::Negative { .. }
            ));
            let absent = cache.walk(&root, b"never there", WalkOptions::default(), |_| true);
            assert!(!matches!(absent, Walk::Found(_)));
        }
    };
    together(vec![Box::new(rename), Box::new(walk), Box::new(walk)]);
    assert!(root.is_complete());
}

impl World {
    /// Makes changes all the time; held entries must not change.
    fn churn(&self, seed: u64) {
        let (cache, mut state, root) = (&self.cache, seed, self.cache.root());
        for i in 0..40_000_u64 {
            let number = random(&mut state) % 64;
            let dir_name = format!("d{}", number % 8);
            let dir = cache.lookup_or_fill(&root, dir_name.as_bytes(), || {
                Ok::<_, Infallible>(Fill::Positive(Child::directory(self.inode(1000 + number % 8))))
            });
            let Ok(Some(dir)) = dir else { continue };
            let name = format!("{}f{number}", "l".repeat((number % 48) as usize));
            let held = cache.create(&dir, name.as_bytes(), Child::other(self.inode(number)));
            let id = held.id();
            match random(&mut state) % 8 {
                0 => cache.unlink(&dir, name.as_bytes()),
                1 => cache.rename(&dir, name.as_bytes(), &root, name.as_bytes()),
                2 => cache.invalidate(&dir, name.as_bytes()),
                3 => assert!(cache.prune(20) < 1000),
                4 if i % 64 == 0 => cache.shrink_to(BUDGET / 2),
                5 if i % 64 == 0 => assert!(cache.prune_subtree(&root) < 10_000),
                6 if i % 16 == 0 => cache.unlink(&root, dir_name.as_bytes()),
                _ => {}
            }
            // G6: no pruning evicted it, and its id is still valid.
            assert_eq!(held.handle().0.number, number);
            assert_eq!(cache.get(id).expect("held").handle().0.number, number);
            if i % 256 == 0 {
                self.check_budget();
            }
        }
    }

    /// An entry found under a name is one created under it.
    fn look(&self, seed: u64) {
        let (cache, mut state) = (&self.cache, seed);
        for _ in 0..60_000 {
            let number = random(&mut state) % 64;
            let path = format!("d{}/{}f{number}", number % 8, "l".repeat((number % 48) as usize));
            if let Some(dentry) = found(cache, &path) {
                assert_eq!(dentry.handle().0.number, number, "{path}");
            }
            if let Walk::Found(seen) =
                cache.find(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true)
            {
                assert_eq!(seen.handle.0.number, number, "{path}");
                // A valid id leads to the entry that was found.
                let kept = cache.get(seen.id);
                assert!(kept.is_none_or(|kept| kept.handle().0.number == number), "{path}");
            }
        }
    }
}

#[test]
fn held_entries_keep_their_inode_while_all_around_is_churned() {
    let world = World::new();
    together(vec![
        Box::new(|| world.churn(1)),
        Box::new(|| world.churn(2)),
        Box::new(|| world.look(3)),
        Box::new(|| world.look(4)),
    ]);
    assert_eq!(world.cache.stats().held, 0);
    world.cache.prune(usize::MAX);
    let live = world.live.clone();
    drop(world);
    // G7 and memory: every inode was dropped once.
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

/// As [`World::churn`] and [`World::look`] with handles that are words: a file's number and a turn
/// that no other file has. Regression: the handle or generation of the slot's earlier or later
/// entry.
#[test]
fn handles_that_are_words_are_those_of_what_was_found_while_slots_are_reused() {
    const FILES: u64 = 48;
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(u64::MAX));
    let path = |number: u64| format!("d{}/{}f{number}", number % 4, "l".repeat((number % 40) as usize));
    let churn = |seed: u64| {
        let (mut state, root) = (seed, cache.root());
        for turn in 0..30_000_u64 {
            let number = random(&mut state) % FILES;
            let path = path(number);
            let (dir_name, name) = path.split_once('/').expect("two components");
            let dir = cache.lookup_or_fill(&root, dir_name.as_bytes(), || {
                Ok::<_, Infallible>(Fill::Positive(Child::directory(u64::MAX)))
            });
            let Ok(Some(dir)) = dir else { continue };
            let handle = (turn << 1 | seed & 1) * FILES + number;
            let held = cache.create(&dir, name.as_bytes(), Child::other(handle));
            match random(&mut state) % 6 {
                0 => cache.unlink(&dir, name.as_bytes()),
                1 => assert!(cache.prune(20) < 1000),
                // The slot of a directory, then of a file.
                2 if turn % 8 == 0 => cache.unlink(&root, dir_name.as_bytes()),
                _ => {}
            }
            assert_eq!(*held.handle(), handle);
        }
    };
    let look = |seed: u64| {
        let mut state = seed;
        for _ in 0..60_000 {
            let number = random(&mut state) % FILES;
            let found = cache.find(&cache.root(), path(number).as_bytes(), WalkOptions::default(), |_| true);
            let Walk::Found(seen) = found else { continue };
            assert_eq!(seen.handle % FILES, number);
            // No other entry ever had this handle, so its id is its own.
            if let Some(kept) = cache.get(seen.id) {
                assert_eq!((*kept.handle(), kept.id()), (seen.handle, seen.id));
            }
        }
    };
    together(vec![Box::new(|| churn(1)), Box::new(|| churn(2)), Box::new(|| look(3)), Box::new(|| look(4))]);
    assert_eq!(cache.stats().held, 0);
}

#[test]
fn one_of_many_askers_asks_and_a_late_answer_brings_nothing_back() {
    let world = World::new();
    let cache = &world.cache;
    let root = cache.root();
    let asked = AtomicU64::new(0);
    // The file system: a name exists in even rounds.
    for round in 0..2_000_u64 {
        let name = format!("name{}", round % 5);
        cache.invalidate(&root, name.as_bytes());
        asked.store(0, Ordering::SeqCst);
        let ask = || {
            let found = cache.lookup_or_fill(&root, name.as_bytes(), || {
                asked.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                Ok::<_, Infallible>(Fill::Positive(Child::other(world.inode(round))))
            });
            assert!(found.expect("infallible").is_none_or(|dentry| dentry.handle().0.number == round));
        };
        if round % 2 == 0 {
            together(vec![Box::new(ask), Box::new(ask), Box::new(ask)]);
            assert_eq!(asked.load(Ordering::SeqCst), 1);
            assert!(found(cache, &name).is_some());
        } else {
            together(vec![Box::new(ask), Box::new(|| cache.unlink(&root, name.as_bytes())), Box::new(ask)]);
            assert!(found(cache, &name).is_none(), "brought back in round {round}");
        }
    }
}
