//! Walks after names are created, looked up, unlinked, renamed, exchanged and invalidated.

use dentree_dcache::*;
use std::convert::Infallible;

type Cache = Dcache<u64>;

fn cache() -> Cache {
    Dcache::builder().seed(1).build(Child::directory(1))
}

/// The result of a walk from the root.
#[derive(Debug, PartialEq)]
enum Seen {
    Inode(u64),
    Absent,
    Stopped(Reason, usize),
}

fn walk(cache: &Cache, path: &str) -> Seen {
    match cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true) {
        Walk::Found(dentry) => Seen::Inode(*dentry.handle()),
        Walk::Negative { .. } => Seen::Absent,
        Walk::Stopped(stopped) => Seen::Stopped(stopped.why, stopped.rest),
    }
}

fn miss(at: usize) -> Seen {
    Seen::Stopped(Reason::Miss, at)
}

#[test]
fn a_created_path_is_found_with_any_slashes_and_dots() {
    let cache = cache();
    let usr = cache.create(&cache.root(), b"usr", Child::directory(2));
    let bin = cache.create(&usr, b"bin", Child::directory(3));
    cache.create(&bin, b"env", Child::other(4));
    for path in
        ["usr/bin/env", "/usr/bin/env", "//usr///bin/./env", "usr/../usr/bin/../bin/env", "./usr/bin/env"]
    {
        assert_eq!(walk(&cache, path), Seen::Inode(4), "{path}");
    }
    assert_eq!(walk(&cache, "usr/bin/"), Seen::Inode(3));
    assert_eq!(walk(&cache, ""), Seen::Inode(1));
    assert_eq!(walk(&cache, "///"), Seen::Inode(1));
    assert_eq!(walk(&cache, "usr/bin/env/"), Seen::Stopped(Reason::NotADirectory, 8));
    assert_eq!(walk(&cache, "usr/bin/env/x"), Seen::Stopped(Reason::NotADirectory, 8));
    assert_eq!(walk(&cache, "usr/sbin/x"), miss(4));
    assert_eq!(walk(&cache, "usr/.."), Seen::Inode(1));
    assert_eq!(walk(&cache, "usr/../.."), Seen::Stopped(Reason::Floor, 7));
    assert_eq!(bin.name(), b"bin");
    assert_eq!(bin.parent(), usr);
}

#[test]
fn names_of_every_length_are_found_and_told_apart() {
    let cache = cache();
    let names: Vec<String> = (1..=255).map(|len| "n".repeat(len)).collect();
    for (name, inode) in names.iter().zip(1000..) {
        let dentry = cache.create(&cache.root(), name.as_bytes(), Child::other(inode));
        assert_eq!(dentry.name(), name.as_bytes());
    }
    for (name, inode) in names.iter().zip(1000..) {
        assert_eq!(walk(&cache, name), Seen::Inode(inode));
    }
    assert_eq!(walk(&cache, &"n".repeat(256)), Seen::Stopped(Reason::NameTooLong, 0));
}

#[test]
fn a_link_stops_the_walk_unless_it_is_last_and_kept() {
    let cache = cache();
    let root = cache.root();
    let etc = cache.create(&root, b"etc", Child::directory(2));
    cache.create(&etc, b"link", Child::symlink(3));
    let keep = WalkOptions { keep_last_link: true, ..WalkOptions::default() };
    for (path, options, rest) in
        [("etc/link", WalkOptions::default(), 8), ("etc/link/x", keep, 8), ("etc/link/", keep, 8)]
    {
        let Walk::Stopped(stopped) = cache.walk(&root, path.as_bytes(), options, |_| true) else {
            panic!("{path}")
        };
        assert_eq!((stopped.why, stopped.rest), (Reason::Symlink, rest));
        assert_eq!(stopped.dir, etc);
        assert_eq!(stopped.link.map(|link| *link.handle()), Some(3));
    }
    assert!(matches!(cache.walk(&root, b"etc/link", keep, |_| true), Walk::Found(_)));
}

#[test]
fn a_directory_without_the_hint_is_asked_about_and_may_refuse() {
    let cache = cache();
    let root = cache.root();
    let home = cache.create(&root, b"home", Child { search: false, ..Child::directory(2) });
    cache.create(&home, b"file", Child::other(3));
    let mut asked = Vec::new();
    let walk = cache.walk(&root, b"home/./file", WalkOptions::default(), |&inode| {
        asked.push(inode);
        true
    });
    assert!(matches!(walk, Walk::Found(_)));
    assert_eq!(asked, [2]);
    let Walk::Stopped(stopped) = cache.walk(&root, b"home/file", WalkOptions::default(), |_| false) else {
        panic!()
    };
    assert_eq!((stopped.why, stopped.rest, *stopped.dir.handle()), (Reason::Denied, 5, 2));
    // Search permission of the last component is not needed.
    assert!(matches!(cache.walk(&root, b"home/", WalkOptions::default(), |_| false), Walk::Found(_)));
    cache.set_search(&home, true);
    assert!(matches!(cache.walk(&root, b"home/file", WalkOptions::default(), |_| false), Walk::Found(_)));
}

#[test]
fn the_floor_holds_dot_dot_back() {
    let cache = cache();
    let a = cache.create(&cache.root(), b"a", Child::directory(2));
    let b = cache.create(&a, b"b", Child::directory(3));
    let options = WalkOptions { floor: Some(a.id()), ..WalkOptions::default() };
    assert!(matches!(cache.walk(&b, b"..", options, |_| true), Walk::Found(dir) if dir == a));
    let Walk::Stopped(stopped) = cache.walk(&b, b"../../a", options, |_| true) else { panic!() };
    assert_eq!((stopped.why, stopped.rest), (Reason::Floor, 3));
    assert_eq!(stopped.dir, a);
}

/// Regression: a floor whose number is reused, or free, stops nothing.
#[test]
fn a_floor_that_is_gone_holds_every_dot_dot_back() {
    let cache = cache();
    let root = cache.root();
    let a = cache.create(&root, b"a", Child::directory(2));
    cache.create(&a, b"file", Child::other(3));
    let gone = cache.create(&root, b"gone", Child::directory(4)).id();
    cache.unlink(&root, b"gone");
    let made_up = DentryId::from_bits(a.id().to_bits() | 7 << 32);
    for floor in [gone, made_up, DentryId::from_bits(0), DentryId::from_bits(u64::MAX)] {
        let options = WalkOptions { floor: Some(floor), ..WalkOptions::default() };
        assert!(matches!(cache.walk(&a, b"file", options, |_| true), Walk::Found(_)));
        for start in [&root, &a] {
            let walk = cache.walk(start, b"..", options, |_| true);
            assert!(matches!(walk, Walk::Stopped(Stopped { why: Reason::Floor, .. })), "{floor:?}: {walk:?}");
        }
    }
    // A directory beside the walk; the root is always a floor.
    let options = WalkOptions { floor: Some(a.id()), ..WalkOptions::default() };
    let walk = cache.walk(&root, b"..", options, |_| true);
    assert!(matches!(walk, Walk::Stopped(Stopped { why: Reason::Floor, .. })), "{walk:?}");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "looks up the name that it was called for")]
fn a_fill_that_looks_its_own_name_up_panics_and_does_not_hang() {
    let cache = cache();
    let root = cache.root();
    let there = || Ok::<_, Infallible>(Fill::Positive(Child::other(2)));
    let _ = cache.lookup_or_fill(&root, b"name", || {
        cache.lookup_or_fill(&root, b"name", there)?;
        there()
    });
}

#[test]
fn a_miss_is_asked_for_once_and_remembered_either_way() {
    let cache = cache();
    let root = cache.root();
    let mut questions = 0;
    for _ in 0..3 {
        let found = cache.lookup_or_fill(&root, b"there", || {
            questions += 1;
            Ok::<_, Infallible>(Fill::Positive(Child::other(5)))
        });
        assert_eq!(found.map(|found| found.map(|dentry| *dentry.handle())), Ok(Some(5)));
        let found = cache.lookup_or_fill(&root, b"absent", || {
            questions += 1;
            Ok::<_, Infallible>(Fill::Negative)
        });
        assert_eq!(found, Ok(None));
    }
    assert_eq!(questions, 2);
    assert_eq!(walk(&cache, "absent"), Seen::Absent);
    let error = cache.lookup_or_fill(&root, b"broken", || Err("I/O"));
    assert_eq!(error, Err("I/O"));
    assert_eq!(walk(&cache, "broken"), miss(0));
}

#[test]
fn an_answer_that_must_not_be_kept_is_not() {
    let cache = cache();
    let root = cache.root();
    let found =
        cache.lookup_or_fill(&root, b"Name", || Ok::<_, Infallible>(Fill::NotCached(Some(Child::other(5)))));
    let dentry = found.expect("infallible").expect("there");
    assert_eq!((*dentry.handle(), dentry.is_linked()), (5, false));
    assert_eq!(walk(&cache, "Name"), miss(0));
    drop(dentry);
    for bad in [&b""[..], b".", b"..", b"a/b", &[b'x'; 256]] {
        let found = cache.lookup_or_fill(&root, bad, || Ok::<_, Infallible>(Fill::Positive(Child::other(6))));
        assert_eq!(found.expect("infallible").map(|dentry| *dentry.handle()), Some(6));
    }
    assert_eq!(cache.stats().held, 0);
}

fn path_of(dentry: &DentryRef<'_, u64>) -> String {
    let mut names = Vec::new();
    let mut at = dentry.clone();
    while at != at.cache().root() {
        names.push(String::from_utf8(at.name()).expect("names of this test"));
        at = at.parent();
    }
    names.reverse();
    names.join("/")
}

/// In place of a list of aliases: each name is an entry, and a change says which.
#[test]
fn names_of_one_inode_live_apart_and_each_leads_up_its_own_way() {
    let cache = cache();
    let root = cache.root();
    let (a, b) =
        (cache.create(&root, b"a", Child::directory(2)), cache.create(&root, b"b", Child::directory(3)));
    let one = cache.create(&a, b"one", Child::other(9));
    let two = cache.create(&b, b"two", Child::other(9));
    let both = |cache: &Cache| (0..20).map(|_| [walk(cache, "a/one"), walk(cache, "b/two")]).next_back();
    assert_eq!(both(&cache), Some([Seen::Inode(9), Seen::Inode(9)]));
    assert!(one != two && one.handle() == two.handle());
    assert_eq!([path_of(&one), path_of(&two)], ["a/one", "b/two"]);

    cache.rename(&b, b"two", &a, b"three");
    assert_eq!(both(&cache), Some([Seen::Inode(9), Seen::Absent]));
    assert_eq!((walk(&cache, "a/three"), path_of(&two)), (Seen::Inode(9), "a/three".into()));

    cache.unlink(&a, b"one");
    assert_eq!(both(&cache), Some([Seen::Absent, Seen::Absent]));
    assert!(!one.is_linked() && two.is_linked());
    assert_eq!(walk(&cache, "a/three"), Seen::Inode(9));

    // A rename above one name moves that one alone.
    cache.create(&b, b"four", Child::other(9));
    cache.rename(&root, b"a", &b, b"a");
    assert_eq!([walk(&cache, "b/a/three"), walk(&cache, "b/four")], [Seen::Inode(9), Seen::Inode(9)]);
    assert_eq!(
        (walk(&cache, "a/three"), path_of(&two), path_of(&a)),
        (Seen::Absent, "b/a/three".into(), "b/a".into())
    );
}

#[test]
fn unlink_leaves_a_negative_entry_and_holders_keep_theirs() {
    let cache = cache();
    let root = cache.root();
    let file = cache.create(&root, b"file", Child::other(2));
    let id = file.id();
    cache.unlink(&root, b"file");
    assert_eq!(walk(&cache, "file"), Seen::Absent);
    assert_eq!((*file.handle(), file.is_linked()), (2, false));
    assert_eq!(cache.get(id).as_ref(), Some(&file));
    drop(file);
    assert_eq!(cache.get(id), None);
    cache.create(&root, b"file", Child::other(3));
    assert_eq!(walk(&cache, "file"), Seen::Inode(3));
    assert_eq!(cache.get(id), None, "a stale id stays stale");
}

#[test]
fn a_renamed_directory_takes_all_below_it_along() {
    let cache = cache();
    let root = cache.root();
    let a = cache.create(&root, b"a", Child::directory(2));
    let deep = cache.create(&a, b"deep", Child::directory(3));
    cache.create(&deep, b"file", Child::other(4));
    let other = cache.create(&root, b"other", Child::directory(5));
    cache.create(&other, &[b'l'; 40], Child::other(6));
    for (from_dir, from, to_dir, to) in [
        (&root, &b"a"[..], &root, &b"b"[..]),
        (&root, b"b", &other, &[b'l'; 40]),
        (&other, &[b'l'; 40], &root, &[b'm'; 200]),
        (&root, &[b'm'; 200], &root, b"a"),
    ] {
        cache.rename(from_dir, from, to_dir, to);
        let prefix = if to_dir == &root { String::new() } else { "other/".into() };
        let to = String::from_utf8_lossy(to).into_owned();
        assert_eq!(walk(&cache, &format!("{prefix}{to}/deep/file")), Seen::Inode(4));
        assert_eq!(walk(&cache, &format!("{prefix}{to}/deep/../..")), walk(&cache, &prefix));
        let old = String::from_utf8_lossy(from).into_owned();
        let prefix = if from_dir == &root { String::new() } else { "other/".into() };
        assert_eq!(walk(&cache, &format!("{prefix}{old}/deep")), Seen::Absent);
        assert_eq!(a.name(), to.as_bytes());
    }
}

#[test]
fn exchange_swaps_two_names() {
    let cache = cache();
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    cache.create(&dir, b"in", Child::other(3));
    let other = cache.create(&root, b"other", Child::directory(4));
    cache.create(&other, b"file", Child::other(5));
    cache.exchange(&root, b"dir", &other, b"file");
    assert_eq!(walk(&cache, "other/file/in"), Seen::Inode(3));
    assert_eq!(walk(&cache, "dir"), Seen::Inode(5));
    cache.exchange(&root, b"dir", &root, b"unknown");
    assert_eq!(walk(&cache, "dir"), miss(0));
    assert_eq!(walk(&cache, "unknown"), Seen::Inode(5));
    cache.exchange(&root, b"dir", &root, b"too");
    assert_eq!([walk(&cache, "dir"), walk(&cache, "too")], [miss(0), miss(0)]);
}

#[test]
fn a_rename_that_would_make_a_circle_is_forgotten_instead() {
    let cache = cache();
    let root = cache.root();
    let a = cache.create(&root, b"a", Child::directory(2));
    let b = cache.create(&a, b"b", Child::directory(3));
    cache.rename(&root, b"a", &b, b"c");
    assert_eq!(walk(&cache, "a"), Seen::Absent);
    assert_eq!(b.parent(), a);
    assert!(!a.is_linked());
}

#[test]
fn rename_of_an_unknown_name_forgets_the_target() {
    let cache = cache();
    let root = cache.root();
    cache.create(&root, b"target", Child::other(2));
    cache.rename(&root, b"unknown", &root, b"target");
    assert_eq!(walk(&cache, "target"), miss(0));
    assert_eq!(walk(&cache, "unknown"), Seen::Absent);
}

#[test]
fn invalidate_forgets_without_saying_that_it_is_gone() {
    let cache = cache();
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    cache.create(&dir, b"file", Child::other(3));
    cache.invalidate(&root, b"dir");
    assert_eq!(walk(&cache, "dir/file"), miss(0));
    // It lives on in another entry.
    let walk = cache.walk(&dir, b"file", WalkOptions::default(), |_| true);
    assert!(matches!(walk, Walk::Stopped(Stopped { why: Reason::Miss | Reason::Detached, .. })));
}

#[test]
fn new_directories_do_not_share_the_seed_of_one_that_moved_away() {
    let cache = cache();
    let root = cache.root();
    for i in 0..300 {
        let dir = cache.create(&root, b"tmp", Child::directory(10 + i));
        cache.create(&dir, b"same name", Child::other(1000 + i));
        cache.rename(&root, b"tmp", &root, format!("final{i}").as_bytes());
    }
    for i in 0..300 {
        assert_eq!(walk(&cache, &format!("final{i}/same name")), Seen::Inode(1000 + i));
    }
}

#[test]
fn find_answers_the_inode_and_holds_nothing() {
    let cache = cache();
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    cache.create(&dir, b"file", Child::other(3));
    drop(dir);
    let find = |path: &[u8]| cache.find(&root, path, WalkOptions::default(), |_| true);
    let Walk::Found(seen) = find(b"dir/file") else { panic!("it is cached") };
    assert_eq!((seen.handle, seen.kind), (3, Kind::Other));
    assert_eq!(cache.stats().held, 0);
    // The directory where it stops is held.
    let Walk::Stopped(stopped) = find(b"dir/none") else { panic!("it was never asked for") };
    assert_eq!((stopped.rest, *stopped.dir.handle(), cache.stats().held), (4, 2, 1));
    drop(stopped);
    assert_eq!(cache.stats().held, 0);
}

#[test]
fn the_id_of_what_was_found_tells_whether_it_is_still_there() {
    let cache = cache();
    let root = cache.root();
    cache.create(&root, b"file", Child::other(2));
    let find = |path: &[u8]| match cache.find(&root, path, WalkOptions::default(), |_| true) {
        Walk::Found(seen) => seen,
        other => panic!("{other:?}"),
    };
    let seen = find(b"file");
    assert!(cache.is_linked(seen.id) && cache.is_linked(find(b"").id));
    cache.rename(&root, b"file", &root, b"moved");
    assert!(cache.is_linked(seen.id));
    let held = cache.get(seen.id);
    cache.unlink(&root, b"moved");
    assert!(!cache.is_linked(seen.id), "held, but without a name");
    drop(held);
    // Reuses the slot.
    (0..1000).for_each(|i| drop(cache.create(&root, format!("{i}").as_bytes(), Child::other(i))));
    assert!(!cache.is_linked(seen.id) && cache.get(seen.id).is_none());
    assert!([0, 3 << 32 | 1, u64::MAX].iter().all(|&bits| !cache.is_linked(DentryId::from_bits(bits))));
}

#[test]
fn ids_survive_as_numbers_and_made_up_ones_find_nothing() {
    let cache = cache();
    let root = cache.root();
    assert_eq!(root.id().to_bits(), 1);
    let file = cache.create(&root, b"file", Child::other(2));
    cache.unlink(&root, b"absent");
    assert_eq!(cache.get(DentryId::from_bits(file.id().to_bits())), Some(file));
    for bits in [0, 3, 4, 99, 1 << 32 | 1, u64::MAX, u64::from(u32::MAX)] {
        assert_eq!(cache.get(DentryId::from_bits(bits)), None, "{bits}");
    }
}

#[test]
fn many_paths_at_once_end_as_each_alone_with_every_sort_of_prefetch() {
    for mode in [PrefetchMode::Off, PrefetchMode::On, PrefetchMode::Auto] {
        let cache = Dcache::builder().seed(1).prefetch(mode).build(Child::directory(1));
        let root = cache.root();
        for dir in 0..200 {
            let handle = cache.create(&root, format!("dir{dir}").as_bytes(), Child::directory(dir));
            for file in 0..200 {
                cache.create(&handle, format!("file{file}").as_bytes(), Child::other(1000 * dir + file));
            }
        }
        cache.rename(&root, b"dir7", &root, b"renamed");
        let paths: Vec<String> = (0..4000).map(|i| format!("dir{}/file{}", i % 210, i % 211)).collect();
        let many = cache.find_many(&root, &paths, WalkOptions::default(), |_| true);
        for (path, together) in paths.iter().zip(many) {
            let together = match together {
                Walk::Found(found) => Seen::Inode(found.handle),
                Walk::Negative { .. } => Seen::Absent,
                Walk::Stopped(stopped) => Seen::Stopped(stopped.why, stopped.rest),
            };
            assert_eq!(walk(&cache, path), together);
        }
        assert_eq!(walk(&cache, "renamed/file7"), Seen::Inode(7007));
        assert_eq!(cache.stats().prefetched > 0, mode != PrefetchMode::Off);
    }
}

/// A file system: `/d/e/f`, a link `/d/l`.
fn ask(dir: &DentryRef<'_, u64>, name: &[u8]) -> Result<Fill<u64>, &'static str> {
    Ok(match (*dir.handle(), name) {
        (1, b"d") => Fill::Positive(Child::directory(2)),
        (2, b"e") => Fill::NotCached(Some(Child::directory(3))),
        (3, b"f") => Fill::Positive(Child::other(4)),
        (2, b"l") => Fill::Positive(Child::symlink(5)),
        (_, b"bad") => return Err("read error"),
        _ => Fill::Negative,
    })
}

#[test]
fn a_walk_that_fills_ends_as_one_whose_names_are_cached() {
    let cache = Dcache::builder().build(Child::directory(1));
    let root = cache.root();
    let walk = |path: &str| cache.walk_or_fill(&root, path.as_bytes(), WalkOptions::default(), |_| true, ask);
    let found = |path: &str| match walk(path) {
        Ok(Walk::Found(entry)) => Some(*entry.handle()),
        _ => None,
    };
    for _ in 0..2 {
        assert_eq!(
            [found("d"), found("//d//e/"), found("d/e/f"), found("d/e/../l/.")],
            [Some(2), Some(3), Some(4), None]
        );
        assert!(matches!(walk("d/none/more"), Ok(Walk::Negative { at: 2, end: 6 })));
        assert!(matches!(walk("d/e/bad"), Err("read error")));
        let Ok(Walk::Stopped(link)) = walk("d/l/more") else { panic!("a link") };
        assert_eq!(
            (link.why, link.rest, link.link.map(|link| *link.handle())),
            (Reason::Symlink, 3, Some(5))
        );
        let Ok(Walk::Stopped(file)) = walk("d/e/f/more") else { panic!("a file") };
        assert_eq!((file.why, file.rest, *file.dir.handle()), (Reason::NotADirectory, 4, 3));
        let Ok(Walk::Stopped(floor)) = walk("d/../..") else { panic!("the root") };
        assert_eq!((floor.why, floor.rest), (Reason::Floor, 5));
    }
}

#[test]
fn the_children_and_the_path_of_an_entry_are_told() {
    let cache = cache();
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(2));
    let long = [b'n'; 200];
    for (name, inode) in [(&b"a"[..], 3), (b"b", 4), (&long, 5)] {
        cache.create(&dir, name, Child::other(inode));
    }
    cache.unlink(&dir, b"a");
    let mut children: Vec<_> =
        cache.children(&dir).iter().map(|child| (*child.handle(), child.path())).collect();
    children.sort_unstable();
    let path = |name: &[u8]| Some([&b"dir/"[..], name].concat());
    assert_eq!(children, [(4, path(b"b")), (5, path(&long))]);
    let held = cache.lookup(&dir, b"b").flatten().expect("cached");
    cache.rename(&root, b"dir", &root, b"moved");
    assert_eq!((held.path(), root.path()), (Some(b"moved/b".to_vec()), Some(Vec::new())));
    cache.invalidate(&root, b"moved");
    assert_eq!(held.path(), None);
}
