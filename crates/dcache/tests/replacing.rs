//! A replaced name exists at every instant. Regression: a writer that removes the old entry before
//! it links the new one, so that a lookup in between returns ENOENT.

use dentree_dcache::*;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const TURNS: u64 = if cfg!(debug_assertions) { 40_000 } else { 200_000 };
const NAMES: [&[u8]; 2] = [b"target", &[b't'; 40]];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Directory {
    /// All names cached.
    Complete,
    /// Names not cached.
    Incomplete,
}

struct World {
    cache: Dcache<u64>,
    dir: DentryId,
    next: AtomicU64,
}

impl World {
    /// A cache with `dir/target` and the same under a long name.
    fn new(directory: Directory) -> Self {
        let cache = Dcache::builder().build(Child::directory(1));
        let dir = cache.create(&cache.root(), b"dir", Child::directory(2)).id();
        let world = World { cache, dir, next: AtomicU64::new(10) };
        if directory == Directory::Complete {
            assert!(world.cache.begin_complete(&world.dir()).finish());
        }
        for name in NAMES {
            world.create(name);
        }
        world
    }

    fn dir(&self) -> DentryRef<'_, u64> {
        self.cache.get(self.dir).expect("it has entries")
    }

    fn create(&self, name: &[u8]) {
        let inode = self.next.fetch_add(1, Ordering::Relaxed);
        drop(self.cache.create(&self.dir(), name, Child::other(inode)));
    }

    /// Looks the name up in each way; it exists throughout.
    fn look(&self, name: &[u8]) {
        let (cache, root, options) = (&self.cache, self.cache.root(), WalkOptions::default());
        let path = [b"dir/", name].concat();
        let walk = cache.walk(&root, &path, options, |_| true);
        assert!(!matches!(walk, Walk::Negative { .. }), "walk");
        let find = cache.find(&root, &path, options, |_| true);
        assert!(!matches!(find, Walk::Negative { .. }), "find");
        let stepwise = cache.find(&root, &[b"dir//./", name].concat(), options, |_| true);
        assert!(!matches!(stepwise, Walk::Negative { .. }), "a find one component at a time");
        let many = cache.find_many(&root, &[&path, &path], options, |_| true);
        assert!(!many.iter().any(|walk| matches!(walk, Walk::Negative { .. })), "find_many");
        let asked = || Ok::<_, Infallible>(Fill::NotCached(Some(Child::other(0))));
        assert!(cache.lookup_or_fill(&self.dir(), name, asked).is_ok_and(|found| found.is_some()), "fill");
    }

    /// Replaces the names repeatedly while other threads look them up.
    fn replace_while_looked_up(&self, replace: impl Fn(&Self, &[u8], u64) + Sync) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _done = AtEnd(&done);
                (0..TURNS).for_each(|turn| replace(self, NAMES[turn as usize % 2], turn));
            });
            for name in NAMES {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        self.look(name);
                    }
                });
            }
        });
    }
}

/// Sets the flag when dropped, also in a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn check(replace: impl Fn(&World, &[u8], u64) + Sync) {
    for directory in [Directory::Complete, Directory::Incomplete] {
        println!("{directory:?}");
        World::new(directory).replace_while_looked_up(&replace);
    }
}

#[test]
fn a_name_over_which_another_is_renamed_is_there_at_every_instant() {
    check(|world, name, _| {
        world.create(b"temporary");
        world.cache.rename(&world.dir(), b"temporary", &world.dir(), name);
    });
}

#[test]
fn a_name_over_which_one_of_another_directory_is_renamed_is_there_at_every_instant() {
    check(|world, name, turn| {
        let root = world.cache.root();
        drop(world.cache.create(&root, b"temporary", Child::other(1000 + turn)));
        world.cache.rename(&root, b"temporary", &world.dir(), name);
    });
}

#[test]
fn a_name_that_a_rename_leaves_to_another_is_there_at_every_instant() {
    check(|world, name, turn| {
        let left = Child::other(1000 + turn);
        world.cache.rename_leaving(&world.dir(), name, &world.cache.root(), b"away", left);
    });
}

#[test]
fn a_name_that_is_created_over_itself_is_there_at_every_instant() {
    check(|world, name, _| world.create(name));
}

#[test]
fn two_names_that_are_exchanged_are_there_at_every_instant() {
    check(|world, _, _| world.cache.exchange(&world.dir(), NAMES[0], &world.dir(), NAMES[1]));
}

/// A completion inserts the directory's present names, over entries that have expired or have other
/// inodes.
#[test]
fn a_name_that_a_completion_enters_again_is_there_at_every_instant() {
    check(|world, _, turn| {
        let dir = world.dir();
        let mut completion = world.cache.begin_complete(&dir);
        for name in NAMES {
            completion.enter(name, Child::other(10 + turn));
        }
        completion.finish();
    });
}
