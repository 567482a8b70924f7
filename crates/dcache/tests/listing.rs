//! Listings of complete directories while others scan them: each name once, in the order of the file system.

use dentree_dcache::*;

type Cache = Dcache<u64>;

const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

fn cache() -> Cache {
    Dcache::builder().seed(1).build(Child::directory(1))
}

/// Enters these names, in their order.
fn enter(completion: &mut Completion<'_, u64>, names: &[&[u8]]) {
    for name in names {
        completion.enter(name, Child::other(name[0].into()), name[0].into());
    }
}

fn complete(cache: &Cache) {
    let mut completion = cache.begin_complete(&cache.root());
    enter(&mut completion, &NAMES);
    assert!(completion.finish());
}

/// As many names as the cache lists, two at a time; `None` where it asks for a scan.
fn listed(cache: &Cache, mut cursor: ListCursor) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    loop {
        let some = cache.children(&cache.root(), &mut cursor, 2)?;
        if some.is_empty() {
            return Some(names);
        }
        names.extend(some.into_iter().map(|child| child.name));
    }
}

#[test]
fn a_listing_of_a_directory_that_is_scanned_again_repeats_no_name() {
    let cache = cache();
    complete(&cache);
    assert_eq!(listed(&cache, ListCursor::default()), Some(NAMES.map(<[u8]>::to_vec).to_vec()));
    let mut again = cache.begin_complete(&cache.root());
    enter(&mut again, &NAMES[..1]);
    // In the middle of the second scan the first name stands last.
    assert_eq!(listed(&cache, ListCursor::after(b'a'.into())), None);
    enter(&mut again, &NAMES[1..]);
    assert!(again.finish());
    assert_eq!(listed(&cache, ListCursor::after(b'a'.into())), Some(vec![b"b".to_vec(), b"c".to_vec()]));
}

#[test]
fn a_name_without_a_place_is_not_listed_because_another_scan_has_begun() {
    let cache = cache();
    let root = cache.root();
    let mut completion = cache.begin_complete(&root);
    enter(&mut completion, &NAMES);
    cache.create(&root, b"0", Child::other(5));
    let another = cache.begin_complete(&root);
    assert!(completion.finish());
    assert_eq!(listed(&cache, ListCursor::default()), None);
    assert!(another.finish());
}

#[test]
fn two_scans_at_once_leave_no_order_to_list_by() {
    let cache = cache();
    let root = cache.root();
    let mut first = cache.begin_complete(&root);
    let mut second = cache.begin_complete(&root);
    enter(&mut second, &NAMES[..2]);
    enter(&mut first, &NAMES);
    enter(&mut second, &NAMES[2..]);
    assert!(second.finish() && first.finish());
    assert_eq!(listed(&cache, ListCursor::default()), None);
    complete(&cache);
    assert!(listed(&cache, ListCursor::default()).is_some());
}

/// The bug to be found: what the file system had said before the name was replaced.
#[test]
fn a_scan_does_not_bring_back_what_was_replaced_since() {
    let cache = cache();
    let root = cache.root();
    let mut completion = cache.begin_complete(&root);
    let new = cache.create(&root, b"a", Child::other(5));
    enter(&mut completion, &NAMES);
    assert!(completion.finish());
    assert!(new.is_reachable());
    let found = cache.lookup(&root, b"a").flatten();
    assert_eq!(found.map(|found| *found.handle()), Some(5));
    // Nor what the scan saw before everything expired.
    let mut completion = cache.begin_complete(&root);
    cache.expire_all();
    let ask = || Ok::<_, ()>(Fill::Positive(Child::other(6)));
    let Ok(Some(newer)) = cache.lookup_or_fill(&root, b"b", ask) else { panic!("it is there") };
    enter(&mut completion, &NAMES);
    assert!(!completion.finish());
    assert_eq!((newer.is_reachable(), *newer.handle()), (true, 6));
}
