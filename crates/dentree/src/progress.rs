//! Progress of long commands: a line on standard error, where that is a terminal.
//!
//! It counts files and bytes. Where the total is known, it has a percentage and the time left.
//! Messages are printed above it: see [`aside`].

use crate::output::human;
use dentree_sync::Mutex;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a file counts as, beside its bytes.
const FILE: u64 = 4096;

/// The line on the terminal.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Calls `print`, which writes to the terminal, without the line.
pub(crate) fn aside(print: impl FnOnce()) {
    let shown = SHOWN.lock().clone();
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// What there is to do.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Total {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Total {
    fn steps(self) -> u64 {
        self.files.saturating_mul(FILE).saturating_add(self.bytes)
    }
}

/// The line, until it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Shows a line, if it `shows` any.
    pub(crate) fn new(shows: bool, total: Option<Total>) -> Progress {
        let target = if shows { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total.map(Total::steps), target);
        let template =
            if total.is_some() { "{spinner} {msg}, {percent}%, {eta} left" } else { "{spinner} {msg}" };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        if !bar.is_hidden() {
            bar.set_message("0 files, 0");
            bar.enable_steady_tick(Duration::from_millis(100));
            *SHOWN.lock() = Some(bar.clone());
        }
        Progress { bar, files: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts what is done.
    pub(crate) fn add(&self, files: u64, bytes: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let files = self.files.fetch_add(files, Ordering::Relaxed) + files;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let done = Total { files, bytes }.steps();
        self.bar.set_position(self.bar.length().map_or(done, |all| done.min(all)));
        self.bar.set_message(format!("{files} files, {}", human(bytes)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        *SHOWN.lock() = None;
        self.bar.finish_and_clear();
    }
}
