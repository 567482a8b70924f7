//! How to mount, and why a mount does not come about.

use crate::convert::Ownership;
use std::ffi::OsString;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

/// Users that may look into the mount at all, before permission bits are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Visibility {
    /// The user that mounts, not even root: FUSE's default.
    #[default]
    Owner,
    /// The user that mounts, and root (`allow_root`). Costs what the kernel caches otherwise:
    /// callers are told apart here, so every call has to come here.
    OwnerAndRoot,
    /// Everybody (`allow_other`).
    Everyone,
}

/// How to mount. The mount is read-only where the file system is, and permission bits are always
/// checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What mount tables name as the source (`fsname=`).
    pub source: OsString,
    /// The type in mount tables is `fuse.` and this.
    pub subtype: String,
    /// The users that may look into it.
    pub visibility: Visibility,
    /// Whose the files seem to be.
    pub ownership: Ownership,
    /// Honour set-user-id and set-group-id bits. Root only.
    pub suid: bool,
    /// Honour device files. Root only.
    pub dev: bool,
    /// Run no programs from it.
    pub noexec: bool,
    /// Mount over a directory that has entries.
    pub nonempty: bool,
    /// Most threads that serve requests from `/dev/fuse`; one for each processor reads them.
    pub threads: NonZero<usize>,
    /// Whether requests come over io_uring: `None` where the kernel offers it.
    pub io_uring: Option<bool>,
}

impl Default for Options {
    /// Visible to the owner, the image's own ownership, no setuid, no devices, up to a thread for
    /// each processor and at least 32: one that waits for the disk serves no other request, and
    /// fsyncs share a commit only as far as there are threads that have come to it.
    fn default() -> Self {
        let processors = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Options {
            source: "dentree".into(),
            subtype: "dentree".to_owned(),
            visibility: Visibility::default(),
            ownership: Ownership::default(),
            suid: false,
            dev: false,
            noexec: false,
            nonempty: false,
            threads: processors.max(NonZero::<usize>::MIN.saturating_add(31)),
            io_uring: None,
        }
    }
}

/// Why a mount did not come about.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or the container has no FUSE.
    #[error("/dev/fuse is missing: load the module (`modprobe fuse`), or give the container the device")]
    NoDevice,
    /// The device is there and cannot be opened.
    #[error("/dev/fuse cannot be opened: {0}")]
    Device(#[source] io::Error),
    /// Nothing can be mounted at the given path.
    #[error("{} {what}", path.display())]
    MountPoint {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it and what to do.
        what: String,
    },
    /// Only root mounts without the helper.
    #[error("fusermount3 is not installed: install the package fuse3, or mount as root")]
    NoHelper,
    /// `suid` and `dev` would let an image's author become root.
    #[error("only root may mount with -o suid or -o dev")]
    NeedsRoot,
    /// The administrator has not allowed mounts that others see.
    #[error("allow_other and allow_root need the line `user_allow_other` in /etc/fuse.conf")]
    NotForOthers,
    /// The kernel or the helper said no.
    #[error("cannot mount: {0}")]
    Refused(#[source] io::Error),
    /// `io_uring` was demanded.
    #[error(
        "the kernel offers no FUSE over io_uring: it needs Linux 6.14 and, as root, \
         `echo Y > /sys/module/fuse/parameters/enable_uring`; or leave out -o io_uring"
    )]
    NoRing,
    /// The rings cannot be made.
    #[error("io_uring cannot be used: {0}; leave out -o io_uring")]
    Ring(#[source] io::Error),
    /// Mounted, but kernel and server do not understand each other.
    #[error("the kernel's FUSE and ours cannot agree on a protocol: {0}")]
    Protocol(#[source] io::Error),
}
