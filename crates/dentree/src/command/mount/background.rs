//! `--background`: the program starts itself again and waits until that process has mounted.
//!
//! A process with threads cannot fork and go on, so the second process starts from scratch with the
//! same arguments. It writes to its standard output, a pipe, when the mount is ready. If it ends
//! before, it has reported its problem on standard error, and its exit status is ours. Later
//! problems go to the system log.

use crate::report::{self, Problem, Stop};
use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{self, Command, Stdio};

/// Set for the second process.
const VARIABLE: &str = "DENTREE_MOUNT_BACKGROUND";
const READY: &[u8] = b"ready";

pub(super) fn is_background() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// Starts the second process and returns when it is ready; exits with its status where it fails.
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

/// User-level error, as in syslog(3). Without a log daemon it is lost.
fn log(problem: &Problem) {
    let line = format!("<11>dentree[{}]: {problem}", process::id());
    let _ = UnixDatagram::unbound().and_then(|log| log.send_to(line.as_bytes(), "/dev/log"));
}

/// Leaves the terminal's session, and tells the first process that the mount is ready.
pub(super) fn announce() -> io::Result<()> {
    rustix::process::setsid()?;
    env::set_current_dir("/")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    // Fails where the first process was interrupted: then the mount is not wanted.
    io::stdout().write_all(READY)?;
    io::stdout().flush()?;
    report::go_to_background(log);
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}
