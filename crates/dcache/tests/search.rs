//! The hint that everyone may search a directory.

use dentree_dcache::*;
use std::convert::Infallible;

type Cache = Dcache<u64>;

fn fill(cache: &Cache, dir: &DentryRef<'_, u64>, name: &str, answer: Fill<u64>) -> Option<u64> {
    let Ok(found) = cache.lookup_or_fill(dir, name.as_bytes(), || Ok::<_, Infallible>(answer));
    found.map(|dentry| *dentry.handle())
}

/// Why a walk to `dir/file` stops for a user with the permissions of others.
fn why_denied(cache: &Cache) -> Option<Reason> {
    match cache.find(&cache.root(), b"dir/file", WalkOptions::default(), |_| false) {
        Walk::Stopped(stopped) => Some(stopped.why),
        _ => None,
    }
}

#[test]
fn a_directory_that_is_looked_up_again_has_the_hint_of_the_answer() {
    let cache = Dcache::builder().build(Child::directory(1));
    let root = cache.root();
    for search in [true, false, true] {
        fill(&cache, &root, "dir", Fill::Positive(Child { search, ..Child::directory(2) }));
        let Walk::Found(dir) = cache.walk(&root, b"dir", WalkOptions::default(), |_| true) else { panic!() };
        cache.create(&dir, b"file", Child::other(3));
        assert_eq!(why_denied(&cache), (!search).then_some(Reason::Denied));
        cache.invalidate(&root, b"dir");
    }
}

/// Regression: a result from before the directory was closed opens it again.
#[test]
fn a_directory_that_is_closed_is_not_opened_by_an_answer_that_was_under_way() {
    let cache = Dcache::builder().build(Child::directory(1));
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    let forget = || cache.invalidate(&root, b"dir");
    cache.set_search(&dir, true);
    forget();
    let found = cache.lookup_or_fill(&root, b"dir", || {
        // Read when everyone might search it.
        cache.set_search(&dir, false);
        Ok::<_, Infallible>(Fill::Positive(Child::directory(2)))
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
