//! What processors remember: one look at each level, and never a version that is over.
#![cfg(not(loom))]
#![allow(clippy::single_range_in_vec_init, reason = "a run is a range of blocks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use dentree_blockdev::MemoryDevice;
use dentree_bufcache::{BhLruSize, BufCache, Stamp, Stats};
use proptest::prelude::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 1000;
/// More than a slot costs besides its block.
const OVERHEAD: usize = 192;

/// A cache in which each processor remembers `size` buffers, on whatever machine.
fn cache(size: usize) -> BufCache {
    with_budget(size, 64 << 20)
}

fn with_budget(size: usize, budget: usize) -> BufCache {
    let image = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>();
    let size = BhLruSize::new(size).unwrap_or(BhLruSize::OFF);
    BufCache::with_bh_lru(Arc::new(MemoryDevice::from(image)), BLOCK, budget, size)
}

/// What `step` adds to looks, hits and recent hits.
fn cost(cache: &BufCache, step: impl FnOnce()) -> (u64, u64, u64) {
    let parts = |stats: Stats| (stats.looks, stats.hits, stats.recent_hits);
    let before = parts(cache.stats());
    step();
    let after = parts(cache.stats());
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn get(cache: &BufCache, block: u64) -> u8 {
    cache.get(block).unwrap()[0]
}

#[test]
fn who_wants_a_block_looks_once_at_each_level_however_it_is_found() {
    let cache = cache(16);
    // Missing; then in the shard; then remembered.
    assert_eq!(cost(&cache, || drop(cache.get(5))), (1, 0, 0));
    assert_eq!(cost(&cache, || drop(cache.get(5))), (1, 1, 0));
    assert_eq!(cost(&cache, || drop(cache.get(5))), (0, 1, 1));
    // Not on the device: a failure takes no second look.
    assert_eq!(cost(&cache, || assert!(cache.get(BLOCKS).is_err())), (1, 0, 0));
    // With a plan for what comes next, the same; the plan looks for what it reads ahead.
    let get_ahead = |block| drop(cache.get_ahead(block, |_| Some(|| vec![21..23])));
    assert_eq!(cost(&cache, || get_ahead(20)), (1, 0, 0));
    assert_eq!(cost(&cache, || get_ahead(20)), (1, 1, 0));
    assert_eq!(cost(&cache, || get_ahead(20)), (0, 1, 1));
    assert_eq!(cost(&cache, || get_ahead(21)), (1, 1, 0));
    // One of a run looks into its shard alone.
    assert_eq!(cost(&cache, || drop(cache.get_run(40, 3))), (3, 0, 0));
    assert_eq!(cost(&cache, || drop(cache.get_run(40, 3))), (3, 3, 0));
    assert_eq!(cost(&cache, || drop(cache.get(40))), (1, 1, 0));
}

#[test]
fn the_one_used_longest_ago_makes_room() {
    for size in [1, 2, 8, 16, 64] {
        let cache = cache(size);
        let blocks = size as u64 + 1;
        let twice = |block| (0..2).for_each(|_| drop(cache.get(block)));
        (0..blocks).for_each(twice);
        // Block 0 made room for the last one, then 1 for it, and so on.
        for block in 0..2 * blocks {
            assert_eq!(cost(&cache, || drop(cache.get(block % blocks))).2, 0, "size {size}, block {block}");
        }
        // So many in turn are remembered, all of them.
        (0..blocks - 1).for_each(twice);
        for block in 0..blocks - 1 {
            assert_eq!(cost(&cache, || drop(cache.get(block))), (0, 1, 1), "size {size}, block {block}");
        }
    }
}

#[test]
fn without_any_each_look_up_goes_to_the_shard() {
    let cache = cache(0);
    for _ in 0..5 {
        get(&cache, 7);
    }
    assert_eq!((cache.stats().looks, cache.stats().recent_hits), (5, 0));
}

#[test]
fn a_change_is_seen_at_once_and_made_in_place() {
    let cache = cache(16);
    for version in 1..50 {
        for _ in 0..3 {
            assert_eq!(get(&cache, 0), version - 1);
        }
        cache.update(0, Stamp(1), |bytes| bytes[0] = version).unwrap();
    }
    // That this processor remembered it is no reason to copy it.
    let stats = cache.stats();
    assert_eq!((stats.changes, stats.copies), (49, 0));
    assert!(stats.recent_hits > 0);
    let held = cache.get(0).unwrap();
    cache.update(0, Stamp(1), |bytes| bytes[0] = 50).unwrap();
    assert_eq!((held[0], get(&cache, 0), cache.stats().copies), (49, 50, 1));
}

#[test]
fn a_block_that_is_dropped_or_made_anew_is_not_remembered() {
    let cache = cache(16);
    (0..3).for_each(|_| drop(cache.get(9)));
    cache.create(9, Stamp(1), |bytes| bytes[1] = 1).unwrap();
    assert_eq!(cache.get(9).unwrap()[..2], [0, 1]);
    (0..3).for_each(|_| drop(cache.get(9)));
    cache.discard(9, 1);
    assert_eq!(cache.get(9).unwrap()[..2], [9, 9]);
}

#[test]
fn what_is_remembered_is_neither_held_nor_kept_from_eviction() {
    let cache = with_budget(16, 64 * (BLOCK + OVERHEAD));
    for block in 0..8 {
        (0..3).for_each(|_| drop(cache.get(block)));
    }
    let stats = cache.stats();
    assert!(stats.recent_hits > 0);
    assert_eq!(stats.held_bytes, 0);
    // Others that are used as often, and nobody comes back to the eight.
    (8..BLOCKS).for_each(|block| (0..3).for_each(|_| drop(cache.get(block))));
    let misses = cache.stats().misses;
    (0..8).for_each(|block| drop(cache.get(block)));
    assert_eq!((cache.stats().misses - misses, cache.stats().uncached), (8, 0));
}

#[test]
fn a_block_that_is_only_found_where_it_is_remembered_outlives_a_scan() {
    let cache = with_budget(16, 400 * (BLOCK + OVERHEAD));
    (0..2).for_each(|_| drop(cache.get(3)));
    let misses = || cache.stats().misses;
    for block in 4..BLOCKS {
        let before = misses();
        assert_eq!(get(&cache, 3), 3);
        assert_eq!(misses(), before, "block {block}");
        cache.get(block).unwrap();
    }
    assert!(cache.stats().recent_hits > 900 && cache.stats().evictions > 500, "{:?}", cache.stats());
}

#[test]
fn no_thread_ever_sees_an_older_version_again() {
    const VERSIONS: u64 = 20_000;
    // Room for some blocks only, so that eviction takes part.
    let cache = with_budget(8, 128 * (BLOCK + OVERHEAD));
    let (latest, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    cache.create(1, Stamp(1), |bytes| bytes.fill(0)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, latest, ended) = (&cache, &latest, &ended);
            scope.spawn(move || {
                let mut seen = 0;
                let mut rounds = 0;
                while !ended.load(SeqCst) || rounds < 10 {
                    let done = latest.load(SeqCst);
                    let bytes = cache.get(1).unwrap();
                    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert_eq!(bytes[..8], bytes[BLOCK - 8..], "torn");
                    assert!(version >= seen && version >= done, "{version} after {seen}, {done} was over");
                    seen = version;
                    drop(bytes);
                    cache.get(2 + (seen + rounds + thread) % (BLOCKS - 2)).unwrap();
                    rounds += 1;
                }
            });
        }
        for version in 1..=VERSIONS {
            let change = |bytes: &mut [u8]| {
                bytes[..8].copy_from_slice(&version.to_le_bytes());
                bytes[BLOCK - 8..].copy_from_slice(&version.to_le_bytes());
            };
            cache.update(1, Stamp(1), change).unwrap();
            latest.store(version, SeqCst);
        }
        ended.store(true, SeqCst);
    });
    assert!(cache.stats().recent_hits > 0, "{:?}", cache.stats());
}

proptest! {
    #[test]
    fn any_order_of_reads_and_changes_is_as_without(
        size in 0usize..=64,
        budget in 8usize..200,
        steps in prop::collection::vec((0u8..5, 0u64..40, any::<u8>()), 0..400),
    ) {
        let (cache, plain) = (with_budget(size, budget * (BLOCK + OVERHEAD)), with_budget(0, 64 << 20));
        for (what, block, value) in steps {
            for cache in [&cache, &plain] {
                match what {
                    0 => drop(cache.update(block, Stamp(1), |bytes| bytes[0] = value).unwrap()),
                    1 => drop(cache.create(block, Stamp(1), |bytes| bytes[1] = value).unwrap()),
                    2 => cache.discard(block, 1),
                    _ => {}
                }
            }
            let block = if what == 3 { u64::from(value) } else { block };
            prop_assert_eq!(&cache.get(block).unwrap()[..], &plain.get(block).unwrap()[..]);
        }
        prop_assert_eq!(cache.stats().held_bytes, 0);
    }
}
