//! Waiting without sleeping.

use crate::thread::yield_now;

/// Waits for a short critical section of another thread: spins at first, then yields the CPU.
///
/// For sections of a few dozen instructions.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    const SPINS: u32 = 6;

    /// Waits a little, longer each time.
    pub fn wait(&mut self) {
        if cfg!(any(loom, shuttle)) || self.0 >= Self::SPINS {
            yield_now();
        } else {
            for _ in 0..1 << self.0 {
                std::hint::spin_loop();
            }
            self.0 += 1;
        }
    }
}
