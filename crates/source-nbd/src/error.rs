//! Errors of opening. Reads and writes fail with [`std::io::Error`].

use std::io;

/// Why a device could not be opened over NBD.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("{at}: {problem}")]
    Address {
        /// What was given.
        at: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No connection.
    #[error("{at}: cannot connect: {}; is the server running there?", reason(source))]
    Connect {
        /// The address.
        at: String,
        /// The reason.
        source: io::Error,
    },
    /// The connection ended, or the server does not speak the protocol.
    #[error("{at}: greeting the server: {}", reason(source))]
    Greeting {
        /// The address.
        at: String,
        /// What happened.
        source: io::Error,
    },
    /// The server refuses.
    #[error("{at}: {problem}")]
    Refused {
        /// The address.
        at: String,
        /// Its reason.
        problem: String,
    },
    /// It is to be written, and cannot be.
    #[error("{at}: cannot be written: {problem}")]
    NotWritable {
        /// The address.
        at: String,
        /// Why not, and what to do.
        problem: &'static str,
    },
    /// No thread can be had that does the network's work.
    #[error("cannot start the threads for the network: {}", reason(.0))]
    Threads(io::Error),
    /// The program that reads a format is not installed.
    #[error(
        "{at}: this is {format}, which {program} would open: install the package {package}, or: {remedy}"
    )]
    Missing {
        /// The file.
        at: String,
        /// Its format, with an article.
        format: &'static str,
        /// The program.
        program: &'static str,
        /// Where it comes from.
        package: &'static str,
        /// How to do without.
        remedy: &'static str,
    },
    /// The program that reads a format fails.
    #[error("{at}: {program} cannot open it: {problem}")]
    Engine {
        /// The file.
        at: String,
        /// The program.
        program: &'static str,
        /// What it says.
        problem: String,
    },
}

/// The reason of the operating system in words, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
