//! Times to live, with the test's clock.

use dentree_dcache::*;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Clocked {
    cache: Dcache<u64>,
    millis: Arc<AtomicU64>,
}

fn clocked() -> Clocked {
    let millis = Arc::new(AtomicU64::new(5_000));
    let hand = millis.clone();
    let clock = move || Duration::from_millis(hand.load(Ordering::Relaxed));
    Clocked { cache: Dcache::builder().clock(clock).build(Child::directory(1)), millis }
}

fn why_not(cache: &Dcache<u64>, path: &str) -> Option<Reason> {
    match cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true) {
        Walk::Stopped(stopped) => Some(stopped.why),
        _ => None,
    }
}

fn fill(cache: &Dcache<u64>, dir: &DentryRef<'_, u64>, name: &str, answer: Fill<u64>) -> Option<u64> {
    let Ok(found) = cache.lookup_or_fill(dir, name.as_bytes(), || Ok::<_, Infallible>(answer));
    found.map(|dentry| *dentry.handle())
}

#[test]
fn an_entry_is_believed_for_its_time_and_asked_for_again_after_it() {
    let Clocked { cache, millis } = clocked();
    let root = cache.root();
    let ttl = Some(Duration::from_millis(1000));
    fill(&cache, &root, "file", Fill::Positive(Child { ttl, ..Child::other(2) }));
    fill(&cache, &root, "absent", Fill::Negative { ttl });
    fill(&cache, &root, "always", Fill::Positive(Child::other(3)));
    millis.fetch_add(990, Ordering::Relaxed);
    assert_eq!(["file", "absent", "always"].map(|path| why_not(&cache, path)), [None, None, None]);
    millis.fetch_add(10, Ordering::Relaxed);
    let expired = Some(Reason::Expired);
    assert_eq!(["file", "absent", "always"].map(|path| why_not(&cache, path)), [expired, expired, None]);
    assert_eq!(fill(&cache, &root, "file", Fill::Negative { ttl: None }), None);
    assert_eq!(fill(&cache, &root, "absent", Fill::Positive(Child::other(4))), Some(4));
    assert_eq!(["file", "absent"].map(|path| why_not(&cache, path)), [None, None]);
    let stats = cache.stats();
    assert_eq!(stats.stopped_for(Reason::Expired), 2);
}

#[test]
fn an_expired_directory_that_is_the_same_keeps_what_is_below_it() {
    let Clocked { cache, millis } = clocked();
    let root = cache.root();
    let ttl = Some(Duration::from_secs(1));
    fill(&cache, &root, "dir", Fill::Positive(Child { ttl, ..Child::directory(2) }));
    let Walk::Found(dir) = cache.walk(&root, b"dir", WalkOptions::default(), |_| true) else { panic!() };
    cache.create(&dir, b"file", Child::other(3));
    millis.fetch_add(1000, Ordering::Relaxed);
    assert_eq!(why_not(&cache, "dir/file"), Some(Reason::Expired));
    fill(&cache, &root, "dir", Fill::Positive(Child { ttl, ..Child::directory(2) }));
    assert_eq!(why_not(&cache, "dir/file"), None);
    millis.fetch_add(1000, Ordering::Relaxed);
    // Another directory of that name has other entries.
    fill(&cache, &root, "dir", Fill::Positive(Child::directory(9)));
    assert_eq!(why_not(&cache, "dir/file"), Some(Reason::Miss));
}

#[test]
fn a_directory_that_may_change_by_itself_is_never_complete() {
    let Clocked { cache, .. } = clocked();
    let root = cache.root();
    let mut completion = cache.begin_complete(&root);
    completion.enter(b"file", Child { ttl: Some(Duration::from_secs(1)), ..Child::other(2) });
    assert!(!completion.finish());
    let mut completion = cache.begin_complete(&root);
    completion.enter(b"file", Child::other(2));
    assert!(completion.finish());
    assert!(root.is_complete());
}

fn directory(search: bool, ttl: Option<Duration>) -> Fill<u64> {
    Fill::Positive(Child { search, ttl, ..Child::directory(2) })
}

/// Why a walk to `dir/file` stops for a user with the permissions of others.
fn why_denied(cache: &Dcache<u64>) -> Option<Reason> {
    match cache.find(&cache.root(), b"dir/file", WalkOptions::default(), |_| false) {
        Walk::Stopped(stopped) => Some(stopped.why),
        _ => None,
    }
}

#[test]
fn a_directory_that_is_renewed_has_the_search_hint_of_the_answer() {
    let Clocked { cache, millis } = clocked();
    let root = cache.root();
    let ttl = Some(Duration::from_secs(1));
    fill(&cache, &root, "dir", directory(true, ttl));
    let Walk::Found(dir) = cache.walk(&root, b"dir", WalkOptions::default(), |_| true) else { panic!() };
    cache.create(&dir, b"file", Child::other(3));
    for search in [true, false, true, false] {
        millis.fetch_add(1000, Ordering::Relaxed);
        fill(&cache, &root, "dir", directory(search, ttl));
        assert_eq!(why_denied(&cache), (!search).then_some(Reason::Denied));
    }
    // The same when it is listed again.
    for search in [true, false, true] {
        millis.fetch_add(1000, Ordering::Relaxed);
        let mut completion = cache.begin_complete(&root);
        completion.enter(b"dir", Child { search, ttl, ..Child::directory(2) });
        completion.finish();
        assert_eq!(why_denied(&cache), (!search).then_some(Reason::Denied));
    }
}

/// Regression: a result from before the directory was closed opens it again.
#[test]
fn a_directory_that_is_closed_is_not_opened_by_an_answer_that_was_under_way() {
    let Clocked { cache, .. } = clocked();
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    let forget = || cache.invalidate(&root, b"dir");
    cache.set_search(&dir, true);
    forget();
    let found = cache.lookup_or_fill(&root, b"dir", || {
        // Read when everyone might search it.
        cache.set_search(&dir, false);
        Ok::<_, Infallible>(directory(true, None))
    });
    let Ok(Some(found)) = found else { panic!("it is there") };
    fill(&cache, &found, "file", Fill::Positive(Child::other(3)));
    assert_eq!(why_denied(&cache), Some(Reason::Denied));

    forget();
    let mut completion = cache.begin_complete(&root);
    cache.set_search(&found, false);
    completion.enter(b"dir", Child::directory(2));
    completion.finish();
    let Walk::Found(again) = cache.walk(&root, b"dir", WalkOptions::default(), |_| true) else { panic!() };
    fill(&cache, &again, "file", Fill::Positive(Child::other(3)));
    assert_eq!(why_denied(&cache), Some(Reason::Denied));
}

fn held<'c>(cache: &'c Dcache<u64>, ttl: Option<Duration>) -> DentryRef<'c, u64> {
    let ask = || Ok::<_, Infallible>(directory(true, ttl));
    let Ok(dir) = cache.lookup_or_fill(&cache.root(), b"dir", ask);
    dir.expect("it is there")
}

/// Regression: walks from an expired directory use its outdated permissions.
#[test]
fn of_a_start_that_has_expired_it_is_asked_whether_it_may_be_searched() {
    let ttl = Duration::from_secs(1);
    for is_renamed in [false, true] {
        let Clocked { cache, millis } = clocked();
        let dir = held(&cache, Some(ttl));
        millis.fetch_add(1000, Ordering::Relaxed);
        if is_renamed {
            cache.rename(&cache.root(), b"dir", &cache.root(), b"other");
        }
        fill(&cache, &dir, "file", Fill::Positive(Child::other(3)));
        for path in ["file", ".", "./file", ".."] {
            let denied = cache.find(&dir, path.as_bytes(), WalkOptions::default(), |_| false);
            let Walk::Stopped(Stopped { why, .. }) = denied else {
                panic!("{path}, {is_renamed}: {denied:?}")
            };
            assert_eq!(why, Reason::Denied, "{path}");
            let found = cache.find(&dir, path.as_bytes(), WalkOptions::default(), |_| true);
            assert!(matches!(found, Walk::Found(_)), "{path}");
        }
    }
}

/// Regression: a completion keeps an expired name that it did not see.
#[test]
fn a_name_that_had_expired_and_a_completion_did_not_see_is_gone() {
    let Clocked { cache, millis } = clocked();
    let root = cache.root();
    let ttl = Some(Duration::from_secs(1));
    for (name, inode) in [("gone", 2), ("stays", 3)] {
        fill(&cache, &root, name, Fill::Positive(Child { ttl, ..Child::other(inode) }));
    }
    millis.fetch_add(1000, Ordering::Relaxed);
    let mut completion = cache.begin_complete(&root);
    completion.enter(b"stays", Child::other(3));
    assert!(completion.finish());
    assert_eq!(why_not(&cache, "stays"), None);
    assert!(matches!(cache.find(&root, b"gone", WalkOptions::default(), |_| true), Walk::Negative { .. }));
}

/// Regression: a completion that began before a file with a time to live was created makes the
/// directory complete, beyond the file's time.
#[test]
fn a_file_with_a_time_to_live_spoils_a_completion_that_did_not_see_it() {
    let Clocked { cache, .. } = clocked();
    let root = cache.root();
    let completion = cache.begin_complete(&root);
    cache.create(&root, b"file", Child { ttl: Some(Duration::from_secs(1)), ..Child::other(2) });
    assert!(!completion.finish());
}
