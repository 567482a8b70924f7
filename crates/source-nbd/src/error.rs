//! Errors of opening. Reads and writes fail with [`std::io::Error`].

use std::io;

/// Why a device cannot be opened over NBD.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid address.
    #[error("{at}: {problem}")]
    Address {
        /// Address.
        at: String,
        /// Problem.
        problem: String,
    },
    /// No connection.
    #[error("{at}: cannot connect: {}; is the server running there?", reason(source))]
    Connect {
        /// Address.
        at: String,
        /// Reason.
        source: io::Error,
    },
    /// The greeting fails.
    #[error("{at}: greeting the server: {}", reason(source))]
    Greeting {
        /// Address.
        at: String,
        /// Reason.
        source: io::Error,
    },
    /// The server refuses.
    #[error("{at}: {problem}")]
    Refused {
        /// Address.
        at: String,
        /// Reason.
        problem: String,
    },
    /// The export cannot be written.
    #[error("{at}: cannot be written: {problem}")]
    NotWritable {
        /// Address.
        at: String,
        /// Reason and remedy.
        problem: &'static str,
    },
    /// The network threads cannot start.
    #[error("cannot start the threads for the network: {}", reason(.0))]
    Threads(io::Error),
    /// The program for a format is not installed.
    #[error(
        "{at}: this is {format}, which {program} would open: install the package {package}, or: {remedy}"
    )]
    Missing {
        /// File.
        at: String,
        /// Format, with an article.
        format: &'static str,
        /// Program.
        program: &'static str,
        /// Package.
        package: &'static str,
        /// Alternative.
        remedy: &'static str,
    },
    /// The program for a format fails.
    #[error("{at}: {program} cannot open it: {problem}")]
    Engine {
        /// File.
        at: String,
        /// Program.
        program: &'static str,
        /// Its message.
        problem: String,
    },
}

/// Without the errno.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
