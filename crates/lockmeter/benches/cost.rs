//! What an uncontended lock and unlock cost, in nanoseconds: off, on, and with
//! `--no-default-features` compiled out.
//!
//! Each case is the best of 9 runs of 2 million rounds, cases interleaved; the best, because other
//! work on the machine only ever adds.

use dentree_lockmeter::{BigReaderLock, BitLock, Class, SpinLock};
use dentree_sync::lockstat::{NamedMutex, NamedRwLock};
use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

const ROUNDS: u32 = 2_000_000;

fn nanoseconds(mut body: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| body());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

fn measure() -> [f64; 6] {
    let class = Class::named("cost");
    let (spin, mutex, rw) = (SpinLock::new(class, 0), NamedMutex::new(class, 0), NamedRwLock::new(class, 0));
    let (big, bit, word) = (BigReaderLock::new(class, 0), BitLock::new(class, 31), AtomicU32::new(0));
    [
        nanoseconds(|| *black_box(&spin).lock() += 1),
        nanoseconds(|| drop(bit.lock(black_box(&word)))),
        nanoseconds(|| *black_box(&mutex).lock() += 1),
        nanoseconds(|| drop(black_box(&rw).read())),
        nanoseconds(|| drop(black_box(&big).read())),
        nanoseconds(|| drop(black_box(&big).write())),
    ]
}

fn better(best: &mut [f64; 6], found: [f64; 6]) {
    best.iter_mut().zip(found).for_each(|(best, found)| *best = best.min(found));
}

fn main() {
    let mut off = [f64::INFINITY; 6];
    let mut on = [f64::INFINITY; 6];
    for _ in 0..9 {
        better(&mut off, measure());
        #[cfg(feature = "meter")]
        {
            let recording = dentree_lockmeter::Recording::start();
            better(&mut on, measure());
            drop(recording);
        }
    }
    if cfg!(not(feature = "meter")) {
        on = off;
    }
    println!("{:14} {:>8} {:>8}", "ns", "off", "on");
    for (name, (off, on)) in
        ["spin", "bit", "mutex", "rwlock read", "brlock read", "brlock write"].iter().zip(off.iter().zip(on))
    {
        println!("{name:14} {off:8.1} {on:8.1}");
    }
}
