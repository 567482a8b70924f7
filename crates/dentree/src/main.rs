//! The program `dentree`: ext4 images from the command line.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod any_tree;
mod args;
mod ask;
mod command;
mod fanout;
mod image;
mod interrupt;
mod listed;
mod local;
mod mounts;
mod not_an_image;
mod operands;
mod output;
mod owners;
mod path;
mod pressure;
mod progress;
mod report;
mod temp_entry;
mod tree;

use clap::Parser;
use image::Session;
use report::{Status, Stop};
use std::io::ErrorKind;
use std::process::ExitCode;

/// The static program's: musl's own takes one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = args::Cli::parse_from(args::normalise(std::env::args_os()));
    let session = Session::new(cli.global);
    match command::run(&session, &cli.command) {
        Ok(()) => {}
        Err(Stop::Problem(problem)) => session.report.problem(&problem),
        // The reader of a pipe has closed it: `dentree find … | head`.
        Err(Stop::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(Stop::Output(error)) => {
            report::print(format_args!("dentree: cannot write to standard output: {error}"));
            session.report.remember(Status::Failed);
        }
    }
    session.close();
    if session.options.stats {
        command::stats::print(&session);
    }
    // tar(1) and diff(1) end with 1 for differences alone.
    let failed = if matches!(cli.command, args::Command::Tar(_) | args::Command::Diff(_)) { 2 } else { 1 };
    session.report.status().exit_code(failed)
}
