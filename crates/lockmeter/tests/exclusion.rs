//! The locks exclude holders on real threads; `loom.rs` explores small cases.
#![cfg(not(loom))]

use dentree_lockmeter::{BigReaderLock, BitLock, Class, SpinLock};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 4;
const TURNS: u64 = 20_000;

#[test]
fn no_increment_under_a_spin_lock_is_lost() {
    let lock = SpinLock::new(Class::named("spin"), 0_u64);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TURNS).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(*lock.lock(), THREADS * TURNS);
}

#[test]
fn no_increment_under_a_bit_is_lost_while_others_change_other_bits() {
    let (bit, word, count) = (BitLock::new(Class::named("bit"), 31), AtomicU32::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let guard = bit.lock(&word);
                    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    drop(guard);
                    word.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), THREADS * TURNS);
    assert_eq!(u64::from(word.load(Ordering::Relaxed)), THREADS * TURNS);
}

#[test]
fn readers_of_a_big_reader_lock_never_see_half_a_write() {
    let lock = BigReaderLock::with_slots(Class::named("big"), (0_u64, 0_u64), 3);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TURNS / 10 {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let pair = lock.read();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(*lock.read(), (TURNS / 5, TURNS / 5));
}
