//! The commands, one module each.

mod cat;
pub(crate) mod checksum;
mod chmod;
mod chown;
mod cp;
mod dedup;
mod demo;
mod diff;
mod du;
pub(crate) mod find;
mod info;
mod ln;
mod ls;
mod manual;
mod mkdir;
pub(crate) mod mkfs;
#[cfg(target_os = "linux")]
mod mount;
mod mv;
mod rm;
mod serve;
pub(crate) mod stat;
pub(crate) mod stats;
mod tar;
mod touch;
mod tree;
mod truncate;
mod tune;
#[cfg(target_os = "linux")]
mod umount;
mod xattr;

use crate::args::Command;
use crate::image::Session;
use crate::report::Stop;

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
        Command::Checksum(args) => checksum::run(session, args),
        Command::Mkfs(args) => mkfs::run(session, args),
        Command::Label(args) => tune::label(session, args),
        Command::Uuid(args) => tune::uuid(session, args),
        #[cfg(target_os = "linux")]
        Command::Mount(args) => mount::run(session, args),
        #[cfg(target_os = "linux")]
        Command::Umount(args) => umount::run(args),
        Command::Serve(args) => serve::run(session, args),
        Command::Demo => demo::run(session),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
    }
}
