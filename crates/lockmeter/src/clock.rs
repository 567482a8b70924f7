//! The clock of holds and waits, in ticks; [`Report`](crate::Report) finds how long a tick is.

/// Ticks since a fixed moment. About 8 ns on x86-64, where `Instant::now` takes 25 (KVM).
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: every x86-64 CPU has `rdtsc`; it reads a counter into registers and touches no
    // memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since the first call.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn now() -> u64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let first = FIRST.get_or_init(std::time::Instant::now);
    u64::try_from(first.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
