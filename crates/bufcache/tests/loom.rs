//! Every interleaving of two threads that meet at one block:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dentree-bufcache --test loom`.
#![cfg(loom)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dentree_blockdev::BlockDevice;
use dentree_bufcache::BufCache;
use loom::thread;

/// Each byte is its block's number. The first `failures` reads fail. Other threads may run while one reads.
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
        buf.fill((offset / 64) as u8);
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
/// One block of 64 bytes and what goes with it.
const ONE_BLOCK: usize = 200;

fn model(failures: usize, budget: usize, check: impl Fn(&Arc<BufCache>, &Disk) + Send + Sync + 'static) {
    loom::model(move || {
        let disk = Arc::new(Disk { reads: AtomicUsize::new(0), failures });
        let cache = Arc::new(BufCache::new(disk.clone(), 64, budget));
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
fn a_failed_read_is_answered_to_all_who_waited_and_not_kept() {
    model(1, ROOMY, |cache, disk| {
        let other = Arc::clone(cache);
        let thread = thread::spawn(move || other.get(5).is_err());
        let failed = [cache.get(5).is_err(), thread.join().unwrap()];
        // Either one waited for the other's failure, or came after it and read again.
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
