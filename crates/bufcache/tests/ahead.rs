//! Reading ahead, and what it must not do to other blocks.
#![cfg(not(loom))]
#![allow(clippy::single_range_in_vec_init, reason = "a run is a range of blocks")]

use dentree_testing::wait_until;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use dentree_blockdev::{BlockDevice, Done, Failure, Fault, FaultDevice, MemoryDevice, Operation};
use dentree_bufcache::{BufCache, First, PinId, Runs};

const BLOCK: usize = 1024;
const BUDGET: usize = 1 << 20;

fn disk(blocks: usize) -> MemoryDevice {
    MemoryDevice::from((0..blocks).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>())
}

/// Keeps submitted reads until they are released, and records their order.
struct Held {
    disk: MemoryDevice,
    waiting: Mutex<Vec<(u64, Vec<u8>, Done)>>,
    is_open: AtomicBool,
}

impl Held {
    fn new(blocks: usize) -> Arc<Held> {
        Arc::new(Held { disk: disk(blocks), waiting: Mutex::default(), is_open: AtomicBool::new(false) })
    }

    fn order(&self) -> Vec<(u64, usize)> {
        let waiting = self.waiting.lock().unwrap();
        waiting.iter().map(|(offset, buf, _)| (offset / BLOCK as u64, buf.len() / BLOCK)).collect()
    }

    fn let_go(&self) {
        self.is_open.store(true, SeqCst);
        for (offset, mut buf, done) in std::mem::take(&mut *self.waiting.lock().unwrap()) {
            let read = self.disk.read_at(offset, &mut buf);
            done(read.map(|()| buf));
        }
    }
}

impl BlockDevice for Held {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buf)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        self.waiting.lock().unwrap().push((offset, buf, done));
        if self.is_open.load(SeqCst) {
            self.let_go();
        }
    }
}

fn nothing(_: First) -> Option<fn() -> Runs> {
    None
}

#[test]
fn neighbours_go_in_one_request_and_the_wanted_block_first() {
    let device = Held::new(400);
    let cache = BufCache::new(device.clone(), BLOCK, 8 * BUDGET);
    std::thread::scope(|scope| {
        let reader =
            scope.spawn(|| cache.get_ahead(50, |_| Some(|| vec![51..55, 49..50, 100..300])).unwrap()[0]);
        // At most 128 KiB in a request.
        let all = [(50, 1), (51, 4), (49, 1), (100, 128), (228, 72)];
        wait_until("asked for", || device.order().len() >= all.len());
        assert_eq!(device.order(), all);
        device.let_go();
        assert_eq!(reader.join().unwrap(), 50);
    });
    assert_eq!(cache.get(299).unwrap()[0], 299_u16 as u8);
    assert_eq!(cache.stats().device_reads, 5);
}

#[test]
fn the_plan_is_asked_at_a_miss_and_at_the_first_use_of_what_was_read_ahead() {
    let cache = BufCache::new(Arc::new(disk(16)), BLOCK, BUDGET);
    let mut asked = Vec::new();
    for block in [1, 1, 2, 2, 3] {
        cache
            .get_ahead(block, |first| {
                asked.push((block, first));
                Some(|| vec![2..3])
            })
            .unwrap();
    }
    assert_eq!(asked, [(1, First::Miss), (2, First::Use), (3, First::Miss)]);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.ahead_read, stats.ahead_used, stats.hits), (2, 1, 1, 3));
}

#[test]
fn a_request_for_a_block_that_is_being_read_ahead_waits_for_it() {
    let device = Held::new(16);
    let cache = BufCache::new(device.clone(), BLOCK, BUDGET);
    cache.read_ahead(vec![4..8]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (4..8)
            .map(|block| {
                scope.spawn({
                    let cache = &cache;
                    move || cache.get(block).unwrap()[0]
                })
            })
            .collect();
        wait_until("waited for", || cache.stats().waits >= 4);
        device.let_go();
        assert_eq!(
            readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>(),
            [4, 5, 6, 7]
        );
    });
    assert_eq!((cache.stats().device_reads, cache.stats().ahead_used), (1, 4));
}

#[test]
fn a_failed_read_ahead_does_not_fail_later_requests() {
    let device = Arc::new(FaultDevice::new(Arc::new(disk(16))));
    let cache = BufCache::new(device.clone(), BLOCK, BUDGET);
    device.inject(Fault { operation: Operation::Read, after: 0, times: 1, failure: Failure::Io });
    cache.read_ahead(vec![4..8]);
    assert_eq!(cache.stats().ahead_wasted, 4);
    assert_eq!(cache.get(6).unwrap()[0], 6);
    // The requested block's own error is returned.
    device.inject(Fault { operation: Operation::Read, after: 0, times: 1, failure: Failure::Io });
    let error = cache.get_ahead(9, |_| Some(|| vec![10..11])).unwrap_err();
    assert!(error.to_string().contains('9'), "{error}");
    assert_eq!(cache.get(9).unwrap()[0], 9);
}

#[test]
fn blocks_beyond_the_device_are_skipped() {
    let cache = BufCache::new(Arc::new(disk(8)), BLOCK, BUDGET);
    cache.read_ahead(vec![6..20, 30..40, 9..u64::MAX]);
    assert_eq!(cache.stats().ahead_read, 2);
}

#[test]
fn reading_ahead_evicts_nothing_used_changed_or_held_and_keeps_to_its_share() {
    let cache = BufCache::new(Arc::new(disk(4096)), BLOCK, 200 * BLOCK);
    let room = cache.capacity() as u64;
    let used: Vec<u64> = (0..room / 4).collect();
    for &block in &used {
        cache.get(block).unwrap();
        cache.get(block).unwrap();
    }
    for block in room / 4..room / 2 {
        cache.update(block, PinId(1), |bytes| bytes[0] ^= 1).unwrap();
    }
    cache.read_ahead(vec![1000..4000]);
    let misses = cache.stats().misses;
    used.iter().for_each(|&block| drop(cache.get(block).unwrap()));
    assert_eq!(cache.stats().misses, misses, "a block in use was pushed out");

    let empty = BufCache::new(Arc::new(disk(4096)), BLOCK, 200 * BLOCK);
    empty.read_ahead(vec![0..4000]);
    let (ahead, room) = (empty.stats().ahead_read, empty.capacity() as u64);
    assert!(ahead >= room / 8 && ahead <= room / 4 + 8, "{ahead} of {room}");
}

#[test]
fn a_device_can_be_closed_while_it_is_read_ahead() {
    let device = Held::new(16);
    let cache = BufCache::new(device.clone(), BLOCK, BUDGET);
    cache.read_ahead(vec![0..8]);
    drop(cache);
    // The read in progress keeps neither the cache nor the device.
    assert_eq!(Arc::strong_count(&device), 1);
    device.let_go();
}

#[test]
fn no_plan_costs_one_plain_read() {
    let device = Held::new(16);
    let cache = BufCache::new(device.clone(), BLOCK, BUDGET);
    assert_eq!(cache.get_ahead(3, nothing).unwrap()[0], 3);
    assert!(device.order().is_empty());
}
