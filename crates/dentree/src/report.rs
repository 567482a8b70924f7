//! Problems: location, cause and remedy, in one line each on standard error, and the exit code. A
//! background process reports to the system log.

use crate::output::escape;
use crate::progress;
use dentree_vfs::Error;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The outcome of a command. Later variants are worse, and the worst one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Status {
    Done,
    /// What was made differs from its source, or one tree from another.
    Differs,
    /// Something was not found, or not done.
    Failed,
    Unsupported,
    Damaged,
    Usage,
}

impl Status {
    const ALL: [Status; 6] =
        [Status::Done, Status::Differs, Status::Failed, Status::Unsupported, Status::Damaged, Status::Usage];
}

/// The exit code of each status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitCodes([u8; 6]);

impl ExitCodes {
    /// Those of the help text.
    pub(crate) const OWN: ExitCodes = ExitCodes([0, 1, 1, 4, 3, 2]);
    /// tar(1) and diff(1) end with 1 for differences alone.
    pub(crate) const OF_DIFF: ExitCodes = ExitCodes([0, 1, 2, 4, 3, 2]);
    /// Those of fsck(8): 4 for damage, 8 where the check itself failed, 16 for wrong usage.
    pub(crate) const OF_FSCK: ExitCodes = ExitCodes([0, 4, 8, 8, 4, 16]);

    /// Those of salvage: 4 for what is partial or lost, 8 where nothing could be read.
    pub(crate) const OF_SALVAGE: ExitCodes = ExitCodes([0, 4, 4, 8, 8, 16]);

    pub(crate) fn of(self, status: Status) -> ExitCode {
        ExitCode::from(self.0[usize::from(status as u8)])
    }
}

#[derive(Debug)]
pub(crate) struct Problem {
    at: String,
    message: String,
    status: Status,
}

impl Problem {
    pub(crate) fn new(at: impl Into<String>, status: Status, message: impl Into<String>) -> Self {
        Problem { at: at.into(), message: message.into(), status }
    }

    pub(crate) fn usage(at: impl Into<String>, message: impl Into<String>) -> Self {
        Problem::new(at, Status::Usage, message)
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// The same with another status.
    pub(crate) fn with_status(self, status: Status) -> Self {
        Problem { status, ..self }
    }

    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.message = format!("{} ({hint})", self.message);
        self
    }

    pub(crate) fn inside(at: impl Into<String>, error: &Error) -> Self {
        let status = match error {
            Error::Corrupt(_) => Status::Damaged,
            Error::Unsupported(_) | Error::Encrypted => Status::Unsupported,
            _ => Status::Failed,
        };
        Problem::new(at, status, error.to_string())
    }

    pub(crate) fn local(path: &[u8], error: &io::Error) -> Self {
        let message = error.to_string();
        let message = message.split(" (os error").next().unwrap_or(&message);
        Problem::new(escape::terminal(path), Status::Failed, message)
    }

    /// Signals cannot be caught.
    pub(crate) fn signals(error: io::Error) -> Self {
        Problem::local(b"signals", &error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// Logs problems once standard error is /dev/null.
static LOG: OnceLock<fn(&Problem)> = OnceLock::new();

/// From now on problems go to the system log.
pub(crate) fn go_to_background(log: fn(&Problem)) {
    LOG.get_or_init(|| log);
}

/// Prints one line on standard error.
pub(crate) fn print(text: impl fmt::Display) {
    // Not `eprintln`, which panics where the terminal is gone.
    progress::aside(|| drop(io::stderr().write_all(format!("{text}\n").as_bytes())));
}

/// Prints or logs a problem.
pub(crate) fn print_problem(problem: &Problem) {
    match LOG.get() {
        Some(log) => log(problem),
        None => print(format_args!("dentree: {problem}")),
    }
}

/// Collects problems of all threads.
#[derive(Debug, Default)]
pub(crate) struct Report {
    worst: AtomicU8,
    is_silent: bool,
}

impl Report {
    /// Remembers the worst status, and prints nothing.
    pub(crate) fn silent() -> Self {
        Report { is_silent: true, ..Report::default() }
    }

    /// Prints a problem and remembers its status.
    pub(crate) fn problem(&self, problem: &Problem) {
        if !self.is_silent {
            print_problem(problem);
        }
        self.remember(problem.status);
    }

    /// Remembers the status of a problem that was printed elsewhere.
    pub(crate) fn remember(&self, status: Status) {
        self.worst.fetch_max(status as u8, Ordering::Relaxed);
    }

    pub(crate) fn status(&self) -> Status {
        Status::ALL[usize::from(self.worst.load(Ordering::Relaxed))]
    }
}

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    Problem(Problem),
    Output(io::Error),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Stop::Problem(problem)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Output(error)
    }
}
