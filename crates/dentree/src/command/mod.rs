//! The commands, one module each.

mod blocks;
#[cfg(feature = "object-stores")]
mod cache;
mod cat;
mod check;
pub(crate) mod checksum;
mod chmod;
mod chown;
pub(crate) mod cp;
mod dedup;
mod demo;
mod diff;
mod du;
pub(crate) mod find;
mod info;
mod journal;
mod ln;
mod ls;
mod manual;
mod mkdir;
pub(crate) mod mkfs;
#[cfg(target_os = "linux")]
mod mount;
mod mv;
mod resize;
mod rm;
mod salvage;
mod serve;
mod shell;
pub(crate) mod stat;
pub(crate) mod stats;
mod tar;
mod touch;
mod tree;
mod truncate;
mod tune;
#[cfg(target_os = "linux")]
mod umount;
mod undelete;
mod xattr;

use crate::args::Command;
use crate::image::Session;
use crate::interrupt;
use crate::report::{self, Status, Stop};
use std::io::ErrorKind;

/// Runs a command, reports why it stopped, and commits its changes.
pub(crate) fn run_to_end(session: &Session, command: &Command) {
    end(session, run(session, command));
}

fn end(session: &Session, done: Result<(), Stop>) {
    match done {
        Ok(()) => {}
        Err(Stop::Problem(problem)) => session.report.problem(&problem),
        // The reader of a pipe has closed it: `dentree find … | head`.
        Err(Stop::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(Stop::Output(_)) if interrupt::has_come() => session.report.remember(Status::Failed),
        Err(Stop::Output(error)) => {
            report::print(format_args!("dentree: cannot write to standard output: {error}"));
            session.report.remember(Status::Failed);
        }
    }
    session.close();
    if session.options.stats {
        stats::print(session);
    }
}

/// Runs a command. Problems with single files are reported on the way.
pub(crate) fn run(session: &Session, command: &Command) -> Result<(), Stop> {
    match command {
        Command::Info(args) => info::run(session, args),
        Command::Ls(args) => ls::run(session, args),
        Command::Tree(args) => tree::run(session, args),
        Command::Stat(args) => stat::run(session, args),
        Command::Find(args) => find::run(session, args),
        Command::Cat(args) => cat::run(session, args),
        Command::Cp(args) => cp::run(session, args),
        Command::Tar(args) => tar::run(session, args),
        Command::Mkdir(args) => mkdir::run(session, args),
        Command::Rm(args) => rm::run(session, args),
        Command::Mv(args) => mv::run(session, args),
        Command::Ln(args) => ln::run(session, args),
        Command::Chmod(args) => chmod::run(session, args),
        Command::Chown(args) => chown::run(session, args),
        Command::Touch(args) => touch::run(session, args),
        Command::Truncate(args) => truncate::run(session, args),
        Command::Xattr(args) => xattr::run(session, args),
        Command::Dedup(args) => dedup::run(session, args),
        Command::Du(args) => du::run(session, args),
        Command::Diff(args) => diff::run(session, args),
        Command::Blocks(args) => blocks::extents::run(session, args),
        Command::Which(args) => blocks::which::run(session, args),
        Command::Free(args) => blocks::free::run(session, args),
        Command::Frag(args) => blocks::frag::run(session, args),
        Command::Undelete(args) => undelete::run(session, args),
        Command::Salvage(args) => salvage::run(session, args),
        Command::Journal(args) => journal::run(session, args),
        Command::Check(args) => check::run(session, args),
        Command::Checksum(args) => checksum::run(session, args),
        Command::Mkfs(args) => mkfs::run(session, args),
        Command::Label(args) => tune::label(session, args),
        Command::Uuid(args) => tune::uuid(session, args),
        Command::Tune(args) => tune::run(session, args),
        Command::Resize(args) => resize::run(session, args),
        #[cfg(target_os = "linux")]
        Command::Mount(args) => mount::run(session, args),
        #[cfg(target_os = "linux")]
        Command::Umount(args) => umount::run(args),
        Command::Serve(args) => serve::run(session, args),
        Command::Shell(args) => shell::run(session, args),
        #[cfg(feature = "object-stores")]
        Command::Cache(args) => cache::run(session, args),
        Command::Demo => demo::run(session),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
    }
}
