//! Ctrl-C, SIGTERM and SIGHUP for commands that need an orderly end.

use crate::host::SIGNALS;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Set by the first signal, once signals are caught.
static CAUGHT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A flag that the first signal sets; the second ends the program at once.
pub(crate) fn interruptible() -> io::Result<Arc<AtomicBool>> {
    if let Some(flag) = CAUGHT.get() {
        return Ok(flag.clone());
    }
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    // Signals ignored at the start stay ignored: nohup(1) and shells' background jobs rely on it.
    for &signal in SIGNALS.iter().filter(|&signal| ignored >> (signal - 1) & 1 == 0) {
        signal_hook::flag::register_conditional_shutdown(signal, 1, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(CAUGHT.get_or_init(|| flag).clone())
}

/// Whether a signal that is caught has come.
pub(crate) fn has_come() -> bool {
    CAUGHT.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Forgets the signal, and tells whether one had come: the next command starts anew.
pub(crate) fn take() -> bool {
    CAUGHT.get().is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
}

/// The ignored signals as a bit mask from signal 1 on; 0 where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
