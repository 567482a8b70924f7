//! A small number of the calling thread, for arrays with a slot per thread. It is unique until the
//! thread ends. Numbers of ended threads are reused, lowest first.

pub use imp::{get, limit};

/// An index below `slots` for the calling thread. More threads than slots share them. Under loom
/// all threads share one: the harder case, with the fewest runs.
#[inline]
pub fn index(slots: usize) -> usize {
    if cfg!(loom) { 0 } else { get() as usize % slots }
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use crate::Mutex;
    use crate::atomic::{AtomicU32, Ordering::SeqCst};

    static FREED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    static LIMIT: AtomicU32 = AtomicU32::new(0);

    const UNASSIGNED: u32 = u32::MAX;

    thread_local! {
        // Separate from `LEASE`, whose destructor costs a check at each use.
        static NUMBER: Cell<u32> = const { Cell::new(UNASSIGNED) };
        static LEASE: Lease = Lease(NUMBER.get());
    }

    struct Lease(u32);

    impl Drop for Lease {
        fn drop(&mut self) {
            NUMBER.set(UNASSIGNED);
            FREED.lock().insert(self.0);
        }
    }

    /// The calling thread's number.
    #[inline]
    pub fn get() -> u32 {
        match NUMBER.get() {
            UNASSIGNED => assign(),
            number => number,
        }
    }

    #[cold]
    fn assign() -> u32 {
        let number = FREED.lock().pop_first().unwrap_or_else(|| LIMIT.fetch_add(1, SeqCst));
        NUMBER.set(number);
        // A thread that is past its destructors leaks the number.
        let _ = LEASE.try_with(|_| ());
        number
    }

    /// One more than the highest number given.
    pub fn limit() -> u32 {
        LIMIT.load(SeqCst)
    }
}

#[cfg(any(loom, shuttle))]
mod imp {
    use std::cell::Cell;

    use crate::atomic::{AtomicU32, Ordering::SeqCst};
    use crate::primitive::{lazy_static, thread_local};

    const LIMIT: u32 = 4;

    thread_local! { static NUMBER: Cell<u32> = Cell::new(next()); }
    lazy_static! {
        static ref NEXT: AtomicU32 = AtomicU32::new(0);
    }

    fn next() -> u32 {
        let number = NEXT.fetch_add(1, SeqCst);
        assert!(number < LIMIT, "a model has at most {LIMIT} threads that use slots");
        number
    }

    /// The calling thread's number, in this run of a model.
    pub fn get() -> u32 {
        NUMBER.with(Cell::get)
    }

    /// One more than the highest number given.
    pub fn limit() -> u32 {
        LIMIT
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::thread::spawn;

    #[test]
    fn a_number_is_a_threads_own_and_is_reused_after_it() {
        let mine = get();
        assert_eq!(mine, get());
        for _ in 0..100 {
            let (other, limit) = spawn(|| (get(), limit())).join().unwrap();
            assert!(other != mine && other < limit);
        }
        // Tests beside this one have numbers, too.
        assert!(limit() < 100, "{}", limit());
    }
}
