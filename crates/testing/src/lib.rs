//! What tests of several crates share. Only tests use it.
//!
//! Tests of one binary run in threads of one process. A program that one thread starts has, between
//! `fork` and `exec`, a copy of every file that the other threads have open. So for a moment
//! - a program that was written by this process cannot be run (`ETXTBSY`): [`program_in`];
//! - a file system from which a file was read cannot be unmounted (`EBUSY`): [`unmount`].
//!
//! The moment ends with `exec`. On a busy machine it can be long.
//!
//! # Rules
//! - T1: a test waits for a condition, never for time to pass: [`wait_until`].
//! - T2: a limit on waiting only ends a test that hangs. It is the same for all: [`PATIENCE`].
//! - T3: what a test mounts or attaches goes with a value, also where the test fails.
//! - T4: what the machine has once is locked while a test changes it or relies on it: [`Global`].
//!
//! `cargo xtask tidy` finds tests that sleep, unmount or lock by themselves.
#![forbid(unsafe_code)]

mod global;
mod mounts;

pub use global::{DeviceForAll, Global, device_for_all, drop_caches};
pub use mounts::{LoopDevice, LoopMount, Place, detach, is_mount_point, unmount};

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// After so long a test fails: longer than any step takes on a machine that is ten times too busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for a condition. It is asked often at first, then up to a hundred times a second.
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

/// Lets other threads run for some time. A test may become more telling by it; its outcome must be
/// the same without.
pub fn linger(time: Duration) {
    thread::sleep(time);
}

/// A copy of `program` in `dir`, which can be run at once: `cp` writes it, whose files no thread of
/// this process hands on.
///
/// # Panics
/// Where it cannot be copied.
pub fn program_in(dir: &Path, program: &str) -> PathBuf {
    let copy = dir.join(Path::new(program).file_name().expect("a program has a name"));
    let output = Command::new("cp").args(["-p", "--", program]).arg(&copy).output();
    let output = output.expect("cp is there");
    assert!(output.status.success(), "{}", said(&output));
    copy
}

/// Both outputs of a program.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}
