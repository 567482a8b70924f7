//! Attaching a `/dev/fuse` connection to a directory, and detaching it.
//!
//! Root mounts by `mount(2)`; other users through `fusermount3`, which is setuid root and sends the
//! connection over a socket. At the end of a session nothing is unmounted that another program has
//! mounted at the path since.

use crate::options::{MountError, Options, Visibility};
use dentree_sync::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
/// Newest first; libfuse 2 has no 3 in the name.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Whether changes are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MountAccess {
    ReadOnly,
    ReadWrite,
}

/// A mounted connection.
pub(crate) struct Attached {
    path: PathBuf,
    /// A second handle of the connection, to see whether the mount is still there.
    connection: OwnedFd,
    /// The helper that mounted, unless `mount(2)` did.
    helper: Option<&'static str>,
    detached: Mutex<bool>,
}

impl Attached {
    /// Mounts at `path` and returns the connection to serve.
    pub(crate) fn new(
        path: &Path,
        options: &Options,
        access: MountAccess,
    ) -> Result<(Attached, OwnedFd), MountError> {
        let path = check(path, options)?;
        let (connection, helper) = if rustix::process::geteuid().is_root() {
            match mount_directly(&path, options, access) {
                // Root of a container without CAP_SYS_ADMIN: the helper reports what is wrong.
                Err(MountError::Refused(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    mount_by_helper(&path, options, access)?
                }
                other => (other?, None),
            }
        } else {
            mount_by_helper(&path, options, access)?
        };
        let ours = connection.try_clone().map_err(MountError::Refused)?;
        Ok((Attached { path, connection: ours, helper, detached: Mutex::new(false) }, connection))
    }

    /// Unmounts lazily. Programs keep using open files, and the session ends with the last. Does
    /// nothing if it is unmounted.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let mut detached = self.detached.lock();
        if *detached || self.is_disconnected() {
            return Ok(());
        }
        match self.helper {
            None => rustix::mount::unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?,
            Some(helper) => {
                let output = Command::new(helper)
                    .args(["-u", "-z", "--"])
                    .arg(&self.path)
                    .stdin(Stdio::null())
                    .output()?;
                if !output.status.success() {
                    return Err(io::Error::other(words(&output.stderr)));
                }
            }
        }
        *detached = true;
        Ok(())
    }

    /// The kernel has ended the connection.
    pub(crate) fn is_disconnected(&self) -> bool {
        let mut fds = [PollFd::new(&self.connection, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().contains(PollFlags::ERR))
    }
}

/// Unmounts `path` as umount(8) does; fails if files of it are open.
pub fn unmount(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(rustix::mount::unmount(path, UnmountFlags::NOFOLLOW)?);
    }
    for helper in HELPERS {
        match Command::new(helper).args(["-u", "--"]).arg(path).stdin(Stdio::null()).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(output) if !output.status.success() => return Err(io::Error::other(words(&output.stderr))),
            ended => return ended.map(drop),
        }
    }
    Err(io::Error::other("fusermount3 is not installed"))
}

/// The absolute path of the mount point, if something can be mounted there.
fn check(path: &Path, options: &Options) -> Result<PathBuf, MountError> {
    let problem = |what: &str| MountError::MountPoint { path: path.to_owned(), what: what.to_owned() };
    let absolute = fs::canonicalize(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => problem("does not exist; create it with mkdir"),
        // Returned by a FUSE mount whose server is gone.
        ErrorKind::NotConnected => {
            problem("holds a mount whose server has ended; run `fusermount3 -u` on it")
        }
        _ => problem(&error.to_string()),
    })?;
    let metadata = fs::metadata(&absolute).map_err(|error| problem(&error.to_string()))?;
    if !metadata.is_dir() {
        return Err(problem("is not a directory"));
    }
    if !options.nonempty {
        let mut entries = fs::read_dir(&absolute).map_err(|error| problem(&error.to_string()))?;
        if entries.next().is_some() {
            return Err(problem("is not empty; -o nonempty mounts over what is there"));
        }
    }
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    Ok(absolute)
}

fn mount_directly(path: &Path, options: &Options, access: MountAccess) -> Result<OwnedFd, MountError> {
    let device = File::options().read(true).write(true).open(DEVICE).map_err(|error| match error.kind() {
        ErrorKind::NotFound => MountError::NoDevice,
        _ => MountError::Device(error),
    })?;
    let mode = fs::metadata(path).map_err(MountError::Refused)?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions",
        device.as_raw_fd()
    );
    if options.visibility != Visibility::Owner {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|error| MountError::Refused(error.into()))?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, access == MountAccess::ReadOnly);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.source.as_os_str(), path, kind.as_str(), flags, data.as_c_str())
        .map_err(|errno| MountError::Refused(errno.into()))?;
    Ok(device.into())
}

fn mount_by_helper(
    path: &Path,
    options: &Options,
    access: MountAccess,
) -> Result<(OwnedFd, Option<&'static str>), MountError> {
    if options.suid || options.dev {
        return Err(MountError::NeedsRoot);
    }
    for helper in HELPERS {
        let (ours, theirs) = UnixStream::pair().map_err(MountError::Refused)?;
        // The socket is the helper's standard input: no close-on-exec to undo.
        let child = Command::new(helper)
            .arg("-o")
            .arg(helper_options(options, access))
            .arg("--")
            .arg(path)
            .env("_FUSE_COMMFD", "0")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = match child {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other.map_err(MountError::Refused)?,
        };
        let connection = receive(&ours);
        let output = child.wait_with_output().map_err(MountError::Refused)?;
        return match connection {
            Ok(Some(connection)) => Ok((connection, Some(helper))),
            Err(error) if output.status.success() => Err(MountError::Refused(error)),
            _ => Err(refusal(&output.stderr)),
        };
    }
    Err(MountError::NoHelper)
}

fn helper_options(options: &Options, access: MountAccess) -> OsString {
    let mut list = if access == MountAccess::ReadOnly { b"ro,".to_vec() } else { b"rw,".to_vec() };
    list.extend_from_slice(b"nosuid,nodev,default_permissions,fsname=");
    for &byte in options.source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            list.push(b'\\');
        }
        list.push(byte);
    }
    list.extend_from_slice(b",subtype=");
    list.extend_from_slice(options.subtype.as_bytes());
    if options.visibility != Visibility::Owner {
        list.extend_from_slice(b",allow_other");
    }
    if options.noexec {
        list.extend_from_slice(b",noexec");
    }
    OsString::from_vec(list)
}

/// The connection from the helper, or `None` if it ended without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

fn refusal(stderr: &[u8]) -> MountError {
    let words = words(stderr);
    if words.contains("user_allow_other") {
        MountError::NotForOthers
    } else {
        MountError::Refused(io::Error::other(words))
    }
}

fn words(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().replace('\n', "; ")
}
