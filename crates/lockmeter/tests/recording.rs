//! What a recording counts.
#![cfg(all(feature = "meter", not(loom)))]

use dentree_lockmeter::{BigReaderLock, BitLock, Class, Kind, Recording, SpinLock, heading};
use dentree_sync::lockstat::{NamedMutex, NamedRwLock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

#[test]
fn call_sites_are_told_apart_and_add_up() {
    let lock = SpinLock::new(Class::named("sites"), 0);
    let recording = Recording::start();
    for _ in 0..3 {
        *lock.lock() += 1;
    }
    *lock.lock() += 1;
    let report = recording.finish();
    let figures = report.lock("sites").expect("recorded");
    assert_eq!(figures.all.total, 4);
    assert_eq!(figures.sites.iter().map(|site| site.figures.total).collect::<Vec<_>>(), [3, 1]);
    assert!(figures.sites.iter().all(|site| site.file.ends_with("recording.rs")));
    assert_eq!(*lock.lock(), 4);
}

#[test]
fn a_request_that_waits_is_counted_with_its_wait() {
    let lock = SpinLock::new(Class::named("waits"), ());
    let both = Barrier::new(2);
    let recording = Recording::start();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1000 {
                both.wait();
                drop(lock.lock());
                both.wait();
            }
        });
        for _ in 0..1000 {
            let held = lock.lock();
            both.wait();
            thread::yield_now(); // lets the other one run into it, even on one CPU
            drop(held);
            both.wait();
        }
    });
    let all = recording.finish().lock("waits").expect("recorded").all;
    assert_eq!((all.total, all.rject), (2000, 0.0));
    assert!(all.spin > 0.0 && all.con == all.spin, "{all:?}");
    assert!(all.wait_max >= all.wait_mean && all.wait_mean > 0.0 && all.wait_cpu > 0.0, "{all:?}");
    assert!((all.nowait + all.spin - 100.0).abs() < 1e-9, "{all:?}");
    assert!(all.util > 0.0 && all.util <= 100.0, "{all:?}");
}

#[test]
fn a_refused_request_is_counted_as_refused() {
    let lock = SpinLock::new(Class::named("refused"), ());
    let recording = Recording::start();
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(held);
    assert!(lock.try_lock().is_some());
    let all = recording.finish().lock("refused").expect("recorded").all;
    assert_eq!((all.total, all.rject > 33.0, all.con > 33.0), (3, true, true));
}

#[test]
fn threads_that_ended_leave_their_figures() {
    let lock = Arc::new(NamedMutex::new(Class::named("ended"), 0));
    let recording = Recording::start();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || (0..1000).for_each(|_| *lock.lock() += 1))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("thread"));
    let report = recording.finish();
    assert_eq!(report.lock("ended").expect("recorded").all.total, 4000);
    assert_eq!(*lock.lock(), 4000);
}

#[test]
fn threads_that_live_are_counted_and_two_recordings_do_not_mix() {
    let lock = Arc::new(SpinLock::new(Class::named("lives"), ()));
    let turn = Arc::new(Barrier::new(2));
    let worker = thread::spawn({
        let (lock, turn) = (Arc::clone(&lock), Arc::clone(&turn));
        move || {
            for requests in [5, 7, 9] {
                turn.wait();
                (0..requests).for_each(|_| drop(lock.lock()));
                turn.wait();
            }
        }
    });
    let round = |record: bool| {
        let recording = record.then(Recording::start);
        turn.wait();
        turn.wait();
        recording.map(|recording| recording.finish().lock("lives").map(|lock| lock.all.total))
    };
    assert_eq!(round(true), Some(Some(5)));
    assert_eq!(round(false), None);
    assert_eq!(round(true), Some(Some(9)));
    worker.join().expect("worker");
}

#[test]
fn every_kind_of_lock_is_recorded_under_its_heading() {
    let class = Class::named("kinds");
    let (spin, mutex, rw) =
        (SpinLock::new(class, ()), NamedMutex::new(class, ()), NamedRwLock::new(class, ()));
    let (big, bit, word) = (BigReaderLock::new(class, ()), BitLock::new(class, 31), AtomicU32::new(7));
    let recording = Recording::start();
    drop(spin.lock());
    drop(mutex.lock());
    drop(rw.read());
    drop(rw.write());
    drop(big.read());
    drop(big.write());
    let guard = bit.lock(&word);
    assert!(bit.is_locked(&word) && bit.try_lock(&word).is_none());
    word.fetch_add(1, Ordering::Relaxed);
    drop(guard);
    assert_eq!(word.load(Ordering::Relaxed), 8, "the other bits are the owner's");
    let report = recording.finish();
    let kinds: Vec<_> =
        report.locks.iter().filter(|lock| lock.name == "kinds").map(|lock| lock.kind).collect();
    use Kind::{BigRead, BigWrite, Bit, Mutex, Read, Spin, Write};
    assert_eq!(kinds, [Spin, Bit, Mutex, BigRead, BigWrite, Read, Write]);
    let text = report.text();
    assert!(kinds.iter().all(|kind| text.contains(heading(*kind))), "{text}");
}

#[test]
fn json_holds_the_columns_of_the_text() {
    let lock = SpinLock::new(Class::named("json"), ());
    let recording = Recording::start();
    drop(lock.lock());
    let json = recording.finish().json();
    for field in
        ["\"util\":", "\"con\":", "\"hold_max_ns\":", "\"wait_cpu\":", "\"total\":1", "\"sites\":[{\"file\":"]
    {
        assert!(json.contains(field), "{field} in {json}");
    }
}

#[test]
fn nothing_is_counted_while_nothing_records() {
    let lock = SpinLock::new(Class::named("silent"), ());
    drop(lock.lock());
    let recording = Recording::start();
    let report = recording.finish();
    drop(lock.lock());
    assert!(report.lock("silent").is_none());
}
