//! Spinning.

/// Spins of a waiter before it yields its CPU. The holder may need that very CPU, which a kernel
/// spin lock rules out by disabling preemption.
const SPINS: u32 = 128;

/// Waits until `free`, which must not write.
#[cold]
pub(crate) fn wait_until(free: impl Fn() -> bool) {
    for turn in 1_u32.. {
        if free() {
            return;
        }
        if cfg!(loom) || turn % SPINS == 0 {
            dentree_sync::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
