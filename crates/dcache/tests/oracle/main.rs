//! The oracle: threads run all operations of the cache against a tree whose versions are kept. Each
//! result must be that of some version within the call's window. Bounded by operations; `MINUTES=60
//! cargo test -p dentree-dcache --release --test oracle -- --ignored --nocapture` runs for an hour.
//!
//! - `truth`: names and permissions with their versions.
//! - `world`: the tree, its cache, and the time.
//! - `judge`: whether some version gives a result.
//! - `changes`: writers. `client`: readers and eviction.

mod changes;
mod client;
mod judge;
mod truth;
mod world;

use client::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use world::{Inode, World};

/// Sets the flag when dropped, also in a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn run<H: Inode>(threads: usize, seed: u64, operations: u64) {
    let world = World::<H>::new(threads, seed);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let world = &world;
            scope.spawn(move || {
                let _at_end = AtEnd(&world.done);
                let mut client = Client::new(world, number, seed);
                while client.turns < operations / threads as u64 && !world.done.load(Ordering::Relaxed) {
                    client.turn();
                }
            });
        }
    });
    assert_eq!(world.cache.stats().held, 0);
    println!("{threads} threads, seed {seed}: {operations} operations, {:?}", world.cache.stats());
}

fn run_either(threads: usize, seed: u64, operations: u64) {
    match seed % 3 {
        0 => run::<Arc<u64>>(threads, seed, operations),
        _ => run::<u64>(threads, seed, operations),
    }
}

/// Operations of one cache of the long run.
const EACH: u64 = 500_000;
const OPERATIONS: u64 = if cfg!(debug_assertions) { 40_000 } else { 200_000 };

#[test]
fn two_threads_are_answered_what_some_version_of_the_tree_gives() {
    (1..5).for_each(|seed| run_either(2, seed, OPERATIONS));
}

#[test]
fn four_threads_are_answered_what_some_version_of_the_tree_gives() {
    (11..15).for_each(|seed| run_either(4, seed, OPERATIONS));
}

#[test]
fn sixteen_threads_are_answered_what_some_version_of_the_tree_gives() {
    (21..25).for_each(|seed| run_either(16, seed, OPERATIONS));
}

#[test]
#[ignore = "takes MINUTES, ten unless set"]
fn minutes_of_threads_are_answered_what_some_version_of_the_tree_gives() {
    let minutes = std::env::var("MINUTES").map_or(10, |minutes| minutes.parse().expect("a number"));
    let (begun, mut operations) = (Instant::now(), [0; 4]);
    let seed = std::env::var("SEED").map_or(100, |seed| seed.parse().expect("a number"));
    for seed in seed.. {
        if begun.elapsed() >= Duration::from_secs(60 * minutes) {
            break;
        }
        for (threads, operations) in [2, 4, 16, 128].into_iter().zip(&mut operations) {
            run_either(threads, seed, EACH);
            *operations += EACH;
        }
    }
    println!(
        "{minutes} minutes: {operations:?} operations by 2, 4, 16 and 128 threads, no answer out of its window"
    );
}
