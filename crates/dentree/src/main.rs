//! The program `dentree`: ext4 images from the command line.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "parts of `mount`"))]

mod any_tree;
mod args;
mod ask;
mod command;
mod fanout;
#[cfg(target_os = "linux")]
mod frozen;
mod host;
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
mod tree;

use image::Session;
use report::ExitCodes;
use std::process::ExitCode;

/// The static program's: musl's own takes one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = args::parse(std::env::args_os());
    let session = Session::new(cli.global);
    command::run_to_end(&session, &cli.command);
    let codes = match cli.command {
        args::Command::Tar(_) | args::Command::Diff(_) => ExitCodes::OF_DIFF,
        args::Command::Check(_) => ExitCodes::OF_FSCK,
        args::Command::Salvage(_) => ExitCodes::OF_SALVAGE,
        _ => ExitCodes::OWN,
    };
    codes.of(session.report.status())
}
