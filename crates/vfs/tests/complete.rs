//! After a listing, or enough misses, misses do not call the file system.

mod common;

use common::{Line, MemFs, dir, file};
use dentree_vfs::*;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const WHO: Identity = Identity::Superuser;

fn leak(text: String) -> &'static str {
    text.leak()
}

/// A directory `d` with `files` files and a directory.
fn vfs(files: usize, budgets: Budgets) -> Vfs<MemFs> {
    let mut lines: Vec<Line> = vec![dir("d"), dir("d/sub"), file("d/sub/deep")];
    lines.extend((0..files).map(|number| file(leak(format!("d/f{number}")))));
    Vfs::with_budgets(MemFs::new(&lines), budgets).unwrap()
}

fn is_there<F: FileSystem>(vfs: &Vfs<F>, path: &str) -> bool {
    match vfs.walk(&WHO, vfs.root(), path.as_bytes(), WalkOptions::FOLLOW) {
        Ok(_) => true,
        Err(Error::NotFound) => false,
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Up to `most` entries.
fn list<F: FileSystem>(vfs: &Vfs<F>, dir: &Inode<F>, most: usize) -> Vec<String> {
    let mut names = Vec::new();
    let each = &mut |entry: DirEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        if names.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    vfs.readdir(&WHO, dir, ReaddirStart::First, each).unwrap();
    names
}

fn directory(vfs: &Vfs<MemFs>) -> Arc<Inode<MemFs>> {
    vfs.walk(&WHO, vfs.root(), b"d", WalkOptions::FOLLOW).unwrap()
}

/// During `work`.
fn lookups(vfs: &Vfs<MemFs>, work: impl FnOnce()) -> u64 {
    let before = vfs.fs().lookups.load(Ordering::Relaxed);
    work();
    vfs.fs().lookups.load(Ordering::Relaxed) - before
}

fn miss(vfs: &Vfs<MemFs>, names: std::ops::Range<usize>) {
    names.for_each(|number| assert!(!is_there(vfs, &format!("d/no{number}"))));
}

#[test]
fn after_a_listing_misses_do_not_ask_the_file_system() {
    let vfs = vfs(200, Budgets::default());
    miss(&vfs, 0..1);
    assert_eq!(list(&vfs, &directory(&vfs), usize::MAX).len(), 201);
    assert_eq!(lookups(&vfs, || miss(&vfs, 1..1000)), 0);
    // Hits.
    let found = || (0..200).for_each(|number| assert!(is_there(&vfs, &format!("d/f{number}"))));
    assert_eq!(lookups(&vfs, found), 0);
    assert_eq!(lookups(&vfs, || assert!(is_there(&vfs, "d/sub/deep"))), 1, "only what is below");
}

#[test]
fn a_listing_without_negative_lookups_caches_nothing() {
    let vfs = vfs(200, Budgets::default());
    let entries = || vfs.stats().names.entries;
    let (dir, before) = (directory(&vfs), entries());
    assert_eq!(list(&vfs, &dir, usize::MAX).len(), 201);
    assert_eq!(entries(), before);
}

#[test]
fn an_incomplete_listing_completes_nothing() {
    let vfs = vfs(200, Budgets::default());
    miss(&vfs, 0..1);
    assert_eq!(list(&vfs, &directory(&vfs), 200).len(), 200);
    assert_eq!(lookups(&vfs, || miss(&vfs, 1..6)), 5);
    let behind = ReaddirStart::After(4);
    vfs.readdir(&WHO, &directory(&vfs), behind, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(lookups(&vfs, || miss(&vfs, 6..11)), 5);
}

#[test]
fn a_directory_is_listed_after_enough_negative_lookups() {
    for (files, most) in [(10, 16), (250, 16), (260, 32), (1000, 64), (4000, 256)] {
        let vfs = vfs(files, Budgets::default());
        let asked = lookups(&vfs, || miss(&vfs, 0..5000));
        // The directory's own.
        assert_eq!(asked, most + 1, "{files} files");
    }
}

#[test]
fn a_large_directory_is_not_completed() {
    let vfs = vfs(5000, Budgets::default());
    assert_eq!(lookups(&vfs, || miss(&vfs, 0..5000)), 5001);
    let small = self::vfs(1000, Budgets { names: 1 << 20, inodes: 1 << 20 });
    assert_eq!(lookups(&small, || miss(&small, 0..2000)), 2001, "not of a small cache either");
}

#[test]
fn search_permissions_of_listed_directories_are_cached() {
    let private = Line { permissions: 0o700, uid: 1, ..dir("d/private") };
    let lines = vec![dir("d"), dir("d/sub"), file("d/sub/f"), private, file("d/private/f")];
    let vfs = Vfs::new(MemFs::new(&lines)).unwrap();
    miss(&vfs, 0..1);
    assert_eq!(list(&vfs, &directory(&vfs), usize::MAX), ["private", "sub"]);
    let nobody = Identity::User { uid: 65534, gid: 65534, groups: Vec::new() };
    let walk =
        |path: &[u8]| vfs.walk(&nobody, vfs.root(), path, WalkOptions::FOLLOW).map(|inode| inode.ino());
    let walk_many = |path: &[u8]| {
        let mut walked = vfs.walk_many(&nobody, vfs.root(), &[path], WalkOptions::FOLLOW);
        walked.pop().unwrap().map(|inode| inode.ino())
    };
    for _ in 0..3 {
        assert!(matches!(walk(b"d/private/f"), Err(Error::AccessDenied)));
        assert!(matches!(walk_many(b"d/private/f"), Err(Error::AccessDenied)));
        assert!(walk(b"d/sub/f").is_ok() && walk_many(b"d/sub/f").is_ok());
    }
    let asked = || vfs.stats().names.searches_asked;
    let before = asked();
    (0..100).for_each(|_| assert!(walk(b"d/sub/f").is_ok() && walk_many(b"d/sub/f").is_ok()));
    assert_eq!(asked(), before, "everybody may search it, and that is known");
}

/// Changes during listings and misses are visible when they return.
#[test]
fn changes_during_listings_are_not_lost() {
    const ROUNDS: usize = 60;
    const OTHERS: usize = 3000;
    let vfs = Vfs::with_budgets(MemoryFs::default(), Budgets { names: 256 << 10, inodes: 1 << 20 }).unwrap();
    for number in 0..OTHERS {
        vfs.create(&WHO, vfs.root(), format!("other{number}").as_bytes(), NewKind::Regular, 0o644).unwrap();
    }
    let dir = vfs.create(&WHO, vfs.root(), b"d", NewKind::Directory, 0o755).unwrap();
    for number in 0..50 {
        vfs.create(&WHO, &dir, format!("f{number}").as_bytes(), NewKind::Regular, 0o644).unwrap();
    }
    let done = AtomicBool::new(false);
    let (vfs, dir, done) = (&vfs, &dir, &done);
    thread::scope(|threads| {
        for thread in 0..2 {
            threads.spawn(move || {
                let name = |what: &str| format!("{what}{thread}").into_bytes();
                let (one, other) = (name("one"), name("other"));
                let sees = |name: &[u8]| vfs.lookup(&WHO, dir, name).unwrap().is_some();
                while !done.load(Ordering::Relaxed) {
                    assert!(!sees(&one) && !sees(&other));
                    vfs.create(&WHO, dir, &one, NewKind::Regular, 0o644).unwrap();
                    assert!(sees(&one), "made");
                    vfs.rename(&WHO, dir, &one, dir, &other, OnExisting::Replace).unwrap();
                    assert!(!sees(&one) && sees(&other), "renamed");
                    vfs.unlink(&WHO, dir, &other).unwrap();
                }
            });
        }
        let lister = threads.spawn(move || {
            for round in 0..ROUNDS {
                (0..20).for_each(|i| assert!(!is_there(vfs, &format!("d/no{round}-{i}"))));
                assert!(list(vfs, dir, usize::MAX).len() >= 50);
                // Evicts names, which ends completeness.
                (0..200)
                    .for_each(|i| assert!(is_there(vfs, &format!("other{}", (round * 200 + i) % OTHERS))));
            }
        });
        let listed = lister.join();
        done.store(true, Ordering::Relaxed);
        listed.unwrap();
    });
    let names = vfs.stats().names;
    assert!(
        names.complete_negative > 0 && names.evicted > 0 && names.stopped.iter().sum::<u64>() > 0,
        "{names:?}"
    );
    assert_eq!(list(vfs, dir, usize::MAX).len(), 50);
    (0..50).for_each(|number| assert!(is_there(vfs, &format!("d/f{number}"))));
}
