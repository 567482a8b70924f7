//! `--background`: the program starts itself a second time and waits until that one has mounted.
//!
//! A process that has threads cannot be forked and go on, so the second one is started from scratch, with the
//! same arguments. It says on its standard output, a pipe, that the mount can be used; where it ends without saying so
//! it has told its problem on standard error, and its exit status is ours. What goes wrong later is told to the system's log.

use crate::report::{self, Stop};
use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{self, Command, Stdio};

/// Set for the second process.
const VARIABLE: &str = "DENTREE_MOUNT_BACKGROUND";
const READY: &[u8] = b"ready";

/// Whether this is the second process.
pub(super) fn is_background() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// Starts the second process and returns when it is ready; does not return where it fails.
pub(super) fn start() -> Result<(), Stop> {
    let mut second = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(mut pipe) = second.stdout.take() {
        pipe.read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(());
    }
    process::exit(second.wait()?.code().unwrap_or(1));
}

/// Leaves the terminal and its signals, and tells the first process that the mount can be used.
pub(super) fn announce() -> io::Result<()> {
    rustix::process::setsid()?;
    env::set_current_dir("/")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    // Fails where the first process is gone, interrupted while it waited: then nobody wants the mount.
    io::stdout().write_all(READY)?;
    io::stdout().flush()?;
    report::go_to_background();
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}
