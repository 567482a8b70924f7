//! Failing devices and concurrent threads: what was acknowledged is durable, and no failure is
//! acknowledged.
#![cfg(not(loom))]

use std::sync::{Arc, Mutex};

use dentree_blockdev::{
    BlockDevice, Failure, Fault, FaultDevice, MemoryDevice, Operation, RecordingDevice, Survivors,
};
use dentree_bufcache::BufCache;
use dentree_jbd2::{Error, Journal, JournalLocation, JournalOptions, recover};

const BLOCK: usize = 1024;
const TARGETS: u64 = 24;
const JOURNAL_LEN: u64 = 64;
const OPTIONS: JournalOptions = JournalOptions { interval: None, has_checksums: true, is_64bit: true };

fn location() -> JournalLocation {
    JournalLocation { block_size: BLOCK, runs: vec![(TARGETS, JOURNAL_LEN)] }
}

/// An empty journal after the target blocks.
fn image() -> Vec<u8> {
    let mut bytes = vec![0; (TARGETS + JOURNAL_LEN) as usize * BLOCK];
    let words = [0xC03B_3998, 4, 0, BLOCK as u32, JOURNAL_LEN as u32, 1, 1, 0];
    for (field, word) in bytes[TARGETS as usize * BLOCK..].chunks_mut(4).zip(words) {
        field.copy_from_slice(&u32::to_be_bytes(word));
    }
    bytes
}

fn open(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> (Arc<BufCache>, Journal) {
    let cache = Arc::new(BufCache::new(device, BLOCK, cache_bytes));
    let journal = Journal::open(Arc::clone(&cache), &location(), OPTIONS).unwrap();
    (cache, journal)
}

fn count(bytes: &[u8], block: u64) -> u64 {
    u64::from_le_bytes(bytes[block as usize * BLOCK..][..8].try_into().unwrap())
}

/// Adds one to two blocks in a transaction.
fn add(journal: &Journal, blocks: [u64; 2]) -> Result<(), Error> {
    let mut handle = journal.start(2)?;
    for block in blocks {
        let add = |bytes: &mut [u8]| {
            let count = count(bytes, 0) + 1;
            bytes[..8].copy_from_slice(&count.to_le_bytes());
        };
        handle.update(block, add).expect("the blocks are cached");
    }
    journal.wait_commit(handle.stop())
}

fn recovered(bytes: Vec<u8>) -> Vec<u8> {
    let recovered = recover(Arc::new(MemoryDevice::from(bytes)), &location()).unwrap();
    let mut bytes = vec![0; recovered.device.size() as usize];
    recovered.device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The result of counting until a fault.
struct Counted {
    acknowledged: u64,
    /// All counts were acknowledged.
    is_closed: bool,
    /// Requests that failed.
    injected: u64,
    bytes: Vec<u8>,
}

/// Counts with a planned fault.
fn count_with(fault: Fault) -> Counted {
    const ROUNDS: u64 = 40;
    let memory = MemoryDevice::from(image());
    let device = Arc::new(FaultDevice::new(Arc::new(memory.clone())));
    let (cache, journal) = open(device.clone(), 1 << 20);
    cache.get_run(0, TARGETS as usize).unwrap();
    device.inject(fault);
    let mut acknowledged = 0;
    while acknowledged < ROUNDS {
        if let Err(error) = add(&journal, [0, 1]) {
            assert!(matches!(error, Error::Aborted(_)), "{error}");
            // Later callers fail, too.
            assert!(
                journal.start(1).is_err() && journal.force_commit().is_err() && journal.error().is_some()
            );
            break;
        }
        acknowledged += 1;
    }
    let is_closed = journal.close().is_ok();
    Counted { acknowledged, is_closed, injected: device.injected(), bytes: memory.to_vec() }
}

#[test]
fn an_error_at_any_step_aborts_with_its_cause_and_keeps_what_was_acknowledged() {
    let mut cases = 0;
    for operation in [Operation::Write, Operation::Flush] {
        for failure in [Failure::Io, Failure::NoSpace, Failure::Short] {
            for times in [1, u64::MAX] {
                for after in 0.. {
                    let fault = Fault { operation, after, times, failure };
                    let counted = count_with(fault);
                    if counted.injected == 0 {
                        assert!(counted.is_closed && counted.acknowledged == 40);
                        break;
                    }
                    assert!(!counted.is_closed, "{fault:?}: nothing failed");
                    let bytes = recovered(counted.bytes);
                    let found = count(&bytes, 0);
                    assert_eq!(found, count(&bytes, 1), "{fault:?}");
                    // The failed commit may be on the device.
                    let bounds = counted.acknowledged..=counted.acknowledged + 1;
                    assert!(bounds.contains(&found), "{fault:?}: {found} of {bounds:?}");
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} faults");
}

#[test]
fn threads_that_commit_together_lose_nothing_to_a_power_cut() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 25;
    // Caches for all blocks, and for so few that the journal always checkpoints.
    for cache_bytes in [1 << 20, 6 * (BLOCK + 128)] {
        let device = Arc::new(RecordingDevice::new(image()));
        let (_, journal) = open(device.clone(), cache_bytes);
        // Thread, its count, and the device's position.
        let (begun, acknowledged) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (journal, device, begun, acknowledged) = (&journal, &device, &begun, &acknowledged);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        begun.lock().unwrap().push((device.position(), thread, round));
                        add(journal, [2 * thread, 2 * thread + 1]).unwrap();
                        acknowledged.lock().unwrap().push((device.position(), thread, round));
                    }
                });
            }
        });
        let most = |events: &Mutex<Vec<(usize, u64, u64)>>, steps: usize, thread: u64| {
            let events = events.lock().unwrap();
            let of = events.iter().filter(|&&(at, by, _)| at <= steps && by == thread);
            of.map(|&(.., round)| round).max().unwrap_or(0)
        };
        let recording = device.recording();
        let mut replay = recording.replay();
        for steps in 0..=recording.steps().len() {
            let bytes = recovered(replay.image(steps, Survivors::Sectors { seed: 1 }));
            for thread in 0..THREADS {
                let found = count(&bytes, 2 * thread);
                assert_eq!(found, count(&bytes, 2 * thread + 1), "half a transaction after step {steps}");
                let bounds = most(&acknowledged, steps, thread)..=most(&begun, steps, thread);
                assert!(
                    bounds.contains(&found),
                    "after step {steps} thread {thread} has {found} of {bounds:?}"
                );
            }
        }
        journal.close().unwrap();
    }
}

#[test]
fn commits_are_shared_by_those_who_wait() {
    struct Counting(MemoryDevice, Mutex<u64>);
    impl BlockDevice for Counting {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> std::io::Result<()> {
            *self.1.lock().unwrap() += 1;
            Ok(())
        }
    }
    let device = Arc::new(Counting(MemoryDevice::from(image()), Mutex::new(0)));
    let (_, journal) = open(device.clone(), 1 << 20);
    let tids: Vec<_> = (0..8)
        .map(|block| {
            let mut handle = journal.start(1).unwrap();
            handle.update(block, |bytes| bytes[0] = 1).unwrap();
            handle.stop()
        })
        .collect();
    // One transaction and commit: a flush before the commit block, one after it.
    assert!(tids.iter().all(|&tid| tid == tids[0]));
    std::thread::scope(|scope| {
        for &tid in &tids {
            let journal = &journal;
            scope.spawn(move || journal.wait_commit(tid).unwrap());
        }
    });
    assert_eq!(*device.1.lock().unwrap(), 2);
}

#[test]
fn a_handle_that_starts_while_the_journal_closes_is_committed_or_refused() {
    for _ in 0..200 {
        let device = Arc::new(MemoryDevice::from(image()));
        let (_, journal) = open(device.clone(), 1 << 20);
        let done = std::thread::scope(|scope| {
            let adding = scope.spawn(|| {
                let add = || {
                    let mut handle = journal.start(1).ok()?;
                    handle.update(0, |bytes| bytes[0] += 1).ok()?;
                    Some(handle.stop())
                };
                (0..200).take_while(|_| add().is_some()).count()
            });
            journal.close().unwrap();
            adding.join().unwrap()
        });
        assert_eq!(device.to_vec()[0] as usize, done);
    }
}
