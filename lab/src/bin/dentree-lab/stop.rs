//! Why a study ends early.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) enum Stop {
    /// A failure or a difference.
    Failed(String),
    /// The command line is invalid.
    Usage(String),
    /// Standard output is not writable.
    Output(io::Error),
}

impl Stop {
    /// Prints the reason on standard error, and returns the exit code of `dentree`.
    pub(crate) fn tell(&self) -> ExitCode {
        let (why, code) = match self {
            Stop::Failed(why) => (why.clone(), 1),
            Stop::Usage(why) => (why.clone(), 2),
            // The reader has closed the pipe, as in `dentree-lab … | head`.
            Stop::Output(error) if error.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Stop::Output(error) => (format!("cannot write to standard output: {error}"), 1),
        };
        eprintln!("dentree-lab: {why}");
        ExitCode::from(code)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Output(error)
    }
}

pub(crate) fn failed(why: impl Display) -> Stop {
    Stop::Failed(why.to_string())
}

pub(crate) fn usage(argument: impl Display, why: impl Display) -> Stop {
    Stop::Usage(format!("{argument}: {why}"))
}
