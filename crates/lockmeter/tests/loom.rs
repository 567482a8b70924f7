//! Every interleaving of small cases of the locks, in loom's model of memory.
#![cfg(loom)]

use dentree_lockmeter::{BigReaderLock, BitLock, Class, SpinLock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// A value whose unordered use loom reports.
struct Watched(UnsafeCell<u32>);

// SAFETY: loom's cell checks each access against all others, which is what these tests are about.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }
    fn add(&self) {
        // SAFETY: loom panics if another access is not ordered before or after this one.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
    fn get(&self) -> u32 {
        // SAFETY: as in `add`.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn a_spin_lock_orders_its_holders() {
    loom::model(|| {
        let shared = Arc::new((SpinLock::new(Class::named("spin"), ()), Watched::new()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let _held = other.0.lock();
            other.1.add();
        });
        {
            let _held = shared.0.lock();
            shared.1.add();
        }
        if let Some(_held) = shared.0.try_lock() {
            assert!(shared.1.get() >= 1);
        }
        thread.join().expect("thread");
        assert_eq!(shared.1.get(), 2);
    });
}

#[test]
fn a_bit_lock_orders_its_holders_while_others_change_the_word() {
    loom::model(|| {
        let bit = BitLock::new(Class::named("bit"), 31);
        let shared = Arc::new((AtomicU32::new(0), Watched::new()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let held = bit.lock(&other.0);
            other.1.add();
            drop(held);
            other.0.fetch_add(1, Ordering::Relaxed);
        });
        {
            let _held = bit.lock(&shared.0);
            shared.1.add();
        }
        thread.join().expect("thread");
        assert_eq!((shared.1.get(), shared.0.load(Ordering::Relaxed)), (2, 1));
    });
}

/// One reader: with two on one slot loom 0.7.2 trips over an assertion of its own
/// (tokio-rs/loom#252).
#[test]
fn a_big_reader_lock_keeps_a_writer_from_a_reader() {
    loom::model(|| {
        let shared = Arc::new((BigReaderLock::with_slots(Class::named("big"), (), 2), Watched::new()));
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let _held = other.0.read();
            other.1.get()
        });
        {
            let _held = shared.0.write();
            shared.1.add();
        }
        assert!(reader.join().expect("reader") <= 1);
        let _held = shared.0.read();
        assert_eq!(shared.1.get(), 1);
    });
}

#[test]
fn a_reader_sees_what_the_writer_before_it_wrote() {
    loom::model(|| {
        let shared = Arc::new((BigReaderLock::with_slots(Class::named("big"), (), 1), Watched::new()));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let _held = other.0.write();
            other.1.add();
        });
        let (first, second) = {
            let first = shared.0.read();
            let seen = shared.1.get();
            drop(first);
            let _second = shared.0.read();
            (seen, shared.1.get())
        };
        assert!(first <= second && second <= 1);
        writer.join().expect("writer");
    });
}

#[test]
fn writers_of_a_big_reader_lock_exclude_each_other() {
    loom::model(|| {
        let shared = Arc::new((BigReaderLock::with_slots(Class::named("big"), (), 1), Watched::new()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let _held = other.0.write();
            other.1.add();
        });
        {
            let _held = shared.0.write();
            shared.1.add();
        }
        thread.join().expect("thread");
        assert_eq!(shared.1.get(), 2);
    });
}
