//! The whole cache in random interleavings: `RUSTFLAGS="--cfg shuttle" cargo test -p dentree-dcache
//! --test interleavings`.
#![cfg(shuttle)]

use dentree_dcache::*;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use std::convert::Infallible;

const SCHEDULES: usize = 3_000;

fn cache() -> Arc<Dcache<u64>> {
    Arc::new(Dcache::builder().seed(5).prefetch(PrefetchMode::Off).build(Child::directory(1)))
}

/// `None` for `Busy`, which says nothing.
fn look(cache: &Dcache<u64>, path: &str) -> Option<Option<u64>> {
    match cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true) {
        Walk::Found(dentry) => Some(Some(*dentry.handle())),
        Walk::Stopped(Stopped { why: Reason::Busy, .. }) => None,
        _ => Some(None),
    }
}

/// At random, and with few switches at random places, so that a thread meets another one's whole
/// call between two of its steps.
fn check(model: impl Fn() + Clone + Send + Sync + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

#[test]
fn a_rename_loses_nothing_on_the_way() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let dir = cache.create(&root, b"a", Child::directory(2));
        cache.create(&dir, b"file", Child::other(3));
        cache.create(&root, b"other", Child::directory(4));
        drop((root, dir));
        let renamer = {
            let cache = cache.clone();
            thread::spawn(move || {
                let root = cache.root();
                let other =
                    cache.lookup_or_fill(&root, b"other", || Err(())).expect("cached").expect("there");
                cache.rename(&root, b"a", &other, b"b");
            })
        };
        let looks = [look(&cache, "a/file"), look(&cache, "other/b/file")];
        assert_ne!(looks, [Some(None), Some(None)]);
        renamer.join().expect("no panic");
        assert_eq!(look(&cache, "other/b/file"), Some(Some(3)));
        assert_eq!(look(&cache, "a/file"), Some(None));
    });
}

/// A new entry splits buckets: what was found in none of them may have moved from one to the other.
#[test]
fn a_lookup_knows_what_is_cached_while_the_index_grows() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let held: Vec<_> =
            [b"a", b"b", b"c"].map(|name| (name, cache.create(&root, name, Child::other(2)))).into();
        let maker = {
            let cache = cache.clone();
            thread::spawn(move || {
                for name in [b"d", b"e", b"f"] {
                    cache.create(&cache.root(), name, Child::other(3));
                }
            })
        };
        for (name, held) in &held {
            assert_eq!(cache.lookup(&root, *name).flatten().as_ref(), Some(held), "{name:?}");
        }
        maker.join().expect("no panic");
    });
}

#[test]
fn an_answer_that_was_overtaken_brings_nothing_back() {
    check(|| {
        let cache = cache();
        let asked = Arc::new(AtomicU64::new(0));
        let askers: Vec<_> = (0..2)
            .map(|_| {
                let (cache, asked) = (cache.clone(), asked.clone());
                thread::spawn(move || {
                    let found = cache.lookup_or_fill(&cache.root(), b"name", || {
                        asked.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        Ok::<_, Infallible>(Fill::Positive(Child::other(7)))
                    });
                    found.expect("infallible").map(|dentry| *dentry.handle())
                })
            })
            .collect();
        cache.unlink(&cache.root(), b"name");
        for asker in askers {
            assert!(matches!(asker.join().expect("no panic"), None | Some(7)));
        }
        assert_eq!(look(&cache, "name"), Some(None));
        assert!(asked.load(Ordering::SeqCst) <= 2);
    });
}

#[test]
fn what_is_held_survives_eviction_unlink_and_reuse_of_slots() {
    check(|| {
        let cache = cache();
        drop(cache.create(&cache.root(), b"file", Child::other(2)));
        let churner = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.prune(10);
                cache.unlink(&cache.root(), b"file");
                cache.create(&cache.root(), b"new", Child::other(3));
                cache.prune(10);
            })
        };
        for _ in 0..2 {
            if let Walk::Found(held) = cache.walk(&cache.root(), b"file", WalkOptions::default(), |_| true) {
                thread::yield_now();
                assert_eq!(*held.handle(), 2);
                assert_eq!(cache.get(held.id()).map(|dentry| *dentry.handle()), Some(2));
            }
        }
        churner.join().expect("no panic");
        assert_eq!(cache.stats().held, 0);
    });
}

#[test]
fn what_was_found_is_told_from_what_took_its_slot() {
    check(|| {
        let cache = cache();
        drop(cache.create(&cache.root(), b"file", Child::other(2)));
        let churner = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.unlink(&cache.root(), b"file");
                cache.prune(10);
                cache.create(&cache.root(), b"new", Child::other(3));
            })
        };
        let found = cache.find(&cache.root(), b"file", WalkOptions::default(), |_| true);
        if let Walk::Found(seen) = &found {
            assert_eq!(seen.handle, 2);
            thread::yield_now();
            // The entry with this id has the inode that was found.
            assert!(cache.get(seen.id).is_none_or(|kept| *kept.handle() == 2));
        }
        churner.join().expect("no panic");
        if let Walk::Found(seen) = found {
            assert!(!cache.is_linked(seen.id));
        }
        assert_eq!(cache.stats().held, 0);
    });
}

#[test]
fn a_complete_directory_denies_only_what_is_not_there() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let mut completion = cache.begin_complete(&root);
        completion.enter(b"stays", Child::other(2));
        completion.enter(b"a", Child::other(3));
        assert!(completion.finish());
        drop(root);
        let writer = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.rename(&cache.root(), b"a", &cache.root(), b"b");
                cache.prune(10);
            })
        };
        let walk = cache.walk(&cache.root(), b"stays", WalkOptions::default(), |_| true);
        assert!(!matches!(walk, Walk::Negative { .. }));
        writer.join().expect("no panic");
        let walk = cache.walk(&cache.root(), b"stays", WalkOptions::default(), |_| true);
        assert!(!matches!(walk, Walk::Negative { .. }), "on disk, though evicted");
    });
}

/// Walks that insert a path into the path cache.
fn learn(cache: &Dcache<u64>, path: &str) {
    for _ in 0..2 {
        assert!(matches!(look(cache, path), Some(Some(_))));
    }
}

#[test]
fn a_way_that_was_noted_leads_nowhere_else_while_its_directory_is_renamed() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let dir = cache.create(&root, b"a", Child::directory(2));
        cache.create(&dir, b"file", Child::other(3));
        learn(&cache, "a/file");
        drop((root, dir));
        let renamer = {
            let cache = cache.clone();
            thread::spawn(move || {
                let root = cache.root();
                cache.rename(&root, b"a", &root, b"b");
                // Never `a/late`.
                let Walk::Found(dir) = cache.walk(&root, b"b", WalkOptions::default(), |_| true) else {
                    return;
                };
                cache.create(&dir, b"late", Child::other(4));
            })
        };
        let looks = [look(&cache, "a/file"), look(&cache, "b/file")];
        assert_ne!(looks, [Some(None), Some(None)]);
        assert!(!matches!(look(&cache, "a/late"), Some(Some(_))));
        renamer.join().expect("no panic");
        assert_eq!([look(&cache, "a/file"), look(&cache, "a/late")], [Some(None), Some(None)]);
        assert_eq!([look(&cache, "b/file"), look(&cache, "b/late")], [Some(Some(3)), Some(Some(4))]);
    });
}

#[test]
fn a_note_is_not_followed_to_what_takes_the_slot_of_its_entry() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let dir = cache.create(&root, b"a", Child::directory(2));
        drop(cache.create(&dir, b"file", Child::other(3)));
        learn(&cache, "a/file");
        drop((root, dir));
        let churner = {
            let cache = cache.clone();
            thread::spawn(move || {
                let root = cache.root();
                let Walk::Found(dir) = cache.walk(&root, b"a", WalkOptions::default(), |_| true) else {
                    return;
                };
                cache.unlink(&dir, b"file");
                drop(dir);
                cache.prune(10);
                drop(cache.create(&root, b"file", Child::other(5)));
                let dir = cache.create(&root, b"a", Child::directory(6));
                drop(cache.create(&dir, b"file", Child::other(7)));
            })
        };
        for _ in 0..2 {
            // Found by value, then held: never an earlier or later entry.
            if let Walk::Found(seen) = cache.find(&cache.root(), b"a/file", WalkOptions::default(), |_| true)
            {
                assert!(matches!(seen.handle, 3 | 7));
            }
            assert!(matches!(look(&cache, "a/file"), None | Some(None | Some(3 | 7))));
        }
        churner.join().expect("no panic");
        assert_eq!(look(&cache, "a/file"), Some(Some(7)));
        assert_eq!(cache.stats().held, 0);
    });
}

fn found<'c>(cache: &'c Dcache<u64>, path: &[u8]) -> Option<DentryRef<'c, u64>> {
    match cache.walk(&cache.root(), path, WalkOptions::default(), |_| true) {
        Walk::Found(entry) => Some(entry),
        _ => None,
    }
}

/// Removes the end of the path as its last holder and creates it again, both in place.
fn remove_and_make_again(cache: &Dcache<u64>, path: &[u8], again: Child<u64>) {
    let Some(entry) = found(cache, path) else { return };
    let (dir, name) = (entry.parent(), entry.name());
    cache.delete(&entry);
    drop(entry);
    cache.create(&dir, &name, again);
}

#[test]
fn the_end_of_a_cached_path_is_held_as_what_was_found() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let dir = cache.create(&root, b"a", Child::directory(2));
        drop(cache.create(&dir, b"file", Child::other(3)));
        learn(&cache, "a/file");
        drop((root, dir));
        let remover = {
            let cache = cache.clone();
            thread::spawn(move || remove_and_make_again(&cache, b"a/file", Child::other(5)))
        };
        if let Some(entry) = found(&cache, b"a/file") {
            let ino = *entry.handle();
            assert!(!entry.is_negative() && matches!(ino, 3 | 5));
            thread::yield_now();
            assert!(!entry.is_negative() && *entry.handle() == ino);
        }
        remover.join().expect("no panic");
        assert_eq!(look(&cache, "a/file"), Some(Some(5)));
    });
}

#[test]
fn the_end_of_a_long_cached_path_is_seen_with_the_handle_of_its_id() {
    check(|| {
        let cache = cache();
        let mut dir = cache.root();
        for ino in 11..17 {
            dir = cache.create(&dir, b"d", Child::directory(ino));
        }
        drop(cache.create(&dir, b"file", Child::other(3)));
        drop(dir);
        learn(&cache, "d/d/d/d/d/d/file");
        let remover = {
            let cache = cache.clone();
            thread::spawn(move || remove_and_make_again(&cache, b"d/d/d/d/d/d/file", Child::other(5)))
        };
        let path = b"d/d/d/d/d/d/file";
        if let Walk::Found(seen) = cache.find(&cache.root(), path, WalkOptions::default(), |_| true) {
            assert!(matches!(seen.handle, 3 | 5));
            assert!(cache.get(seen.id).is_none_or(|entry| *entry.handle() == seen.handle));
        }
        remover.join().expect("no panic");
    });
}

#[test]
fn a_parent_is_held_as_the_directory_that_the_entry_was_in() {
    check(|| {
        let cache = cache();
        let root = cache.root();
        let dir = cache.create(&root, b"a", Child::directory(2));
        let file = cache.create(&dir, b"file", Child::other(3));
        drop(cache.create(&root, b"c", Child::directory(4)));
        drop((root, dir));
        let mover = {
            let cache = cache.clone();
            thread::spawn(move || {
                let (Some(from), Some(to)) = (found(&cache, b"a"), found(&cache, b"c")) else { return };
                cache.rename(&from, b"file", &to, b"file");
                // The negative entry that it left.
                cache.invalidate(&from, b"file");
                drop((from, to));
                remove_and_make_again(&cache, b"a", Child::directory(6));
            })
        };
        let parent = file.parent();
        assert!(!parent.is_negative() && matches!(parent.handle(), 2 | 4), "{}", parent.handle());
        mover.join().expect("no panic");
        assert_eq!(*file.parent().handle(), 4);
    });
}
