//! The path cache saves steps and never returns an outdated result.

use dentree_dcache::*;

const PATH: &[u8] = b"first-directory/second/a-name-of-more-than-thirty-two-bytes-in-all/file";
const MISSING: &[u8] = b"first-directory/second/a-name-of-more-than-thirty-two-bytes-in-all/no such file";

type Entry<'c> = DentryRef<'c, u64>;

/// A cache with the path, whose last directory is complete, and its directories.
fn cache() -> Dcache<u64> {
    let cache = Dcache::builder().memory(1 << 20).seed(7).build(Child::directory(1));
    let mut dir = cache.root();
    for (name, inode) in PATH.split(|&byte| byte == b'/').zip(2..5) {
        dir = cache.create(&dir, name, Child::directory(inode));
    }
    let mut completion = cache.begin_complete(&dir);
    completion.enter(b"file", Child::other(5));
    completion.enter(b"other", Child::other(6));
    assert!(completion.finish());
    drop(dir);
    cache
}

fn walk(cache: &Dcache<u64>, path: &[u8]) -> Result<u64, Option<Reason>> {
    let options = WalkOptions::default();
    let held = match cache.walk(&cache.root(), path, options, |_| false) {
        Walk::Found(entry) => Ok(*entry.handle()),
        Walk::Negative { at, end } => {
            assert!(at == 0 || path[at - 1] == b'/');
            assert!(end == path.len() || path[end] == b'/');
            Err(None)
        }
        Walk::Stopped(stopped) => Err(Some(stopped.why)),
    };
    let seen = match cache.find(&cache.root(), path, options, |_| false) {
        Walk::Found(seen) => Ok(seen.handle),
        Walk::Negative { .. } => Err(None),
        Walk::Stopped(stopped) => Err(Some(stopped.why)),
    };
    assert_eq!(held, seen, "{}", String::from_utf8_lossy(path));
    held
}

/// Walks until nothing is left to insert.
fn learn(cache: &Dcache<u64>) {
    for _ in 0..20 {
        assert_eq!((walk(cache, PATH), walk(cache, MISSING)), (Ok(5), Err(None)));
    }
}

#[test]
fn a_path_is_stepped_once() {
    let cache = cache();
    assert_eq!(walk(&cache, PATH), Ok(5));
    let learnt = cache.stats();
    assert_eq!(learnt.cached_paths, 1, "the second of two walks");
    let other = [&PATH[..PATH.len() - 4], b"other"].concat();
    for _ in 0..10 {
        assert_eq!((walk(&cache, PATH), walk(&cache, &other)), (Ok(5), Ok(6)));
    }
    let stats = cache.stats();
    assert_eq!(stats.walks - stats.cached_paths, 2, "one for each path");
    assert_eq!((stats.fills, stats.locked_hits, stats.retries), (0, 0, 0));
    assert_eq!((stats.walks, stats.components), (stats.found, 4 * stats.found));
    assert_eq!(stats.memory.used - learnt.memory.used, 64, "its entry");
}

#[test]
fn below_a_renamed_directory_paths_are_found_as_anywhere() {
    let cache = cache();
    let root = cache.root();
    cache.rename(&root, b"first-directory", &root, b"moved");
    let below = [b"moved", &PATH[b"first-directory".len()..]].concat();
    for _ in 0..100 {
        assert_eq!(walk(&cache, &below), Ok(5));
    }
    let Stats { walks, cached_paths, .. } = cache.stats();
    assert_eq!(walks - cached_paths, 1);
    // Not after another rename.
    cache.rename(&root, b"moved", &root, b"gone");
    for _ in 0..20 {
        assert_eq!(walk(&cache, &below), Err(None));
    }
    cache.rename(&root, b"gone", &root, b"moved");
    assert_eq!(walk(&cache, &below), Ok(5));
    cache.set_search(&found(&cache, b"moved/second"), false);
    assert_eq!(walk(&cache, &below), Err(Some(Reason::Denied)));
}

#[test]
fn a_path_that_is_not_plain_is_not_cached() {
    let cache = cache();
    let dotted = [b"./", PATH].concat();
    let back = [b"first-directory/../", PATH].concat();
    for path in [dotted, back] {
        for _ in 0..20 {
            assert_eq!(walk(&cache, &path), Ok(5));
        }
    }
    assert_eq!(cache.stats().cached_paths, 0);
}

#[test]
fn a_negative_entry_is_cached_as_well() {
    let cache = cache();
    let dir = found(&cache, b"first-directory");
    cache.unlink(&dir, b"gone");
    for _ in 0..100 {
        assert_eq!(walk(&cache, b"first-directory/gone"), Err(None));
    }
    let Stats { negative, cached_paths, .. } = cache.stats();
    assert_eq!((negative, cached_paths), (200, 199));
    cache.create(&dir, b"gone", Child::other(9));
    assert_eq!(walk(&cache, b"first-directory/gone"), Ok(9));
}

#[test]
fn a_link_ends_a_known_path_only_where_it_is_wanted() {
    let cache = cache();
    let dir = found(&cache, b"first-directory/second");
    cache.create(&dir, b"link", Child::symlink(9));
    let keep = WalkOptions { keep_last_link: true, ..WalkOptions::default() };
    for _ in 0..20 {
        assert_eq!(walk(&cache, b"first-directory/second/link"), Err(Some(Reason::Symlink)));
        let kept = cache.find(&cache.root(), b"first-directory/second/link", keep, |_| false);
        assert!(matches!(kept, Walk::Found(seen) if seen.handle == 9));
    }
}

#[test]
fn a_path_from_two_directories_is_two_paths() {
    let cache = cache();
    let base = found(&cache, b"first-directory");
    for _ in 0..20 {
        assert_eq!(walk(&cache, PATH), Ok(5));
        let below = &PATH[b"first-directory/".len()..];
        let seen = cache.find(&base, below, WalkOptions::default(), |_| false);
        assert!(matches!(seen, Walk::Found(seen) if seen.handle == 5));
        let astray = cache.find(&base, PATH, WalkOptions::default(), |_| false);
        assert!(matches!(astray, Walk::Stopped(Stopped { why: Reason::Miss, .. })));
    }
}

fn found<'c>(cache: &'c Dcache<u64>, path: &[u8]) -> Entry<'c> {
    match cache.walk(&cache.root(), path, WalkOptions::default(), |_| true) {
        Walk::Found(entry) => entry,
        other => panic!("{other:?}"),
    }
}

/// The results of two cached paths after `change`, one positive and one negative.
fn after(change: impl Fn(&Dcache<u64>)) -> [Result<u64, Option<Reason>>; 2] {
    let cache = cache();
    learn(&cache);
    change(&cache);
    let answers = [walk(&cache, PATH), walk(&cache, MISSING)];
    // Also after walks that could have inserted something else.
    for _ in 0..20 {
        assert_eq!([walk(&cache, PATH), walk(&cache, MISSING)], answers);
    }
    answers
}

#[test]
fn a_change_of_any_directory_on_a_path_is_seen() {
    let miss = [Err(Some(Reason::Miss)); 2];
    let dirs = PATH.split(|&byte| byte == b'/').count() - 1;
    for depth in 0..dirs {
        let names: Vec<&[u8]> = PATH.split(|&byte| byte == b'/').collect();
        let above = |cache: &Dcache<u64>, then: &dyn Fn(&Entry<'_>, &[u8])| {
            let above = names[..depth].join(&b'/');
            then(&if above.is_empty() { cache.root() } else { found(cache, &above) }, names[depth]);
        };
        let renamed = after(|cache| above(cache, &|dir, name| cache.rename(dir, name, dir, b"moved")));
        assert_eq!(renamed, [Err(None); 2], "{depth}");
        let moved =
            after(|cache| above(cache, &|dir, name| cache.rename(dir, name, &cache.root(), b"moved")));
        assert_eq!(moved, [Err(None); 2], "{depth}");
        let removed = after(|cache| above(cache, &|dir, name| cache.unlink(dir, name)));
        assert_eq!(removed, [Err(None); 2], "{depth}");
        let forgotten = after(|cache| above(cache, &|dir, name| cache.invalidate(dir, name)));
        assert_eq!(forgotten, miss, "{depth}");
        let replaced = after(|cache| {
            above(cache, &|dir, name| {
                cache.create(dir, name, Child::directory(99));
            });
        });
        assert_eq!(replaced, miss, "{depth}");
        let is_file = after(|cache| {
            above(cache, &|dir, name| {
                cache.create(dir, name, Child::other(99));
            });
        });
        assert_eq!(is_file, [Err(Some(Reason::NotADirectory)); 2], "{depth}");
        let closed = after(|cache| cache.set_search(&found(cache, &names[..=depth].join(&b'/')), false));
        assert_eq!(closed, [Err(Some(Reason::Denied)); 2], "{depth}");
    }
    assert_eq!(after(|cache| cache.set_search(&cache.root(), false)), [Err(Some(Reason::Denied)); 2]);
    assert_eq!(after(|cache| assert!(cache.prune(usize::MAX) > 0)), miss);
    assert_eq!(after(|_| {}), [Ok(5), Err(None)]);
}

#[test]
fn a_change_at_the_end_of_a_path_is_seen() {
    let dir = &PATH[..PATH.len() - "/file".len()];
    let unlinked = after(|cache| cache.unlink(&found(cache, dir), b"file"));
    assert_eq!(unlinked, [Err(None); 2]);
    let made = after(|cache| drop(cache.create(&found(cache, dir), b"no such file", Child::other(8))));
    assert_eq!(made, [Ok(5), Ok(8)]);
    let renamed = after(|cache| {
        let dir = found(cache, dir);
        cache.rename(&dir, b"file", &dir, b"no such file");
    });
    assert_eq!(renamed, [Err(None), Ok(5)]);
    let evicted = after(|cache| cache.invalidate(&found(cache, dir), b"other"));
    assert_eq!(evicted, [Ok(5), Err(Some(Reason::Miss))], "no longer complete");
}

/// Reuses the same numbers under other names, in other directories.
#[test]
fn what_uses_a_number_again_is_not_taken_for_what_was_cached() {
    let cache = Dcache::builder().memory(64 << 10).seed(7).build(Child::directory(1_u64));
    let root = cache.root();
    for round in 0..200_u64 {
        // All in the same slots, as the cache has nothing else.
        let dir = cache.create(&root, format!("dir{}", round % 3).as_bytes(), Child::directory(2));
        drop(cache.create(&dir, format!("file{}", round % 5).as_bytes(), Child::other(100 + round)));
        drop(dir);
        for (d, f) in (0..15).map(|i| (i % 3, i / 3)) {
            let is_it = (round % 3, round % 5) == (d, f);
            let expected = if is_it { Ok(100 + round) } else { Err(Some(Reason::Miss)) };
            for _ in 0..if is_it { 4 } else { 1 } {
                let found = walk(&cache, format!("dir{d}/file{f}").as_bytes());
                assert_eq!(found, expected, "{round} {d} {f}");
            }
        }
        cache.prune(usize::MAX);
    }
    assert!(cache.stats().cached_paths > 10);
}
