//! Ctrl-C where something must be put in order first.

use crate::report::{Problem, Status};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first Ctrl-C sets, for command `command` to ask; the second ends the program at once.
pub(crate) fn interruptible(command: &str) -> Result<Arc<AtomicBool>, Problem> {
    let flag = Arc::new(AtomicBool::new(false));
    let register = || -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(())
    };
    register().map_err(|error| Problem::new(command, Status::Failed, error.to_string()))?;
    Ok(flag)
}
