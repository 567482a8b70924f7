//! References to entries that a walk from the root no longer leads to: what they tell, and what is read through them.

use dentree_dcache::*;
use std::convert::Infallible;

type Cache = Dcache<u64>;
type Entry<'c> = DentryRef<'c, u64>;

fn cache() -> Cache {
    Dcache::builder().seed(1).build(Child::directory(1))
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
