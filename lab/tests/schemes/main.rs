//! One suite for every scheme: a scheme that is fast and wrong is not a result.
//!
//! `model` tries random operations against a plain map, one thread at a time; `stress` runs readers, writers and pruners
//! against each other and checks what must hold meanwhile. Both end by counting that nothing has leaked.

mod model;
mod stress;

use std::num::NonZeroU64;

use dentree_lab::schemes::{Config, Dentry, Inode, Scheme};

/// Few chains, so that they are long and entries meet.
fn crowded(entries: usize) -> Config {
    Config { entries, heads: 8, prefetch: entries.is_multiple_of(2) }
}

/// A file's from 50 on, a directory's below.
fn inode(number: u64) -> Inode {
    let kind = if number >= 50 { Inode::FILE } else { 0 };
    Inode(NonZeroU64::new(number | kind).expect("not zero"))
}

/// A name by number: short ones, ones that fill a word or the inline part to the byte, and ones that do not fit.
fn name(number: usize) -> String {
    let fill = [0, 6, 7, 14, 30, 31, 60, 253][number % 8];
    format!("{}{number:02}", "x".repeat(fill))
}

/// Every reference has been given back: all but the root can be freed, and is.
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
    assert_eq!((usage.entries, usage.on_lru), (1, 0), "{what}: entries that nobody can reach any more");
}
