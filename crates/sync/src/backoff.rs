//! Waiting without sleeping.

use crate::thread::yield_now;

/// Waits for a critical section of a few dozen instructions: spins at first, then yields the
/// processor.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    const SPINS: u32 = 6;

    /// Waits, longer each time.
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
