//! Ctrl-C, and signals that mean the same, where something must be put in order first.

use crate::report::{Problem, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first Ctrl-C sets, for command `command` to ask; the second ends the program at once.
pub(crate) fn interruptible(command: &str) -> Result<Arc<AtomicBool>, Problem> {
    let flag = Arc::new(AtomicBool::new(false));
    let register = || -> io::Result<()> {
        let ignored = ignored();
        // nohup(1), and a shell for what it runs in the background, want signals to be ignored that they had ignored.
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

/// The signals that this process ignores, a bit each from 1 on; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
