//! Threads insert, find, touch, delete and shrink in one small cache.
#![cfg(not(loom))]

use dentree_mbcache::MbCache;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const KEYS: u32 = 64;
const VALUES: u64 = 4;
const ROUNDS: u32 = 200_000;

/// A small generator (xorshift): the same work in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn no_entry_changes_while_it_is_held() {
    let budget = 4096;
    let cache = MbCache::new(budget);
    let held = AtomicU64::new(0);
    let worker = |seed: u64| {
        let mut random = Random(seed);
        for _ in 0..ROUNDS {
            let (key, value) = (random.below(KEYS.into()) as u32, random.below(VALUES));
            // A value contains its key, so that a slot of the wrong generation shows.
            let value = u64::from(key) << 8 | value;
            match random.below(10) {
                0..4 => drop(cache.insert(key, value, random.below(2) == 0)),
                4..8 => {
                    let mut next = cache.find_first(key);
                    while let Some(entry) = next {
                        held.fetch_add(1, Ordering::Relaxed);
                        let before = (entry.key(), entry.value());
                        std::thread::yield_now();
                        assert_eq!((entry.key(), entry.value()), before);
                        assert_eq!(entry.value() >> 8, u64::from(key));
                        entry.touch();
                        next = entry.find_next();
                    }
                }
                8 => drop(cache.delete_or_get(key, value)),
                _ => drop(cache.shrink(random.below(4) as usize)),
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 1..5 {
            scope.spawn(move || worker(seed));
        }
    });
    assert!(held.into_inner() > 0);
    assert!(cache.bytes() <= budget + 4096);
    let left = cache.len();
    assert_eq!((cache.shrink_to(0), cache.len()), (left, 0));
}

#[test]
fn a_waiter_goes_on_when_the_last_holder_does() {
    let cache = MbCache::new(1 << 16);
    for round in 0..2_000 {
        cache.insert(1, round, true);
        let released = AtomicBool::new(false);
        let holder = cache.get(1, round).expect("just inserted");
        let (found, was_found) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let entry = cache.delete_or_get(1, round).expect("it is held");
                found.send(()).expect("the other thread is there");
                entry.wait_unused();
                assert!(released.load(Ordering::Relaxed));
            });
            was_found.recv().expect("the other thread sends");
            released.store(true, Ordering::Relaxed);
            drop(holder);
        });
        assert!(cache.delete_or_get(1, round).is_none());
        assert!(cache.is_empty());
    }
}
