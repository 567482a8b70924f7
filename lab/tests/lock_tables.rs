//! The lock tables of the schemes under one small load reproduce the study's findings.
//!
//! The load is like dbench's: many lookups of few files, some of them created, renamed and deleted,
//! from two threads.

use std::num::NonZeroU64;
use std::thread;

use dentree_lab::schemes::{Config, Dentry, Inode, Path, SCHEMES, Scheme, function_at};
use dentree_lockmeter::{Recording, Report};

const LOOKUPS: usize = 20;
const ROUNDS: usize = 200;

fn inode(number: usize) -> Option<Inode> {
    NonZeroU64::new(number as u64 + 2).map(Inode)
}

/// One client, in its own directory, as with dbench.
fn client(cache: &dyn Scheme, client: usize) {
    let top = format!("client{client}");
    let directory = cache.create(Dentry::ROOT, top.as_bytes(), inode(client)).expect("room");
    for round in 0..ROUNDS {
        let file = format!("file{}", round % 8);
        let made = cache.create(directory, file.as_bytes(), inode(100 + round % 8)).expect("room");
        for _ in 0..LOOKUPS {
            let walked =
                cache.walk(Path::new(&[top.as_bytes(), file.as_bytes()], format!("{top}/{file}").as_bytes()));
            assert_eq!(walked.depth, 2);
            cache.dput(walked.dentry);
        }
        cache.dput(made);
        if round % 5 == 4 {
            let file = cache.lookup(directory, file.as_bytes()).expect("just used");
            cache.rename(file, directory, b"renamed");
            cache.delete(file);
            cache.dput(file);
        }
    }
    cache.dput(directory);
}

fn record(scheme: usize) -> Report {
    let cache = (SCHEMES[scheme - 1].build)(Config { entries: 256, heads: 256, prefetch: false });
    let recording = Recording::start();
    thread::scope(|scope| {
        for number in 0..2 {
            let cache = &*cache;
            scope.spawn(move || client(cache, number));
        }
    });
    recording.finish()
}

/// Requests for a lock, and those made by some functions.
fn requests(report: &Report, lock: &str, functions: &[&str]) -> (u64, u64) {
    let Some(lock) = report.lock(lock) else { return (0, 0) };
    let by_them = lock.sites.iter().filter(|site| {
        function_at(site.file, site.line).is_some_and(|(function, _)| functions.contains(&function))
    });
    (lock.all.total, by_them.map(|site| site.figures.total).sum())
}

/// The functions of all schemes that look names up.
const LOOKS_UP: [&str; 3] = ["lookup", "walk", "get_if"];

#[test]
fn lookups_take_most_of_the_global_lock() {
    let report = record(1);
    let (all, by_lookups) = requests(&report, "dcache_lock", &LOOKS_UP);
    println!("{}", report.text());
    assert!(by_lookups * 10 > all * 7, "{by_lookups} of {all}; 84% in the study");
}

#[test]
fn fastwalk_takes_the_lock_less_often_and_lazy_lru_least() {
    let of = |scheme| requests(&record(scheme), "dcache_lock", &LOOKS_UP);
    let ((global, _), (fastwalk, _), (lazy, lazy_lookups)) = (of(1), of(4), of(8));
    assert!(fastwalk * 4 < global * 3, "{fastwalk} of {global}");
    assert!(lazy < fastwalk && lazy_lookups == 0, "{lazy} of {global}, {lazy_lookups} by lookups");
}

#[test]
fn a_separate_lru_lock_takes_over_what_the_global_lock_gave_up() {
    let (one, two) =
        (requests(&record(5), "dcache_lock", &LOOKS_UP), requests(&record(6), "lru_lock", &LOOKS_UP));
    assert_eq!(one.1, two.1, "lookups of unused entries");
}

#[test]
fn a_walk_of_today_takes_no_lock() {
    let report = record(11);
    for lock in &report.locks {
        assert_eq!(requests(&report, lock.name, &["walk", "rcu_walk", "find_rcu"]).1, 0, "{}", lock.name);
    }
    // Its one reference is taken without d_lock unless another thread holds that lock.
    let walks = 2 * ROUNDS as u64 * LOOKUPS as u64;
    let by_references = requests(&report, "d_lock", &["get_not_dead"]).1;
    assert!(by_references * 10 < walks, "{by_references} of {walks}");
}

#[test]
fn every_call_site_has_a_function() {
    for scheme in 1..=SCHEMES.len() {
        let report = record(scheme);
        let text = report.text_with(|file, line| match function_at(file, line) {
            Some((function, offset)) => format!("{function}+{offset}"),
            None => panic!("{file}:{line} is in no scheme"),
        });
        println!("{}\n{text}", SCHEMES[scheme - 1].name);
    }
}
