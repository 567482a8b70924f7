//! What tests of several crates share.
//!
//! Tests of one binary are threads of one process. A program started by one thread has, between
//! `fork` and `exec`, copies of all open files of the process. Until `exec`, which may take long on
//! a busy machine,
//! - a program that this process has written cannot be run (`ETXTBSY`): [`program_in`];
//! - a file system with a file that this process had open cannot be unmounted (`EBUSY`):
//!   [`unmount`].
//!
//! # Rules
//! - T1: a test waits for a condition, never for time to pass: [`wait_until`].
//! - T2: a limit on waiting only ends a test that hangs. It is the same for all: [`PATIENCE`].
//! - T3: mounts and attached devices are owned by a value, which ends them also where the test
//!   fails.
//! - T4: machine-wide state is locked by tests that change it or rely on it: [`Global`].
//!
//! `cargo xtask tidy` finds tests that sleep, unmount or lock by themselves.
#![forbid(unsafe_code)]

mod global;
mod mounts;
mod nbd;
mod nbd_export;
mod nginx;
mod proxy;
#[cfg(feature = "s3")]
mod s3;

pub use global::{DeviceForAll, Global, OverIoUring, device_for_all, drop_caches};
pub use mounts::{LoopDevice, LoopMount, MountPoint, detach, is_mount_point, unmount};
pub use nbd::NbdServer;
pub use nbd_export::{Cut, NbdExport, nbd_greet};
pub use nginx::Nginx;
pub use proxy::{Exchange, Fault, Proxy, Upstream};
#[cfg(feature = "s3")]
pub use s3::{S3_KEYS, serve_s3, serve_s3_at};

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// Limit of a wait: longer than any step on a machine that is ten times overloaded.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Polls a condition, often at first, later a hundred times a second.
///
/// # Panics
/// After [`PATIENCE`], with `what`, which completes "not …".
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    const LONGEST: Duration = Duration::from_millis(10);
    let (began, mut pause) = (Instant::now(), Duration::from_micros(50));
    while !happened() {
        assert!(began.elapsed() < PATIENCE, "not {what} within {PATIENCE:?}");
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST);
    }
}

/// Yields to other threads for some time. It may make a test stricter, and must not change its
/// outcome.
pub fn linger(time: Duration) {
    thread::sleep(time);
}

/// Copies `program` into `dir`, ready to run: `cp` writes it, whose files no thread of this process
/// inherits.
///
/// # Panics
/// Where the copy fails.
pub fn program_in(dir: &Path, program: &str) -> PathBuf {
    let copy = dir.join(Path::new(program).file_name().expect("a program has a name"));
    let output = Command::new("cp").args(["-p", "--", program]).arg(&copy).output();
    let output = output.expect("cp is there");
    assert!(output.status.success(), "{}", said(&output));
    copy
}

/// Standard output and error of a program.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}
