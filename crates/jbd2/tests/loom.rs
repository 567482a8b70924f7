//! Interleavings of handles, waiters and the journal's thread: `RUSTFLAGS="--cfg loom" cargo test
//! --release -p dentree-jbd2 --test loom`.
#![cfg(loom)]

use std::sync::Arc;

use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_bufcache::BufCache;
use dentree_jbd2::{Journal, JournalOptions};
use loom::sync::{Condvar, Mutex};
use loom::thread;

const BLOCK: usize = 64;

fn model(check: impl Fn(&Arc<Journal>, &MemoryDevice) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let device = MemoryDevice::new(4 * BLOCK);
        let cache = Arc::new(BufCache::new(Arc::new(device.clone()), BLOCK, 1 << 16));
        let journal = Arc::new(Journal::without_log(cache, JournalOptions::default()).unwrap());
        check(&journal, &device);
        journal.close().unwrap();
    });
}

/// Adds one to two blocks, and waits until they are on the device.
fn add(journal: &Journal) {
    let mut handle = journal.start(2).unwrap();
    handle.update(1, |bytes| bytes[0] += 1).unwrap();
    handle.update(2, |bytes| bytes[0] += 1).unwrap();
    journal.wait_commit(handle.stop()).unwrap();
}

fn counts(device: &MemoryDevice) -> [u8; 2] {
    [1, 2].map(|block| {
        let mut byte = [0];
        device.read_at(block * BLOCK as u64, &mut byte).unwrap();
        byte[0]
    })
}

#[test]
fn who_waits_for_a_commit_finds_it_done_however_threads_meet() {
    model(|journal, device| {
        let other = Arc::clone(journal);
        let thread = thread::spawn(move || add(&other));
        add(journal);
        assert!(counts(device).iter().all(|&count| count >= 1));
        thread.join().unwrap();
        assert_eq!(counts(device), [2, 2]);
    });
}

/// The waiter takes the log writer before the journal's thread, or after it.
#[test]
fn a_commit_without_waiters_completes_however_it_meets_a_waiter() {
    model(|journal, device| {
        let other = Arc::clone(journal);
        let thread = thread::spawn(move || add(&other));
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let mut handle = journal.start(1).unwrap();
        handle.update(3, |bytes| bytes[0] = 7).unwrap();
        let tell = Arc::clone(&ended);
        handle.after_commit(move |outcome| {
            outcome.unwrap();
            *tell.0.lock().unwrap() = true;
            tell.1.notify_one();
        });
        journal.request_commit(handle.stop());
        let mut has_ended = ended.0.lock().unwrap();
        while !*has_ended {
            has_ended = ended.1.wait(has_ended).unwrap();
        }
        let mut byte = [0];
        device.read_at(3 * BLOCK as u64, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        drop(has_ended);
        thread.join().unwrap();
    });
}

#[test]
fn an_abort_leaves_no_waiter() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let device = MemoryDevice::new(4 * BLOCK);
        let cache = Arc::new(BufCache::new(Arc::new(device.clone()), BLOCK, 1 << 16));
        let journal = Arc::new(Journal::without_log(cache, JournalOptions::default()).unwrap());
        let other = Arc::clone(&journal);
        let thread = thread::spawn(move || other.abort("enough"));
        let waited = journal.start(1).and_then(|mut handle| {
            handle.update(1, |bytes| bytes[0] += 1).unwrap();
            journal.wait_commit(handle.stop())
        });
        // Acknowledged means durable.
        assert!(waited.is_err() || counts(&device)[0] == 1);
        thread.join().unwrap();
        assert!(journal.start(1).is_err() && journal.close().is_err());
    });
}
