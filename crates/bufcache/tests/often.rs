//! What the cache promises about blocks that each thread reads from a copy of its own.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use dentree_blockdev::{BlockDevice, MemoryDevice, MeteredDevice};
use dentree_bufcache::{BufCache, Stamp};

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
const OVERHEAD: usize = 192;

/// Every byte of a block is its number.
fn image() -> MemoryDevice {
    MemoryDevice::from((0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>())
}

fn roomy() -> BufCache {
    BufCache::new(Arc::new(image()), BLOCK, 1 << 20)
}

/// Marks a block, and asks for it until this thread has a copy.
fn copy(cache: &BufCache, block: u64) {
    cache.set_mark(block, &cache.get(block).unwrap(), 7);
    for _ in 0..2 {
        cache.get_often(block).unwrap();
    }
    let before = cache.stats();
    assert_eq!(cache.get_often(block).unwrap().mark(), 7);
    assert_eq!(cache.stats(), before, "this thread has a copy");
}

#[test]
fn a_copy_is_used_until_the_block_changes() {
    let cache = roomy();
    copy(&cache, 3);
    let old = cache.get_often(3).unwrap();
    assert!(cache.is_newest(3, &old));
    for change in 100..110 {
        let before = cache.stats().copies;
        cache.update(3, Stamp(1), |bytes| bytes[0] = change).unwrap();
        assert_eq!(cache.stats().copies, before, "a copy does not hold its block");
        assert!(!cache.is_newest(3, &old));
        for _ in 0..3 {
            let new = cache.get_often(3).unwrap();
            assert_eq!((new[0], new[1], new.mark()), (change, 3, 7));
            assert!(cache.is_newest(3, &new));
        }
    }
    assert_eq!((old[0], old[1]), (3, 3));
    cache.create(3, Stamp(1), |bytes| bytes[0] = 1).unwrap();
    let new = cache.get_often(3).unwrap();
    assert_eq!((new[0], new[1], new.mark()), (1, 0, 0));
}

#[test]
fn a_block_that_was_dropped_is_read_anew() {
    let device = image();
    let cache = BufCache::new(Arc::new(device.clone()), BLOCK, 1 << 20);
    copy(&cache, 3);
    device.write_at(3 * BLOCK as u64, &[200; BLOCK]).unwrap();
    assert_eq!(cache.get_often(3).unwrap()[0], 3);
    cache.discard(3, 1);
    assert_eq!(cache.get_often(3).unwrap()[0], 200);
}

#[test]
fn caches_of_several_devices_are_told_apart() {
    let (one, other) = (roomy(), roomy());
    other.update(3, Stamp(1), |bytes| bytes.fill(100)).unwrap();
    copy(&one, 3);
    copy(&other, 3);
    for _ in 0..3 {
        assert_eq!((one.get_often(3).unwrap()[0], other.get_often(3).unwrap()[0]), (3, 100));
    }
}

#[test]
fn what_is_not_marked_is_not_copied() {
    let cache = roomy();
    for asked in 1..9 {
        assert_eq!(cache.get_often(3).unwrap()[0], 3);
        let stats = cache.stats();
        assert_eq!(stats.hits + stats.misses, asked);
    }
}

#[test]
fn a_block_whose_copies_are_used_stays_beside_those_that_are_read_once() {
    let meter = Arc::new(MeteredDevice::new(Arc::new(image())));
    let cache = BufCache::new(meter.clone(), BLOCK, 8 * (BLOCK + OVERHEAD));
    copy(&cache, 0);
    let reads_of = |block: u64| {
        let before = meter.counts().total_reads();
        cache.get(block).unwrap();
        meter.counts().total_reads() - before
    };
    for block in 1..BLOCKS {
        assert_eq!(cache.get_often(0).unwrap()[0], 0);
        reads_of(block);
    }
    assert_eq!((reads_of(0), reads_of(1)), (0, 1));
}

#[test]
fn who_has_heard_of_a_change_sees_it() {
    const CHANGES: u64 = 20_000;
    let cache = roomy();
    cache.update(3, Stamp(1), |bytes| bytes[..8].fill(0)).unwrap();
    cache.set_mark(3, &cache.get(3).unwrap(), 7);
    let made = AtomicU64::new(0);
    let count = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while made.load(SeqCst) < CHANGES {
                    let heard = made.load(SeqCst);
                    let seen = count(&cache.get_often(3).unwrap());
                    assert!(seen >= heard, "{seen} of {heard} changes");
                }
            });
        }
        for change in 1..=CHANGES {
            cache.update(3, Stamp(1), |bytes| bytes[..8].copy_from_slice(&change.to_le_bytes())).unwrap();
            made.store(change, SeqCst);
        }
    });
}
