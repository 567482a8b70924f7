//! Ctrl-C, SIGTERM and SIGHUP for commands that need an orderly end.

use crate::report::{Problem, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first signal sets; the second ends the program at once. `command` labels errors.
pub(crate) fn interruptible(command: &str) -> Result<Arc<AtomicBool>, Problem> {
    let flag = Arc::new(AtomicBool::new(false));
    let register = || -> io::Result<()> {
        let ignored = ignored();
        // Signals ignored at the start stay ignored: nohup(1) and shells' background jobs rely on
        // it.
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0)
        {
            signal_hook::flag::register_conditional_shutdown(signal, 1, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(())
    };
    register().map_err(|error| Problem::new(command, Status::Failed, error.to_string()))?;
    Ok(flag)
}

/// The ignored signals as a bit mask from signal 1 on; 0 where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
