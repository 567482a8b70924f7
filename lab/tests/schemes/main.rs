//! One suite for every scheme: a scheme that is fast and wrong is not a result.
//!
//! `model` runs random operations against a plain map, on one thread; `stress` runs readers,
//! writers and pruners concurrently and checks invariants. Both end with a check for leaks.

mod model;
mod stress;

use std::num::NonZeroU64;

use dentree_lab::schemes::{Config, Dentry, Inode, Scheme};

/// Few chains: they are long, and entries share them.
fn small(entries: usize) -> Config {
    Config { entries, heads: 8, prefetch: entries.is_multiple_of(2) }
}

/// From 50 on a file's, below a directory's.
fn inode(number: u64) -> Inode {
    let kind = if number >= 50 { Inode::FILE } else { 0 };
    Inode(NonZeroU64::new(number | kind).expect("not zero"))
}

/// A name by number: short ones, ones that fill a word or the inline part exactly, and longer ones.
fn name(number: usize) -> String {
    let fill = [0, 6, 7, 14, 30, 31, 60, 253][number % 8];
    format!("{}{number:02}", "x".repeat(fill))
}

/// Every reference was dropped: all entries but the root can be freed, and are.
fn assert_nothing_leaked(cache: &dyn Scheme, what: &str) {
    cache.select_parent(Dentry::ROOT);
    for _ in 0..100_000 {
        if cache.usage().entries == 1 {
            break;
        }
        crossbeam_epoch::pin().flush(); // what was freed waits for a grace period
        std::thread::yield_now();
    }
    let usage = cache.usage();
    assert_eq!((usage.entries, usage.on_lru), (1, 0), "{what}: unreachable entries");
}
