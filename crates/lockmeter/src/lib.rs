//! Lock statistics for the lab: which threads waited, where and how long.
//!
//! A [`Recording`] collects what the named locks of the process report
//! ([`dentree_sync::lockstat`]), per lock class *and* per call site. Its columns are those of SGI's
//! lockmeter in the study "Scalable Directory Entry Cache" (Sarma, Soni, Linder, Wilson; 2002):
//!
//! | column | of a lock class or call site |
//! |---|---|
//! | UTIL | time held ÷ time recorded; above 100% where the class has many locks, or readers overlap |
//! | CON | share of requests that found the lock taken |
//! | HOLD | mean and longest time held |
//! | WAIT | mean and longest wait of the requests that waited, and all waits ÷ (time recorded × CPUs) |
//! | TOTAL | requests |
//! | NOWAIT, SPIN, RJECT | share of requests granted at once, granted after a wait, refused (`try_lock`) |
//!
//! Three locks of the study's kernels are here, for the lab's schemes alone:
//!
//! | lock | is | protects |
//! |---|---|---|
//! | [`SpinLock`] | test and test-and-set; yields the CPU after a while | a value |
//! | [`BigReaderLock`] | a reader counts in one of as many slots as there are CPUs; a writer waits for all | a value |
//! | [`BitLock`] | one bit of a word that holds other things too | what its owner says |
//!
//! ```
//! # #[cfg(feature = "meter")] {
//! use dentree_lockmeter::{Class, Recording, SpinLock};
//!
//! let dcache_lock = SpinLock::new(Class::named("dcache_lock"), 0_u64);
//! let recording = Recording::start();
//! for _ in 0..10 {
//!     *dcache_lock.lock() += 1;
//! }
//! let report = recording.finish();
//! assert_eq!(report.lock("dcache_lock").map(|lock| lock.all.total), Some(10));
//! println!("{}", report.text());
//! # }
//! ```
//!
//! # Cost
//! Counters are per thread, written by their owner alone and merged on reading. Nanoseconds per
//! uncontended lock and unlock (2 CPUs of an AMD EPYC under KVM, best of 9 runs; `cargo bench -p
//! dentree-lockmeter --bench cost`, for the first column with `--no-default-features`):
//!
//! | | compiled out | switched off | recording |
//! |---|---|---|---|
//! | [`SpinLock`] | 2.2 | 2.5 | 20 |
//! | [`BitLock`] | 4.5 | 4.7 | 21 |
//! | [`NamedMutex`](dentree_sync::lockstat::NamedMutex) | 4.5 | 5.0 | 21 |
//! | [`NamedRwLock`](dentree_sync::lockstat::NamedRwLock), to read | 5.0 | 5.2 | 20 |
//! | [`BigReaderLock::read`] | 3.7 | 4.0 | 23 |
//! | [`BigReaderLock::write`] | 2.2 | 4.4 | 20 |
//!
//! # Known limits
//! - [`Recording::finish`] is exact for threads that have ended, or use no lock. Other threads are
//!   counted up to a moment close to it.
//! - On x86-64 time is the CPU's time stamp counter. CPUs of one machine have had it in step since
//!   about 2008; elsewhere times of threads that change CPUs are wrong, though never negative.
//! - A thread's table has room for 512 pairs of class and call site; further requests are counted
//!   in [`Report::unplaced`].
//! - Reads under a [`ReaderBias`](dentree_sync::ReaderBias) are not reported.

mod big_reader;
mod bit;
mod spin;
mod wait;

#[cfg(feature = "meter")]
mod clock;
#[cfg(feature = "meter")]
mod meter;
#[cfg(feature = "meter")]
mod report;

pub use big_reader::{BigReaderGuard, BigReaderLock, BigWriterGuard};
pub use bit::{BitGuard, BitLock};
pub use dentree_sync::lockstat::{Class, Kind};
pub use spin::{SpinGuard, SpinLock};

#[cfg(feature = "meter")]
pub use {
    meter::Recording,
    report::{Figures, LockFigures, Report, SiteFigures, heading},
};
