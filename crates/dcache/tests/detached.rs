//! References to detached entries.

use dentree_dcache::*;
use std::convert::Infallible;

type Cache = Dcache<u64>;
type Entry<'c> = DentryRef<'c, u64>;

fn cache() -> Cache {
    Dcache::builder().seed(1).build(Child::directory(1))
}

/// Looks a name up in a file system with this inode.
fn fill(cache: &Cache, dir: &Entry<'_>, name: &str, inode: Option<u64>) -> Option<u64> {
    let answer = match inode {
        Some(inode) => Fill::Positive(Child::other(inode)),
        None => Fill::Negative,
    };
    let Ok(found) = cache.lookup_or_fill(dir, name.as_bytes(), || Ok::<_, Infallible>(answer));
    found.map(|dentry| *dentry.handle())
}

fn directory<'c>(cache: &'c Cache, dir: &Entry<'c>, name: &str, inode: u64) -> Entry<'c> {
    let ask = || Ok::<_, Infallible>(Fill::Positive(Child::directory(inode)));
    let Ok(found) = cache.lookup_or_fill(dir, name.as_bytes(), ask);
    found.expect("it is there")
}

fn why_not(cache: &Cache, start: &Entry<'_>, path: &str) -> Option<Reason> {
    match cache.find(start, path.as_bytes(), WalkOptions::default(), |_| true) {
        Walk::Stopped(stopped) => Some(stopped.why),
        _ => None,
    }
}

#[test]
fn an_entry_is_reachable_as_long_as_all_above_it_have_names() {
    let cache = cache();
    let root = cache.root();
    let a = cache.create(&root, b"a", Child::directory(2));
    let b = cache.create(&a, b"b", Child::directory(3));
    let file = cache.create(&b, &[b'l'; 40], Child::other(4));
    let all = || [&root, &a, &b, &file].map(Entry::is_reachable);
    assert_eq!(all(), [true; 4]);
    cache.rename(&a, b"b", &root, b"c");
    cache.unlink(&root, b"a");
    assert_eq!(all(), [true, false, true, true]);
    cache.rename(&b, &[b'l'; 40], &a, b"file");
    assert_eq!((all(), file.is_linked()), ([true, false, true, false], true));
    cache.invalidate(&root, b"c");
    assert_eq!(all(), [true, false, false, false]);
    let answer = || Ok::<_, Infallible>(Fill::NotCached(Some(Child::other(5))));
    let Ok(Some(not_kept)) = cache.lookup_or_fill(&root, b"other", answer) else { panic!() };
    assert!(!not_kept.is_reachable());
}

#[test]
fn an_exchange_with_a_name_that_is_not_cached_keeps_what_is() {
    for (here, there) in [("a", "unknown"), ("unknown", "a")] {
        let cache = cache();
        let root = cache.root();
        let other = cache.create(&root, b"other", Child::directory(5));
        let a = cache.create(&root, b"a", Child::directory(2));
        cache.create(&a, b"file", Child::other(3));
        assert!(cache.begin_complete(&root).finish());
        // The first name now has the other's entry.
        let (dir_here, dir_there) = if here == "a" { (&root, &other) } else { (&other, &root) };
        cache.exchange(dir_here, here.as_bytes(), dir_there, there.as_bytes());
        assert!(a.is_reachable(), "a directory that is alive and held");
        assert_eq!((a.name(), a.parent()), (b"unknown".to_vec(), other.clone()));
        assert_eq!(why_not(&cache, &root, "other/unknown/file"), None);
        // The other name is unknown, so the directory is not complete.
        assert_eq!(why_not(&cache, &root, "a"), Some(Reason::Miss));
        assert!(!root.is_complete());
    }
}

/// Regression: a name removed through the directory's new entry is found through the old one.
#[test]
fn nothing_is_read_or_remembered_below_a_directory_that_lives_on_in_another_entry() {
    let cache = cache();
    let root = cache.root();
    let a = cache.create(&root, b"a", Child::directory(2));
    let b = cache.create(&a, b"b", Child::directory(3));
    for name in ["file", "other"] {
        cache.create(&b, name.as_bytes(), Child::other(4));
    }
    assert!(cache.begin_complete(&b).finish());
    // Walks insert paths into the path cache.
    for _ in 0..20 {
        assert_eq!(["file", "b/file"].map(|path| why_not(&cache, &b, path)), [None, None]);
        assert_eq!(why_not(&cache, &a, "b/file"), None);
    }
    cache.invalidate(&root, b"a");
    let new = directory(&cache, &directory(&cache, &root, "a", 2), "b", 3);
    assert_ne!(new, b);
    cache.unlink(&new, b"file");
    for _ in 0..20 {
        let detached = Some(Reason::Detached);
        assert_eq!(["file", "..", "./file"].map(|path| why_not(&cache, &b, path)), [detached; 3]);
        assert_eq!((why_not(&cache, &a, "b/file"), why_not(&cache, &b, "")), (detached, None));
        assert_eq!(why_not(&cache, &b, "absent"), detached);
        assert!(cache.find_many(&b, &["file"], WalkOptions::default(), |_| true).iter().all(is_stopped));
        let walk = cache.walk(&b, b"file", WalkOptions::default(), |_| true);
        assert!(matches!(walk, Walk::Stopped(_)));
    }
    // Each lookup calls `fill` and returns its result.
    for inode in [None, Some(7), None, Some(8)] {
        assert_eq!(fill(&cache, &b, "file", inode), inode);
        assert_eq!(fill(&cache, &b, "new", inode), inode);
    }
    assert!(!b.is_complete() && !cache.begin_complete(&b).finish());
    assert_eq!(why_not(&cache, &new, "file"), None, "the new entry answers as ever");
    assert_eq!(fill(&cache, &new, "file", Some(9)), None);
}

fn is_stopped<F>(walk: &Walk<'_, u64, F>) -> bool {
    matches!(walk, Walk::Stopped(_))
}

#[test]
fn what_is_renamed_out_of_a_detached_directory_is_asked_for() {
    let cache = cache();
    let root = cache.root();
    let a = cache.create(&root, b"a", Child::directory(2));
    cache.create(&a, b"file", Child::other(3));
    cache.create(&root, b"target", Child::other(4));
    cache.invalidate(&root, b"a");
    cache.rename(&a, b"file", &root, b"target");
    assert_eq!(why_not(&cache, &root, "target"), Some(Reason::Miss));
    cache.create(&root, b"target", Child::other(4));
    cache.create(&a, b"file", Child::other(3));
    cache.exchange(&a, b"file", &root, b"target");
    assert_eq!(why_not(&cache, &root, "target"), Some(Reason::Miss));
}

#[test]
fn walks_from_inside_are_served_again_once_nobody_holds_what_was_detached() {
    let cache = cache();
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    cache.create(&dir, b"file", Child::other(3));
    for turn in 0..100 {
        let gone = cache.create(&root, b"gone", Child::directory(10 + turn));
        cache.create(&gone, b"file", Child::other(4));
        cache.unlink(&gone, b"file");
        cache.rename(&root, b"dir", &root, b"gone");
        assert_eq!((why_not(&cache, &gone, ".."), gone.is_reachable()), (Some(Reason::Detached), false));
        assert_eq!(why_not(&cache, &dir, "file"), None);
        cache.rename(&root, b"gone", &root, b"dir");
    }
}

/// Regression: the outdated hint of a detached entry. The kernel checks the start of every walk.
#[test]
fn of_a_detached_start_it_is_asked_whether_it_may_be_searched() {
    let cache = cache();
    let root = cache.root();
    let old = cache.create(&root, b"dir", Child::directory(2));
    cache.invalidate(&root, b"dir");
    cache.set_search(&directory(&cache, &root, "dir", 2), false);
    for (may_search, why) in [(false, Some(Reason::Denied)), (true, None)] {
        let walk = cache.find(&old, b".", WalkOptions::default(), |_| may_search);
        let stopped = if let Walk::Stopped(stopped) = walk { Some(stopped.why) } else { None };
        assert_eq!(stopped, why);
    }
}
