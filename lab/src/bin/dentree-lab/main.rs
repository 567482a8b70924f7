//! The studies of name caches, repeated on this machine.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod agenda;
mod args;
mod loads;
mod mkfiles;
mod plans;
mod replacement;
mod show;
mod stop;
mod studies;
mod xattr;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match studies::run(&args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.tell(),
    }
}
