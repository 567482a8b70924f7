//! The buffer LRU: one lookup at each level, and never an old version.
#![cfg(not(loom))]
#![allow(clippy::single_range_in_vec_init, reason = "a run is a range of blocks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_bufcache::{BhLruSize, BufCache, PinId, Stats};
use proptest::prelude::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 1000;
/// An upper bound of a slot's cost beside its block.
const OVERHEAD: usize = 192;

/// Every byte of a block is its number.
fn image() -> MemoryDevice {
    MemoryDevice::from((0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>())
}

/// A cache with at most `size` copies per thread.
fn cache(size: usize) -> BufCache {
    with_budget(size, 64 << 20)
}

fn with_budget(size: usize, budget: usize) -> BufCache {
    let size = BhLruSize::new(size).unwrap_or(BhLruSize::OFF);
    BufCache::with_bh_lru(Arc::new(image()), BLOCK, budget, size)
}

/// Lookups in shards, hits and recent hits of `step`.
fn cost<R>(cache: &BufCache, step: impl FnOnce() -> R) -> (u64, u64, u64) {
    let parts = |stats: Stats| (stats.looks, stats.hits, stats.recent_hits);
    let before = parts(cache.stats());
    drop(step());
    let after = parts(cache.stats());
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn get(cache: &BufCache, block: u64) -> u8 {
    cache.get_often(block).unwrap()[0]
}

fn mark(cache: &BufCache, block: u64) {
    cache.set_mark(block, &cache.get(block).unwrap(), 7);
}

/// Marks a block and requests it until this thread has a copy.
fn copy(cache: &BufCache, block: u64) {
    mark(cache, block);
    (0..2).for_each(|_| drop(cache.get_often(block)));
    assert_eq!(cost(cache, || get(cache, block)), (0, 1, 1), "this thread has a copy of {block}");
}

#[test]
fn a_request_makes_one_lookup_at_each_level() {
    let cache = cache(16);
    let often = |block| cost(&cache, || cache.get_often(block));
    // Missing; then in the shard; then copied; then this thread's copy.
    assert_eq!(often(5), (1, 0, 0));
    mark(&cache, 5);
    assert_eq!(often(5), (1, 1, 0));
    assert_eq!(often(5), (0, 1, 1));
    // Not marked: in the shard each time.
    assert_eq!((often(6), often(6), often(6)), ((1, 0, 0), (1, 1, 0), (1, 1, 0)));
    // Not on the device: one lookup.
    assert_eq!(cost(&cache, || cache.get_often(BLOCKS).unwrap_err()), (1, 0, 0));
    // A plain `get` looks in the shard alone.
    assert_eq!(cost(&cache, || cache.get(5)), (1, 1, 0));
    let get_ahead = |block| cost(&cache, || cache.get_ahead(block, |_| Some(|| vec![21..23])));
    assert_eq!((get_ahead(20), get_ahead(20), get_ahead(21)), ((1, 0, 0), (1, 1, 0), (1, 1, 0)));
    assert_eq!(cost(&cache, || cache.get_run(40, 3)), (3, 0, 0));
    assert_eq!(cost(&cache, || cache.get_run(40, 3)), (3, 3, 0));
}

#[test]
fn the_least_recently_used_copy_is_replaced_once_its_use_is_long_ago() {
    for size in [1, 2, 8, 16, 64] {
        let cache = cache(size);
        let others = 1..size as u64;
        (0..size as u64).for_each(|block| copy(&cache, block));
        let newcomer = size as u64;
        mark(&cache, newcomer);
        let is_own = |block| cost(&cache, || get(&cache, block)).2 == 1;
        // Requested, but not copied.
        assert!(!is_own(newcomer) && !is_own(newcomer), "size {size}");
        assert!(others.clone().all(is_own) && is_own(0), "size {size}");
        // Block 0 is not requested again.
        for _ in 0..20 * size {
            assert!(others.clone().all(is_own), "size {size}");
            get(&cache, newcomer);
        }
        assert!(is_own(newcomer) && !is_own(0), "size {size}");
        assert!(others.clone().all(is_own), "size {size}");
    }
}

#[test]
fn without_copies_each_lookup_goes_to_the_shard() {
    let cache = cache(0);
    mark(&cache, 7);
    for _ in 0..5 {
        assert_eq!(cost(&cache, || get(&cache, 7)), (1, 1, 0));
    }
}

#[test]
fn a_copy_is_used_until_the_block_changes() {
    let cache = cache(16);
    copy(&cache, 3);
    let old = cache.get_often(3).unwrap();
    assert!(cache.is_newest(3, &old));
    for change in 100..110 {
        cache.update(3, PinId(1), |bytes| bytes[0] = change).unwrap();
        assert!(!cache.is_newest(3, &old));
        for _ in 0..3 {
            let new = cache.get_often(3).unwrap();
            assert_eq!((new[0], new[1], new.mark()), (change, 3, 7));
            assert!(cache.is_newest(3, &new));
        }
    }
    // This thread's old copy does not make the change copy the block.
    assert_eq!((old[0], old[1], cache.stats().copies), (3, 3, 0));
    cache.create(3, PinId(1), |bytes| bytes[0] = 1).unwrap();
    let new = cache.get_often(3).unwrap();
    assert_eq!((new[0], new[1], new.mark()), (1, 0, 0));
}

#[test]
fn a_block_that_was_dropped_is_read_anew() {
    let device = image();
    let cache = BufCache::new(Arc::new(device.clone()), BLOCK, 1 << 20);
    copy(&cache, 3);
    device.write_at(3 * BLOCK as u64, &[200; BLOCK]).unwrap();
    assert_eq!(get(&cache, 3), 3);
    cache.discard(3, 1);
    assert_eq!(get(&cache, 3), 200);
}

#[test]
fn copies_of_several_caches_do_not_mix() {
    let (one, other) = (cache(8), cache(8));
    other.update(3, PinId(1), |bytes| bytes.fill(100)).unwrap();
    copy(&one, 3);
    copy(&other, 3);
    for _ in 0..3 {
        assert_eq!((get(&one, 3), get(&other, 3)), (3, 100));
    }
}

#[test]
fn a_copied_block_is_neither_held_nor_protected_from_eviction() {
    let cache = with_budget(16, 256 * (BLOCK + OVERHEAD));
    (0..8).for_each(|block| copy(&cache, block));
    assert_eq!(cache.stats().held_bytes, 0);
    // Others are used as often, and the eight are not requested again.
    (8..BLOCKS).for_each(|block| (0..3).for_each(|_| drop(cache.get(block))));
    let misses = cache.stats().misses;
    (0..8).for_each(|block| drop(cache.get(block)));
    assert_eq!((cache.stats().misses - misses, cache.stats().uncached), (8, 0));
}

#[test]
fn a_block_whose_copies_are_used_stays_beside_those_that_are_read_once() {
    let cache = with_budget(16, 8 * (BLOCK + OVERHEAD));
    copy(&cache, 0);
    let misses = |block| {
        let before = cache.stats().misses;
        cache.get(block).unwrap();
        cache.stats().misses - before
    };
    for block in 1..BLOCKS {
        assert_eq!(get(&cache, 0), 0);
        misses(block);
    }
    assert_eq!((misses(0), misses(1)), (0, 1));
}

#[test]
fn no_thread_sees_an_older_version_again() {
    const VERSIONS: u64 = 20_000;
    // Room for some blocks only, so that there are evictions.
    let cache = with_budget(8, 128 * (BLOCK + OVERHEAD));
    let (latest, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    cache.create(1, PinId(1), |bytes| bytes.fill(0)).unwrap();
    mark(&cache, 1);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, latest, ended) = (&cache, &latest, &ended);
            scope.spawn(move || {
                let mut seen = 0;
                let mut rounds = 0;
                while !ended.load(SeqCst) || rounds < 10 {
                    let done = latest.load(SeqCst);
                    let bytes = cache.get_often(1).unwrap();
                    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert_eq!(bytes[..8], bytes[BLOCK - 8..], "torn");
                    assert!(version >= seen && version >= done, "{version} after {seen}, {done} was over");
                    seen = version;
                    drop(bytes);
                    cache.get_often(2 + (seen + rounds + thread) % (BLOCKS - 2)).unwrap();
                    rounds += 1;
                }
            });
        }
        for version in 1..=VERSIONS {
            let change = |bytes: &mut [u8]| {
                bytes[..8].copy_from_slice(&version.to_le_bytes());
                bytes[BLOCK - 8..].copy_from_slice(&version.to_le_bytes());
            };
            cache.update(1, PinId(1), change).unwrap();
            latest.store(version, SeqCst);
        }
        ended.store(true, SeqCst);
    });
}

proptest! {
    #[test]
    fn any_order_of_reads_and_changes_equals_no_copies(
        size in 0usize..=64,
        budget in 8usize..200,
        steps in prop::collection::vec((0u8..5, 0u64..40, any::<u8>()), 0..400),
    ) {
        let (cache, plain) = (with_budget(size, budget * (BLOCK + OVERHEAD)), with_budget(0, 64 << 20));
        for (what, block, value) in steps {
            for cache in [&cache, &plain] {
                match what {
                    0 => drop(cache.update(block, PinId(1), |bytes| bytes[0] = value).unwrap()),
                    1 => drop(cache.create(block, PinId(1), |bytes| bytes[1] = value).unwrap()),
                    2 => cache.discard(block, 1),
                    _ => {}
                }
            }
            let block = if what == 3 { u64::from(value) } else { block };
            if what == 4 {
                mark(&cache, block);
            }
            prop_assert_eq!(&cache.get_often(block).unwrap()[..], &plain.get(block).unwrap()[..]);
        }
        prop_assert_eq!(cache.stats().held_bytes, 0);
    }
}
