//! Every interleaving of two threads that meet at one block:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dentree-bufcache --test loom`.
#![cfg(loom)]
#![allow(clippy::single_range_in_vec_init, reason = "a run is a range of blocks")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dentree_blockdev::BlockDevice;
use dentree_bufcache::{BhLruSize, BufCache, PinId};
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;

/// Each byte is its block's number. The first `failures` reads fail. Other threads may run during a
/// read.
struct Disk {
    reads: AtomicUsize,
    failures: usize,
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        thread::yield_now();
        if self.reads.fetch_add(1, Relaxed) < self.failures {
            return Err(io::Error::other("bad sector"));
        }
        for (block, bytes) in (offset / 64..).zip(buf.chunks_mut(64)) {
            bytes.fill(block as u8);
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

const ROOMY: usize = 1 << 20;
/// The cost of one block of 64 bytes.
const ONE_BLOCK: usize = 64 + 192;

fn model(failures: usize, budget: usize, check: impl Fn(&Arc<BufCache>, &Disk) + Send + Sync + 'static) {
    loom::model(move || {
        let disk = Arc::new(Disk { reads: AtomicUsize::new(0), failures });
        let size = BhLruSize::new(2).unwrap();
        let cache = Arc::new(BufCache::with_bh_lru(disk.clone(), 64, budget, size));
        check(&cache, &disk);
    });
}

#[test]
fn two_threads_that_miss_one_block_read_it_once() {
    model(0, ROOMY, |cache, disk| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || other.get(5).unwrap()[0]);
        assert_eq!(cache.get(5).unwrap()[0], 5);
        assert_eq!(thread.join().unwrap(), 5);
        assert_eq!(disk.reads.load(Relaxed), 1);
    });
}

#[test]
fn a_failed_read_fails_all_waiters_and_is_not_cached() {
    model(1, ROOMY, |cache, disk| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || other.get(5).is_err());
        let failed = [cache.get(5).is_err(), thread.join().unwrap()];
        // One waited for the other's failure, or came after it and read again.
        assert!(failed.contains(&true));
        assert_eq!(failed.contains(&false), disk.reads.load(Relaxed) == 2);
        assert_eq!(cache.get(5).unwrap()[0], 5);
    });
}

#[test]
fn threads_that_wait_for_each_others_runs_both_end() {
    model(0, ROOMY, |cache, _| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || other.get_run(1, 2).unwrap()[1][0]);
        let run = cache.get_run(0, 2).unwrap();
        assert_eq!((run[0][0], run[1][0], thread.join().unwrap()), (0, 1, 2));
    });
}

#[test]
fn a_block_that_takes_anothers_slot_never_shows_the_others_bytes() {
    model(0, ONE_BLOCK, |cache, _| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || {
            let two = other.get(2).unwrap();
            assert_eq!((two[0], two[63]), (2, 2));
        });
        let one = cache.get(1).unwrap();
        assert_eq!((one[0], one[63]), (1, 1));
        thread.join().unwrap();
        assert_eq!((one[0], one[63]), (1, 1));
    });
}

#[test]
fn a_change_that_meets_a_read_is_neither_lost_nor_torn() {
    model(0, ROOMY, |cache, _| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || {
            let seen = other.get(5).unwrap();
            // The block before the change, or after it.
            assert!(seen[..] == [5; 64] || seen[..] == [9; 64]);
        });
        let changed = cache.update(5, PinId(1), |bytes| bytes.fill(9)).unwrap();
        assert!(changed.is_first);
        thread.join().unwrap();
        assert_eq!(cache.get(5).unwrap()[0], 9);
    });
}

#[test]
fn a_thread_that_knows_of_a_change_gets_no_copy_from_before() {
    model(0, ROOMY, |cache, _| {
        cache.set_mark(5, &cache.get(5).unwrap(), 1);
        for _ in 0..2 {
            cache.get_often(5).unwrap();
        }
        let heard = Arc::new(AtomicBool::new(false));
        let (other, tells) = (Arc::clone(cache), Arc::clone(&heard));
        let thread = thread::spawn(move || {
            other.update(5, PinId(1), |bytes| bytes.fill(9)).unwrap();
            tells.store(true, Release);
        });
        let has_heard = heard.load(Acquire);
        let seen = cache.get_often(5).unwrap();
        assert!(seen[..] == [9; 64] || seen[..] == [5; 64] && !has_heard);
        thread.join().unwrap();
        assert!(cache.get_often(5).unwrap()[..] == [9; 64]);
    });
}

#[test]
fn changes_by_two_threads_both_happen_and_one_is_the_first() {
    model(0, ROOMY, |cache, _| {
        let other = Arc::clone(cache);
        let change = |cache: &BufCache| cache.update(5, PinId(1), |bytes| bytes[0] += 1).unwrap().is_first;
        let thread = thread::spawn(move || change(&other));
        let firsts = [change(cache), thread.join().unwrap()];
        assert_eq!(cache.get(5).unwrap()[0], 7);
        assert_eq!(firsts.iter().filter(|&&first| first).count(), 1);
    });
}

#[test]
fn a_pinned_block_is_not_evicted_for_another() {
    model(0, ONE_BLOCK, |cache, disk| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || other.get(2).unwrap()[0]);
        cache.update(1, PinId(1), |bytes| bytes[0] = 9).unwrap();
        assert_eq!(thread.join().unwrap(), 2);
        let reads = disk.reads.load(Relaxed);
        assert_eq!((cache.get(1).unwrap()[0], disk.reads.load(Relaxed)), (9, reads));
    });
}

#[test]
fn a_late_write_does_not_unpin_a_later_change() {
    model(0, ONE_BLOCK, |cache, _| {
        cache.update(1, PinId(1), |bytes| bytes[0] = 7).unwrap();
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || other.unpin(1, PinId(1)));
        cache.update(1, PinId(2), |bytes| bytes[1] = 8).unwrap();
        thread.join().unwrap();
        // The device lacks the first change if the block was evicted in between, as the caller had
        // unpinned it.
        assert_eq!(cache.get(1).unwrap()[1], 8);
        assert!(cache.pinned(1, PinId(2)).is_some() && cache.pinned(1, PinId(1)).is_none());
        cache.get(2).unwrap();
        assert_eq!(cache.get(1).unwrap()[1], 8);
    });
}

#[test]
fn a_new_block_wins_over_a_read_of_what_it_was() {
    model(0, ROOMY, |cache, _| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || {
            let seen = other.get(5).unwrap();
            assert!(seen[..] == [5; 64] || seen[1..] == [0; 63]);
        });
        cache.create(5, PinId(1), |bytes| bytes[0] = 9).unwrap();
        thread.join().unwrap();
        let now = cache.get(5).unwrap();
        assert_eq!((now[0], now[1]), (9, 0));
    });
}

#[test]
fn a_block_that_is_read_ahead_reaches_a_request_meanwhile() {
    for failures in [0, 1] {
        model(failures, ROOMY, move |cache, _| {
            let other = Arc::clone(cache);
            let thread = thread::spawn(move || other.read_ahead(vec![5..7]));
            // The failing read may be its own.
            let wanted = cache.get(5).map(|buffer| buffer[0]);
            assert!(matches!((wanted, failures), (Ok(5), _) | (Err(_), 1)));
            thread.join().unwrap();
            assert_eq!(cache.get(5).unwrap()[0] + cache.get(6).unwrap()[0], 11);
        });
    }
}

#[test]
fn memory_reused_for_another_block_is_not_taken_for_the_first() {
    model(0, ONE_BLOCK, |cache, _| {
        cache.set_mark(5, &cache.get(5).unwrap(), 1);
        for _ in 0..2 {
            cache.get_often(5).unwrap();
        }
        let other = Arc::clone(cache);
        // Evicts it in the end: a copy that is used meanwhile saves it once.
        let thread = thread::spawn(move || (10..13).for_each(|block| drop(other.get(block).unwrap())));
        assert_eq!(cache.get_often(5).unwrap()[..], [5; 64]);
        thread.join().unwrap();
        assert_eq!(cache.get_often(5).unwrap()[..], [5; 64]);
    });
}
