//! `dentree mount`: an image as a FUSE mount.
//!
//! The image is closed when the mount is gone: by then the kernel has sent all written data. So a
//! signal unmounts, and a second one closes the image without waiting for open files.

mod background;
mod options;
mod write_back;

use crate::args::MountArgs;
use crate::frozen;
use crate::image::{Image, Session};
use crate::output::escape;
use crate::pressure;
use crate::report::{self, Problem, Status, Stop};
use dentree_blockdev::Access;
use dentree_fuse::{Channel, Handle, MountError};
use dentree_sync::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::process;
use std::thread;
use write_back::WriteBack;

/// Mounts, and serves until the mount is gone. With `--background` returns when the mount is ready.
pub(super) fn run(session: &Session, args: &MountArgs) -> Result<(), Stop> {
    let options = options::parse(args, &session.options)?;
    if args.background && !background::is_background() {
        return background::start();
    }
    let image = session.open_at(&args.image, &options.within, options.access).map_err(|problem| {
        let may = |access| rustix::fs::access(&args.image, access).is_ok();
        let is_read_only = || may(rustix::fs::Access::READ_OK) && !may(rustix::fs::Access::WRITE_OK);
        let hint = problem.status() == Status::Unsupported || is_read_only();
        match options.access {
            Access::ReadWrite if hint => problem.with_hint("`-o ro` mounts it"),
            _ => problem,
        }
    })?;
    let directory = escape::terminal(args.directory.as_os_str().as_bytes());
    let local = |error: io::Error| Problem::local(args.directory.as_os_str().as_bytes(), &error);
    let writes = options.access == Access::ReadWrite;
    if writes && let Err(error) = frozen::serve(image.clone()) {
        report::print(format_args!("dentree: {}: cannot be checked while mounted: {error}", image.at(b"")));
    }
    // Before the mount: a signal in between would leave a mount without a server.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(local)?;
    let listening = signals.handle();
    let mounted = dentree_fuse::mount(image.vfs.clone(), &args.directory, &options.mount)
        .map_err(|error| problem(&directory, &error))?;
    let troubled_image = image.clone();
    mounted.listen(report_once(move |error| report::print_problem(&troubled_image.problem(b"", error))));
    let handle = mounted.handle();
    let served_image = image.clone();
    let stopping = handle.clone();
    thread::spawn(move || unmount_on(signals, &stopping, &served_image));
    if background::is_background() {
        background::announce().map_err(local)?;
    } else if io::stderr().is_terminal() {
        let how = if options.access == Access::ReadOnly { "read-only " } else { "" };
        report::print(format_args!(
            "dentree: {} is mounted {how}at {directory}; Ctrl-C unmounts it",
            image.at(b"")
        ));
    }
    let write_back = writes.then(|| WriteBack::start(image.clone()));
    let pressure = pressure::Watch::start(image.vfs.clone(), image.shrinks.clone());
    let served = mounted.serve();
    // The first and only one.
    let _ = image.served.set(figures(&handle));
    drop(pressure);
    drop(write_back);
    listening.close();
    Ok(served.map_err(local)?)
}

fn figures(handle: &Handle) -> String {
    let channel = match handle.channel() {
        Channel::Classic => "/dev/fuse",
        Channel::Ring => "io_uring",
    };
    let requests = handle.requests();
    format!("{} requests over {channel}: {requests}", requests.total())
}

/// Limit of distinct errors that are reported.
const MAX_REPORTS: usize = 100;

/// Reports each error once: programs retry.
fn report_once(
    report: impl Fn(&dentree_vfs::Error) + Send + Sync,
) -> impl Fn(&dentree_vfs::Error) + Send + Sync {
    let reported = Mutex::new(HashSet::new());
    move |error| {
        let mut reported = reported.lock();
        if reported.len() < MAX_REPORTS && reported.insert(error.to_string()) {
            report(error);
        }
    }
}

/// Unmounts at the first signal. Open files keep working until they are closed, or until a second
/// signal.
fn unmount_on(mut signals: Signals, handle: &Handle, image: &Image) {
    let mut asked = false;
    for signal in signals.forever() {
        if asked {
            let _ = image.close().map_err(|problem| report::print_problem(&problem));
            process::exit(128 + signal);
        }
        match handle.unmount() {
            Ok(()) if handle.is_alive() => {
                report::print("dentree: unmounted; files are still open, interrupt again to cut them off");
            }
            Ok(()) => {}
            Err(error) => {
                report::print(format_args!("dentree: cannot unmount: {error}; interrupt again to end anyway"))
            }
        }
        asked = true;
    }
}

fn problem(directory: &str, error: &MountError) -> Problem {
    let message = match error {
        MountError::MountPoint { what, .. } => what.clone(),
        other => other.to_string(),
    };
    Problem::new(directory, Status::Failed, message)
}
