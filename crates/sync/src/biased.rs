//! Biases a reader-writer lock towards readers (BRAVO: Dice and Kogan, USENIX ATC 2019).
//!
//! A read of a plain reader-writer lock writes its word twice, so with many readers its cache line
//! moves between processors. While a lock is biased, a reader writes a line of its own thread
//! instead, and a writer reads the lines of all threads.
//!
//! User: the inode lock of directories in `dentree-vfs`, for threads that change different names of
//! one directory. Figures: `docs/internals/directories.md`.
//!
//! # Data
//! ```text
//! visible readers ─► [ lock | lock | lock | lock ]   per thread, of all locks of the process
//! ReaderBias         state: off | revoking | on      read by readers, written on changes
//!                    slow_reads                      since the bias went off: a hint
//! ```
//! A reader stores the address of the lock's [`ReaderBias`] in one of its thread's slots; 0 is a
//! free slot. A read is biased, or takes the underlying lock and
//! [counts](ReaderBias::note_slow_read). To exclude readers is to take that lock, then to
//! [revoke](ReaderBias::revoke) the bias.
//!
//! # Who protects what
//! The state becomes on only with the underlying lock held for reading, and off only with readers
//! excluded by it. So it stays off while the underlying lock is held exclusively.
//!
//! # Guarantees
//! - **B1** After `revoke` there is no biased reader until the bias is on again. A reader writes
//!   its slot (*a*), then reads the state (*b*); a revoker writes the state (*c*), then reads the
//!   slots (*d*); all are sequentially consistent. If *a* precedes *d*, the revoker sees the slot
//!   and waits. Otherwise *c* precedes *b*, and the reader backs out.
//! - **B2** A revoker sees what earlier biased readers did, and a biased reader what was done under
//!   the lock before: slots and state are released and acquired.
//! - **B3** No wake-up is lost. A reader frees its slot, then reads the state; a revoker writes the
//!   state, then reads the slots under the mutex. Either the revoker finds the slot free, or the
//!   reader finds the bias revoked and takes the mutex before it notifies.
//!
//! # Known limits
//! - A revocation reads a line for each of [`SLOTS`] threads. So the bias goes on only after
//!   [`SLOW_READS`] unbiased reads; while it is off, `revoke` is one load.
//! - Threads beyond [`SLOTS`] share slots. A reader whose slots are taken reads without bias.
//! - Biased reads are neither recorded nor checked for lock order.

use crate::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::{Condvar, Mutex, Padded, fence_for_loom, thread_slot};

const SLOTS: usize = if cfg!(loom) { 1 } else { 64 };
/// Biased locks that a thread can read at once.
const LOCKS: usize = 4;
const SLOW_READS: u32 = if cfg!(loom) { 1 } else { 64 };

const OFF: u32 = 0;
const REVOKING: u32 = 1;
const ON: u32 = 2;

type Slot = Padded<[AtomicUsize; LOCKS]>;

struct VisibleReaders {
    slots: [Slot; SLOTS],
    /// Where revokers sleep.
    revokers: Mutex<()>,
    /// A reader has left a lock whose bias is being revoked.
    left: Condvar,
}

#[cfg(not(any(loom, shuttle)))]
fn visible_readers() -> &'static VisibleReaders {
    static READERS: VisibleReaders = VisibleReaders {
        slots: [const { Padded([const { AtomicUsize::new(0) }; LOCKS]) }; SLOTS],
        revokers: Mutex::new(()),
        left: Condvar::new(),
    };
    &READERS
}

#[cfg(any(loom, shuttle))]
fn visible_readers() -> &'static VisibleReaders {
    crate::primitive::lazy_static! {
        static ref READERS: VisibleReaders = VisibleReaders {
            slots: std::array::from_fn(|_| Padded(std::array::from_fn(|_| AtomicUsize::new(0)))),
            revokers: Mutex::new(()),
            left: Condvar::new(),
        };
    }
    &READERS
}

/// The reader bias of a lock; off at first.
///
/// ```
/// use dentree_sync::{ReaderBias, RwLock};
///
/// let (lock, bias) = (RwLock::new(()), ReaderBias::default());
/// for _ in 0..64 {
///     assert!(bias.try_read().is_none());
///     let _reading = lock.read();
///     bias.note_slow_read();
/// }
/// drop(bias.try_read().expect("there were many reads since the last write"));
/// let _writing = lock.write();
/// bias.revoke();
/// assert!(bias.try_read().is_none());
/// ```
#[derive(Debug)]
pub struct ReaderBias {
    state: AtomicU32,
    slow_reads: AtomicU32,
}

impl Default for ReaderBias {
    fn default() -> Self {
        ReaderBias { state: AtomicU32::new(OFF), slow_reads: AtomicU32::new(0) }
    }
}

impl ReaderBias {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Reads if the bias is on; otherwise the caller takes the underlying lock.
    #[inline]
    pub fn try_read(&self) -> Option<BiasedReader<'_>> {
        if self.state.load(Ordering::Relaxed) != ON {
            return None;
        }
        let Padded(locks) = &visible_readers().slots[thread_slot::index(SLOTS)];
        let address = self.address();
        // B1 a.
        let slot = locks
            .iter()
            .find(|slot| slot.compare_exchange(0, address, Ordering::SeqCst, Ordering::Relaxed).is_ok())?;
        let reader = BiasedReader { bias: self, slot };
        fence_for_loom();
        // B1 b, B2. Dropping the reader backs out.
        (self.state.load(Ordering::SeqCst) == ON).then_some(reader)
    }

    /// Counts an unbiased read; 64 of them turn the bias on. The caller holds the underlying lock
    /// for reading, and nothing revokes the bias meanwhile.
    #[inline]
    pub fn note_slow_read(&self) {
        // Models of other crates would multiply with those of this file.
        if cfg!(all(loom, not(test))) {
            return;
        }
        if self.slow_reads.fetch_add(1, Ordering::Relaxed) + 1 < SLOW_READS {
            return;
        }
        self.slow_reads.store(0, Ordering::Relaxed);
        // B2: the underlying lock has acquired what was written under it.
        self.state.store(ON, Ordering::SeqCst);
    }

    /// Stops new biased reads without waiting for others. The caller keeps the bias
    /// [off](Self::note_slow_read) until it has [revoked](Self::revoke) it.
    pub fn stop(&self) {
        if self.state.load(Ordering::Relaxed) == ON {
            // B1 c.
            self.state.store(REVOKING, Ordering::SeqCst);
        }
    }

    /// Stops biased reads and waits until there are none (B1). The caller excludes readers of the
    /// underlying lock, or otherwise keeps the bias off. Several threads may call this at once.
    #[inline]
    pub fn revoke(&self) {
        // Acquire: partner of the release in `wait_for_readers` of an earlier revoker.
        if self.state.load(Ordering::Acquire) != OFF {
            self.wait_for_readers();
        }
    }

    #[cold]
    fn wait_for_readers(&self) {
        // B1 c.
        self.state.store(REVOKING, Ordering::SeqCst);
        fence_for_loom();
        self.slow_reads.store(0, Ordering::Relaxed);
        let (readers, address) = (visible_readers(), self.address());
        let mut guard = readers.revokers.lock();
        // B1 d, B3.
        let is_here = |slot: &AtomicUsize| slot.load(Ordering::SeqCst) == address;
        while readers.slots.iter().any(|Padded(locks)| locks.iter().any(is_here)) {
            guard = readers.left.wait(guard);
        }
        drop(guard);
        self.state.store(OFF, Ordering::Release);
    }
}

/// A biased read, until this is dropped.
#[must_use = "the read ends when the guard is dropped"]
#[derive(Debug)]
pub struct BiasedReader<'a> {
    bias: &'a ReaderBias,
    slot: &'static AtomicUsize,
}

impl Drop for BiasedReader<'_> {
    #[inline]
    fn drop(&mut self) {
        // B2, B3.
        self.slot.swap(0, Ordering::SeqCst);
        fence_for_loom();
        if self.bias.state.load(Ordering::SeqCst) != ON {
            wake_revokers();
        }
    }
}

#[cold]
fn wake_revokers() {
    let readers = visible_readers();
    // A revoker reads the slots under the mutex: after this, or it waits already.
    drop(readers.revokers.lock());
    readers.left.notify_all();
}

/// Every interleaving of small cases: `RUSTFLAGS="--cfg loom" cargo test -p dentree-sync --lib`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::{Arc, RwLock, thread};
    use loom::cell::Cell;

    struct Shared {
        lock: RwLock<()>,
        bias: ReaderBias,
        /// Loom fails on accesses that nothing orders. [lock]
        value: Cell<u32>,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            let (lock, bias) = (RwLock::new(()), ReaderBias::default());
            Arc::new(Shared { lock, bias, value: Cell::new(0) })
        }

        /// The value, and whether the read was biased.
        fn read(&self) -> (u32, bool) {
            if let Some(_reader) = self.bias.try_read() {
                return (self.value.get(), true);
            }
            let _guard = self.lock.read();
            self.bias.note_slow_read();
            (self.value.get(), false)
        }

        fn write(&self) {
            let _guard = self.lock.write();
            self.bias.revoke();
            self.value.set(self.value.get() + 1);
        }
    }

    #[test]
    fn a_writer_excludes_biased_readers() {
        loom::model(|| {
            let shared = Shared::new();
            assert_eq!(shared.read(), (0, false), "the bias goes on");
            let other = shared.clone();
            let reader = thread::spawn(move || other.read());
            shared.write();
            reader.join().expect("no thread panics");
            assert_eq!(shared.read().0, 1);
        });
    }

    #[test]
    fn the_bias_goes_on_and_off_beside_readers_and_writers() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Shared::new();
            let others = [true, false].map(|writes| {
                let other = shared.clone();
                thread::spawn(move || {
                    other.read();
                    if writes {
                        other.write();
                    }
                })
            });
            shared.write();
            shared.read();
            others.into_iter().for_each(|other| other.join().expect("no thread panics"));
            assert_eq!(shared.read().0, 2);
        });
    }
}
