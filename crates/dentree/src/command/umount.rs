//! `dentree umount`: ends a mount and waits until its image is closed.
//!
//! umount(2) returns when the mount is gone; only then does the server commit what is in memory.
//! The server is the process that holds the lock of the image.

use crate::args::UmountArgs;
use crate::mounts::{self, Mount};
use crate::output::escape;
use crate::report::{self, Problem, Status, Stop};
use dentree_blockdev::{Holder, writer_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// The file system type of mounts without `subtype=`.
const KIND: &str = "fuse.dentree";
/// The wait before the user is told what is waited for.
const QUIET_PERIOD: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

pub(super) fn run(args: &UmountArgs) -> Result<(), Stop> {
    let label = escape::terminal(args.directory.as_os_str().as_bytes()).into_owned();
    let failed = |message: &str| Problem::new(label.as_str(), Status::Failed, message);
    let local = |error: io::Error| Problem::local(args.directory.as_os_str().as_bytes(), &error);
    let point = mounts::point(&args.directory).map_err(local)?;
    let mount = mounts::at(&point).ok_or_else(|| failed("nothing that dentree serves is mounted here"))?;
    // Found before the unmount, after which the process may end at once.
    let server = server(&mount);
    if server.is_none() && mount.kind != KIND {
        return Err(failed("is not dentree's mount; umount(8) ends it").into());
    }
    dentree_fuse::unmount(&point).map_err(local)?;
    match server {
        Some((holder, process)) => Ok(wait(&process, &holder, &label).map_err(local)?),
        None if mount.read_only => Ok(()),
        None => Err(failed("is unmounted; no process holds the image, so it was not waited for").into()),
    }
}

/// The process that serves a writable mount.
fn server(mount: &Mount) -> Option<(Holder, OwnedFd)> {
    let holder = writer_of(&mount.source).filter(|_| !mount.read_only)?;
    let Holder::Process { pid, .. } = &holder else { return None };
    let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    Some((holder, process))
}

fn wait(process: &OwnedFd, holder: &Holder, label: &str) -> io::Result<()> {
    let mut patience = Some(&QUIET_PERIOD);
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], patience) {
            Ok(0) => {
                let message = format!("waiting for {holder} to close the image");
                report::print_problem(&Problem::new(label, Status::Done, message));
                patience = None;
            }
            Err(Errno::INTR) => {}
            ended => return Ok(ended.map(drop)?),
        }
    }
}
