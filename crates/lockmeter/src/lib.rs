//! Locks that can tell who waited, where and how long.
//!
//! Five locks, each recording per lock class *and* per call site what SGI's lockmeter recorded for the study
//! "Scalable Directory Entry Cache" (Sarma, Soni, Linder, Wilson; 2002), in the very columns of its tables:
//!
//! | column | of a lock class or call site |
//! |---|---|
//! | UTIL | time held ÷ time recorded; above 100% where the class has many locks, or readers overlap |
//! | CON | share of requests that found the lock busy |
//! | HOLD | mean and longest time held |
//! | WAIT | mean and longest wait of the requests that waited, and all waits ÷ (time recorded × CPUs) |
//! | TOTAL | requests |
//! | NOWAIT, SPIN, RJECT | share of requests granted at once, granted after waiting, refused (`try_lock`) |
//!
//! | lock | is | guards |
//! |---|---|---|
//! | [`SpinLock`] | test and test-and-set; yields the CPU after a while | a value |
//! | [`Mutex`] | the standard library's: sleeps | a value |
//! | [`RwLock`] | the standard library's: sleeps | a value |
//! | [`BigReaderLock`] | a reader counts in one of as many slots as there are CPUs; a writer waits for all | a value |
//! | [`BitLock`] | one bit of a word that holds other things too | what its owner says |
//!
//! Beside any of them that many share and few take alone, a [`Crowd`] lets those who share write a cache line of their own in place of the
//! lock's; they are in no report.
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
//! # What it costs
//! Counters are per thread, written by their owner alone and merged on reading. Switched off, each request tests one
//! word that nobody writes, and the guard's drop tests it again in a register. Nanoseconds per uncontended lock and
//! unlock (2 CPUs of an AMD EPYC under KVM, best of 9 runs; `cargo bench -p dentree-lockmeter --bench cost`):
//!
//! | | compiled out | switched off | recording |
//! |---|---|---|---|
//! | [`SpinLock`] | 3.8 | 5.8 | 40 |
//! | [`BitLock`] | 5.0 | 7.1 | 43 |
//! | [`Mutex`] | 5.0 | 6.5 | 33 |
//! | [`RwLock::read`] | 5.6 | 11 | 41 |
//! | [`BigReaderLock::read`] | 4.7 | 6.2 | 42 |
//! | [`BigReaderLock::write`] | 3.9 | 4.1 | 38 |
//!
//! # Lock order
//! With `debug_assertions` each thread keeps the locks that it holds, and each new pair "B taken while A is held"
//! is added to a graph of classes. A pair that closes a circle panics with the places of both, before it can
//! deadlock. Two locks of one class must be taken in the order of their addresses. A `try_lock` cannot deadlock,
//! so it adds no pair.
//!
//! # Known limits
//! * [`Recording::finish`] is exact for threads that have been joined, or hold and want no lock; a thread that is
//!   inside a lock then is counted up to a moment close to it.
//! * On x86-64 time is the CPU's time stamp counter, which all CPUs of one machine have in step since about 2008;
//!   where they have not, times of a thread that moved between CPUs are wrong (never negative).
//! * At most 512 pairs of class and call site per thread; requests of more are counted in [`Report::unplaced`].

mod big_reader;
mod bit;
mod crowd;
mod mutex;
mod rwlock;
mod spin;
mod sync;

#[cfg(feature = "meter")]
mod class;
#[cfg(feature = "meter")]
mod clock;
#[cfg(feature = "meter")]
mod meter;
#[cfg(all(feature = "meter", debug_assertions))]
mod order;
#[cfg(feature = "meter")]
mod report;
#[cfg(not(feature = "meter"))]
mod unmetered;

pub use big_reader::{BigReaderGuard, BigReaderLock, BigWriterGuard};
pub use bit::{BitGuard, BitLock};
pub use crowd::{Crowd, Seated};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use spin::{SpinGuard, SpinLock};

#[cfg(feature = "meter")]
pub use {
    class::Class,
    meter::Recording,
    report::{Figures, Kind, LockFigures, Report, SiteFigures},
};

#[cfg(not(feature = "meter"))]
pub use unmetered::Class;

#[cfg(not(feature = "meter"))]
use unmetered::{Hold, Mode, Request};
#[cfg(feature = "meter")]
use {
    meter::{Hold, Request},
    report::Kind as Mode,
};
