//! Makes rare interleavings common in debug builds.
//!
//! The shared steps of the schemes call [`here`] at places where a preempted thread causes a race.
//! It yields the CPU at random, from a fixed seed per thread; in release builds it does nothing.
//! Without it the stress suite passed wrong locking that it finds with it (two CPUs, busy).

/// A place where another thread may intervene.
#[inline(always)]
pub(super) fn here() {
    #[cfg(debug_assertions)]
    random::sometimes_yield();
}

#[cfg(debug_assertions)]
mod random {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// One call in this many yields.
    const ONE_IN: u32 = 48;

    static SEED: AtomicU32 = AtomicU32::new(0x9e37_79b9);

    thread_local!(static STATE: Cell<u32> = Cell::new(SEED.fetch_add(0x9e37_79ba, Ordering::Relaxed) | 1));

    pub(super) fn sometimes_yield() {
        let drawn = STATE.try_with(|state| {
            let mut x = state.get();
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            state.set(x);
            x
        });
        if drawn.is_ok_and(|x| x % ONE_IN == 0) {
            std::thread::yield_now();
        }
    }
}
