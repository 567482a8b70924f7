//! The cache's guarantees: one read, a hard budget, no lost wake-up.
#![cfg(not(loom))]

use dentree_testing::wait_until;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use dentree_blockdev::{BlockDevice, MemoryDevice, MeteredDevice};
use dentree_bufcache::{BufCache, PinId, ReadError};
use proptest::prelude::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 200;
/// An upper bound of a slot's cost beside its block.
const OVERHEAD: usize = 192;

/// Every byte of a block is its number.
fn image() -> MemoryDevice {
    MemoryDevice::from((0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>())
}

fn cache(budget: usize) -> BufCache {
    BufCache::new(Arc::new(image()), BLOCK, budget)
}

/// A device whose reads wait until so many threads wait in the cache, then end as configured.
#[derive(Default)]
struct Gate {
    cache: OnceLock<Weak<BufCache>>,
    waiters: u64,
    reads: AtomicU64,
    fails: AtomicBool,
    panics: bool,
}

impl Gate {
    fn cache(self) -> (Arc<Gate>, Arc<BufCache>) {
        let gate = Arc::new(self);
        let cache = Arc::new(BufCache::new(gate.clone(), BLOCK, 1 << 20));
        gate.cache.set(Arc::downgrade(&cache)).unwrap();
        (gate, cache)
    }
}

impl BlockDevice for Gate {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, SeqCst);
        let cache = self.cache.get().unwrap().upgrade().unwrap();
        wait_until("waited for", || cache.stats().waits >= self.waiters);
        assert!(!self.panics, "this device panics");
        if self.fails.load(SeqCst) {
            return Err(io::Error::new(ErrorKind::TimedOut, "the disk does not respond"));
        }
        buf.fill(7);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn get_in_threads(cache: &BufCache, threads: usize) -> Vec<std::thread::Result<io::Result<u8>>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| cache.get(3).map(|buffer| buffer[0]))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    })
}

#[test]
fn eight_threads_that_miss_one_block_read_it_once() {
    let (gate, cache) = Gate { waiters: 7, ..Gate::default() }.cache();
    for answer in get_in_threads(&cache, 8) {
        assert_eq!(answer.unwrap().unwrap(), 7);
    }
    assert_eq!(gate.reads.load(SeqCst), 1);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.waits, stats.hits), (1, 7, 0));
}

#[test]
fn a_failed_read_fails_all_waiters_by_name_and_is_not_cached() {
    let (gate, cache) = Gate { waiters: 3, fails: AtomicBool::new(true), ..Gate::default() }.cache();
    for answer in get_in_threads(&cache, 4) {
        let error = answer.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("block 3"), "{error}");
        let inner = error.get_ref().unwrap().downcast_ref::<ReadError>().unwrap();
        assert_eq!((inner.block, inner.block_size), (3, BLOCK));
    }
    assert_eq!((gate.reads.load(SeqCst), cache.stats().resident_bytes), (1, 0));
    gate.fails.store(false, SeqCst);
    assert_eq!(cache.get(3).unwrap()[0], 7);
}

#[test]
fn a_device_that_panics_leaves_no_thread_waiting() {
    let (_gate, cache) = Gate { waiters: 2, panics: true, ..Gate::default() }.cache();
    let answers = get_in_threads(&cache, 3);
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
    assert!(answers.iter().flatten().all(|answer| answer.is_err()));
    assert_eq!(cache.stats().resident_bytes, 0);
}

#[test]
fn a_hit_is_the_same_memory() {
    let cache = cache(1 << 20);
    let first = cache.get(9).unwrap();
    assert_eq!(first.as_ptr(), cache.get(9).unwrap().as_ptr());
    assert_eq!((first.len(), first[0]), (BLOCK, 9));
}

#[test]
fn a_block_not_wholly_on_the_device_is_refused_and_names_itself() {
    let cache = BufCache::new(Arc::new(MemoryDevice::new(3 * BLOCK + 1)), BLOCK, 1 << 20);
    for block in [3, 4, u64::MAX / BLOCK as u64, u64::MAX] {
        let error = cache.get(block).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains(&block.to_string()), "{error}");
    }
    for (first, count) in [(0, 4), (3, 1), (u64::MAX, 2), (0, usize::MAX)] {
        assert!(cache.get_run(first, count).is_err());
    }
    assert_eq!(cache.stats().resident_bytes, 0);
    assert!(cache.get_run(0, 3).is_ok());
    assert!(cache.get_run(3, 0).unwrap().is_empty());
}

#[test]
fn a_run_reads_each_gap_in_one_request() {
    let meter = Arc::new(MeteredDevice::new(Arc::new(image())));
    let cache = BufCache::new(meter.clone(), BLOCK, 1 << 20);
    cache.get(12).unwrap();
    let run = cache.get_run(10, 8).unwrap();
    assert!(run.iter().zip(10..).all(|(buffer, block)| buffer.len() == BLOCK && buffer[5] == block));
    // One block, then 10–11 and 13–17.
    assert_eq!(meter.counts().total_reads(), 3);
    assert_eq!((cache.stats().misses, cache.stats().hits, cache.stats().device_reads), (8, 1, 3));
    cache.get_run(10, 8).unwrap();
    assert_eq!(meter.counts().total_reads(), 3);
}

/// Block 4 cannot be read.
struct BadBlock(MemoryDevice);

impl BlockDevice for BadBlock {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset == 4 * BLOCK as u64 {
            Err(io::Error::other("bad sector"))
        } else {
            self.0.read_at(offset, buf)
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn one_bad_block_in_a_run_harms_no_other() {
    let cache = BufCache::new(Arc::new(BadBlock(image())), BLOCK, 1 << 20);
    let error = cache.get_run(0, 8).unwrap_err();
    assert!(error.to_string().contains("block 4"), "{error}");
    let misses = cache.stats().misses;
    assert_eq!(cache.get(3).unwrap()[0], 3);
    assert_eq!(cache.get(5).unwrap()[0], 5);
    assert_eq!(cache.stats().misses, misses);
}

#[test]
fn what_is_read_often_survives_a_scan_of_everything() {
    let cache = cache(40 * (BLOCK + OVERHEAD));
    for block in 0..10 {
        cache.get(block).unwrap();
        cache.get(block).unwrap();
    }
    for block in 10..BLOCKS {
        cache.get(block).unwrap();
        cache.get(block % 10).unwrap();
    }
    let before = cache.stats().misses;
    (0..10).for_each(|block| drop(cache.get(block).unwrap()));
    assert_eq!(cache.stats().misses, before);
    assert!(cache.stats().evictions > 100);
}

#[test]
fn a_block_read_again_soon_after_eviction_survives_a_scan() {
    let cache = cache(40 * (BLOCK + OVERHEAD));
    let misses = |block| {
        let before = cache.stats().misses;
        cache.get(block).unwrap();
        cache.stats().misses - before
    };
    let full = cache.capacity() as u64;
    // Each used once: the first makes room for the last.
    (0..=full).for_each(|block| assert_eq!(misses(block), 1));
    assert_eq!((cache.stats().evictions, misses(0)), (1, 1));
    (full + 1..BLOCKS).for_each(|block| assert_eq!(misses(block), 1));
    assert_eq!((misses(0), misses(1)), (0, 1));
}

#[test]
fn held_blocks_stay_and_a_full_cache_returns_others_uncached() {
    let cache = cache(8 * (BLOCK + OVERHEAD));
    let held: Vec<_> = (0..BLOCKS).map(|block| cache.get(block).unwrap()).collect();
    let stats = cache.stats();
    assert_eq!(stats.held_bytes, stats.resident_bytes);
    assert!(stats.uncached > 0 && stats.resident_bytes <= (8 * (BLOCK + OVERHEAD)) as u64);
    assert!(held.iter().zip(0..).all(|(buffer, block)| buffer.iter().all(|&byte| byte == block)));
    let kept = stats.resident_bytes / BLOCK as u64;
    for block in 0..kept {
        assert_eq!(cache.get(block).unwrap().as_ptr(), held[block as usize].as_ptr());
    }
    drop(held);
    assert_eq!(cache.stats().held_bytes, 0);
    cache.get(BLOCKS - 1).unwrap();
    assert_eq!(cache.stats().evictions, 1);
}

#[test]
fn a_shrink_leaves_its_part_and_what_is_held_or_pinned() {
    let cache = cache(1 << 20);
    let held = cache.get(3).unwrap();
    cache.update(5, PinId(1), |bytes| bytes[0] = 77).unwrap();
    (0..BLOCKS).for_each(|block| drop(cache.get(block).unwrap()));
    let resident = || cache.stats().resident_bytes as usize / BLOCK;
    assert_eq!(resident(), BLOCKS as usize);
    let evicted = cache.shrink(75);
    // Each shard rounds.
    assert!((BLOCKS as usize / 4..BLOCKS as usize / 2).contains(&evicted), "{evicted}");
    assert_eq!(resident(), BLOCKS as usize - evicted);
    assert_eq!(cache.shrink(0), BLOCKS as usize - evicted - 2);
    assert_eq!((resident(), held[0], cache.get(5).unwrap()[0]), (2, 3, 77));
    // The budget is what it was.
    assert!((0..BLOCKS).filter(|block| *block != 5).all(|block| cache.get(block).unwrap()[0] == block as u8));
    assert_eq!(resident(), BLOCKS as usize);
}

#[test]
fn a_budget_of_nothing_keeps_nothing() {
    let cache = cache(BLOCK);
    assert_eq!(cache.get(1).unwrap()[0], 1);
    assert_eq!(cache.get_run(1, 3).unwrap()[2][0], 3);
    assert_eq!(cache.stats().resident_bytes, 0);
}

#[test]
fn threads_at_random_see_only_true_blocks_within_the_budget() {
    let budget = 64 * (BLOCK + OVERHEAD);
    let cache = cache(budget);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut at = thread;
                let mut held = Vec::new();
                for _ in 0..20_000 {
                    at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(thread + 1);
                    let block = (at >> 33) % (BLOCKS - 8);
                    let run = cache.get_run(block, (at >> 61) as usize).unwrap();
                    for (buffer, block) in run.iter().zip(block..) {
                        assert!(buffer.iter().all(|&byte| u64::from(byte) == block));
                    }
                    held.extend(cache.get(block));
                    if held.len() > 10 {
                        held.clear();
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.resident_bytes <= budget as u64 && stats.held_bytes == 0, "{stats:?}");
    assert!(stats.evictions > 0 && stats.hits > 0, "{stats:?}");
}

proptest! {
    #[test]
    fn any_order_of_reads_sees_the_device_within_the_budget(
        blocks in 0usize..100,
        steps in prop::collection::vec((0..BLOCKS, 0usize..8, any::<bool>()), 0..300),
    ) {
        let budget = blocks * (BLOCK + OVERHEAD);
        let cache = cache(budget);
        let mut held = Vec::new();
        for (first, count, hold) in steps {
            let count = count.min((BLOCKS - first) as usize);
            let run = cache.get_run(first, count).unwrap();
            prop_assert_eq!(run.len(), count);
            for (buffer, block) in run.iter().zip(first..) {
                prop_assert!(buffer.len() == BLOCK && buffer.iter().all(|&byte| u64::from(byte) == block));
            }
            if hold {
                held = run;
            }
            prop_assert!(cache.stats().resident_bytes <= budget as u64);
        }
        drop(held);
        prop_assert_eq!(cache.stats().held_bytes, 0);
    }
}
