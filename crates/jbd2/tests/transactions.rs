//! Handles and transactions without a log.
#![cfg(not(loom))]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_bufcache::BufCache;
use dentree_jbd2::{Cause, Error, Journal, JournalOptions};

const BLOCK: usize = 1024;
const BLOCKS: usize = 4096;

/// Counts flushes, and fails writes on request.
struct Disk {
    memory: MemoryDevice,
    flushes: AtomicU64,
    fails: AtomicBool,
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if self.fails.load(SeqCst) {
            return Err(io::Error::other("bad sector"));
        }
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, SeqCst);
        self.memory.flush()
    }
}

fn journal() -> (Arc<Disk>, Arc<BufCache>, Journal) {
    let memory = MemoryDevice::new(BLOCK * BLOCKS);
    let disk = Arc::new(Disk { memory, flushes: AtomicU64::new(0), fails: AtomicBool::new(false) });
    let cache = Arc::new(BufCache::new(disk.clone(), BLOCK, 1 << 20));
    let journal = Journal::without_log(Arc::clone(&cache), JournalOptions::default()).unwrap();
    (disk, cache, journal)
}

#[test]
fn changes_are_seen_at_once_and_reach_the_device_with_the_commit() {
    let (disk, cache, journal) = journal();
    let old = cache.get(3).unwrap();
    let mut handle = journal.start(2).unwrap();
    handle.update(3, |bytes| bytes[0] = 1).unwrap();
    handle.update(3, |bytes| bytes[1] = 2).unwrap();
    handle.create(9, |bytes| bytes[5] = 7).unwrap();
    assert_eq!(handle.credits(), 0);
    let tid = handle.stop();
    assert_eq!((old[0], cache.get(3).unwrap()[..2].to_vec()), (0, vec![1, 2]));
    assert!(disk.memory.to_vec().iter().all(|&byte| byte == 0));
    journal.wait_commit(tid).unwrap();
    let bytes = disk.memory.to_vec();
    assert_eq!((bytes[3 * BLOCK], bytes[3 * BLOCK + 1], bytes[9 * BLOCK + 5]), (1, 2, 7));
    assert_eq!((cache.stats().pinned_bytes, journal.overdrafts()), (0, 0));
}

#[test]
fn a_forgotten_block_is_not_written_and_becomes_free_after_the_commit() {
    let (disk, _, journal) = journal();
    let mut handle = journal.start(2).unwrap();
    handle.update(3, |bytes| bytes[0] = 1).unwrap();
    handle.stop();
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut handle = journal.start(1).unwrap();
    handle.forget(3, 1);
    let to = Arc::clone(&told);
    handle.after_commit(move |outcome| to.lock().unwrap().push(outcome.is_ok()));
    let tid = handle.stop();
    assert!(told.lock().unwrap().is_empty());
    journal.wait_commit(tid).unwrap();
    assert_eq!((told.lock().unwrap().clone(), disk.memory.to_vec()[3 * BLOCK]), (vec![true], 0));
}

#[test]
fn before_commit_writes_changes_made_in_memory_to_their_block_once() {
    let (disk, cache, journal) = journal();
    let newest = Arc::new(AtomicU8::new(0));
    let is_behind = Arc::new(AtomicBool::new(false));
    let (its, behind) = (Arc::clone(&newest), Arc::clone(&is_behind));
    journal.before_commit(move |changes| match behind.swap(false, SeqCst) {
        true => changes.update(3, |bytes| bytes[0] = its.load(SeqCst)),
        false => Ok(()),
    });
    for first in [1, 51] {
        let mut handle = journal.start(1).unwrap();
        handle.update(3, |bytes| bytes[0] = first).unwrap();
        handle.stop();
        for change in first + 1..first + 9 {
            let handle = journal.start(0).unwrap();
            newest.store(change, SeqCst);
            is_behind.store(true, SeqCst);
            handle.stop();
        }
        assert_eq!(cache.get(3).unwrap()[0], first);
        journal.force_commit().unwrap();
        assert_eq!((cache.get(3).unwrap()[0], disk.memory.to_vec()[3 * BLOCK]), (first + 8, first + 8));
    }
    assert_eq!((cache.stats().changes, cache.stats().pinned_bytes, journal.overdrafts()), (4, 0, 0));
}

#[test]
fn a_block_that_only_before_commit_changes_is_committed_and_counted_as_overdraft() {
    let (disk, _, journal) = journal();
    journal.before_commit(|changes| changes.update(5, |bytes| bytes[0] += 1));
    journal.force_commit().unwrap();
    assert_eq!((disk.memory.to_vec()[5 * BLOCK], journal.overdrafts()), (1, 1));
}

#[test]
fn a_failed_before_commit_aborts_the_journal() {
    let (disk, _, journal) = journal();
    journal.before_commit(|_| Err(io::Error::other("no memory of it")));
    let mut handle = journal.start(1).unwrap();
    handle.update(3, |bytes| bytes[0] = 1).unwrap();
    let error = journal.wait_commit(handle.stop()).unwrap_err();
    assert!(format!("{error:?}").contains("no memory of it"), "{error:?}");
    assert!(journal.is_aborted() && journal.start(1).is_err());
    assert_eq!(disk.memory.to_vec()[3 * BLOCK], 0);
}

#[test]
fn a_block_used_in_the_transaction_that_freed_it_aborts_by_name() {
    let (_, _, journal) = journal();
    let mut handle = journal.start(2).unwrap();
    handle.forget(3, 1);
    handle.create(3, |bytes| bytes[0] = 1).unwrap();
    let tid = handle.stop();
    let error = journal.wait_commit(tid).unwrap_err();
    assert!(
        matches!(&error, Error::Aborted(cause) if matches!(**cause, Cause::UsedAfterFree { block: 3 })),
        "{error}"
    );
    assert!(journal.start(1).is_err());
}

#[test]
fn more_handles_than_credits_wait_for_a_commit_and_all_get_through() {
    let (disk, _, journal) = journal();
    let most = journal.most_credits();
    assert!(matches!(journal.start(most + 1), Err(Error::TooLarge { .. })));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let journal = &journal;
            scope.spawn(move || {
                for block in 0..50 {
                    let mut handle = journal.start(most).unwrap();
                    handle.update(thread * 50 + block, |bytes| bytes[0] += 1).unwrap();
                    assert!(handle.extend(0) && !handle.extend(2));
                }
            });
        }
    });
    journal.force_commit().unwrap();
    let bytes = disk.memory.to_vec();
    assert!((0..200).all(|block| bytes[block * BLOCK] == 1));
}

#[test]
fn threads_that_count_in_one_block_lose_nothing() {
    let (disk, cache, journal) = journal();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500 {
                    let mut handle = journal.start(2).unwrap();
                    for block in [1, 2] {
                        let add = |bytes: &mut [u8]| {
                            let count = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + 1;
                            bytes[..8].copy_from_slice(&count.to_le_bytes());
                        };
                        handle.update(block, add).unwrap();
                    }
                    let tid = handle.stop();
                    if round % 50 == 0 {
                        journal.wait_commit(tid).unwrap();
                    }
                }
            });
        }
    });
    journal.close().unwrap();
    let bytes = disk.memory.to_vec();
    for block in [1, 2] {
        assert_eq!(bytes[block * BLOCK..][..8], 2000u64.to_le_bytes());
    }
    assert_eq!(cache.stats().pinned_bytes, 0);
    assert!(matches!(journal.start(1), Err(Error::Aborted(_))));
}

#[test]
fn an_error_of_the_device_reaches_all_who_wait_and_all_who_come() {
    let (disk, cache, journal) = journal();
    let mut handle = journal.start(1).unwrap();
    handle.update(5, |bytes| bytes[0] = 9).unwrap();
    let told = Arc::new(Mutex::new(None));
    let to = Arc::clone(&told);
    handle.after_commit(move |outcome| *to.lock().unwrap() = Some(outcome.is_err()));
    disk.fails.store(true, SeqCst);
    let tid = handle.stop();
    let error = journal.wait_commit(tid).unwrap_err();
    assert!(error.to_string().contains("bad sector"), "{error}");
    assert_eq!(*told.lock().unwrap(), Some(true));
    assert!(journal.start(1).is_err() && journal.close().is_err());
    // Readers still see it.
    assert_eq!(cache.get(5).unwrap()[0], 9);
}

#[test]
fn a_panic_in_the_middle_of_a_change_commits_nothing_of_it() {
    let (disk, _, journal) = journal();
    let outcome = std::thread::scope(|scope| {
        let broken = || {
            let mut handle = journal.start(2).unwrap();
            handle.update(5, |bytes| bytes[0] = 9).unwrap();
            panic!("in the middle");
        };
        scope.spawn(broken).join()
    });
    assert!(outcome.is_err());
    let error = journal.force_commit().unwrap_err();
    assert!(matches!(&error, Error::Aborted(cause) if matches!(**cause, Cause::Panicked)), "{error}");
    drop(journal);
    assert_eq!(disk.memory.to_vec()[5 * BLOCK], 0);
}

#[test]
fn a_panic_under_a_commit_that_waits_for_the_handle_commits_nothing_of_it() {
    let (disk, _, journal) = journal();
    let outcome = std::thread::scope(|scope| {
        let broken = || {
            let mut handle = journal.start(2).unwrap();
            handle.update(5, |bytes| bytes[0] = 9).unwrap();
            journal.request_commit(handle.tid());
            // Usually the commit waits for the handle by then; the result must not depend on that.
            dentree_testing::linger(std::time::Duration::from_millis(20));
            panic!("in the middle");
        };
        scope.spawn(broken).join()
    });
    assert!(outcome.is_err());
    assert!(journal.force_commit().is_err());
    drop(journal);
    assert_eq!(disk.memory.to_vec()[5 * BLOCK], 0);
}

#[test]
fn a_commit_with_nothing_in_it_flushes_what_was_written_before() {
    let (disk, _, journal) = journal();
    let before = disk.flushes.load(SeqCst);
    journal.force_commit().unwrap();
    assert_eq!(disk.flushes.load(SeqCst), before + 1);
}
