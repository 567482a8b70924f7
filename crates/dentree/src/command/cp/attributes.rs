//! Attributes of copies. Those that cannot be set are counted and reported at the end.

use super::target_dir::Target;
use crate::image::{Image, Node};
use crate::output::escape;
use crate::report::{self, Report, Status};
use dentree_sync::Mutex;
use dentree_vfs::{FileType, Timestamp};
use rustix::fs::{Mode, Timespec};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An attribute that could not be set, in the words of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Loss {
    Owner,
    Mode,
    Xattr,
    Times,
    HardLink,
    Node,
}

impl Loss {
    fn words(self) -> &'static str {
        match self {
            Loss::Owner => "owners",
            Loss::Mode => "modes",
            Loss::Xattr => "extended attributes",
            Loss::Times => "times",
            Loss::HardLink => "hard links (copied as files)",
            Loss::Node => "devices, fifos or sockets",
        }
    }
}

/// Sets attributes of copies, and counts failures.
pub(super) struct AttributeCopier {
    /// Set all attributes, not only those of `cp -r`.
    archive: bool,
    /// Permissions that new files do not get.
    umask: u32,
    lost: Mutex<BTreeMap<Loss, Lost>>,
}

struct Lost {
    count: u64,
    /// The first file, and the error.
    example: String,
}

impl AttributeCopier {
    /// Clears the process's umask, so that modes are set exactly.
    pub(super) fn new(archive: bool) -> Self {
        let umask = rustix::process::umask(Mode::empty()).as_raw_mode();
        AttributeCopier { archive, umask, lost: Mutex::default() }
    }

    /// The permissions of a copy without `archive`.
    pub(super) fn reduced(&self, mode: u32) -> u32 {
        mode & 0o777 & !self.umask
    }

    /// Sets the attributes of `node` on `target`. Call it after the last write.
    pub(super) fn apply(&self, image: &Image, node: &Node, target: &Target<'_>, label: &Path) {
        let attr = node.attr();
        let has_mode = attr.kind != FileType::Symlink;
        let permissions = u32::from(attr.permissions);
        if !self.archive {
            if has_mode {
                self.check(Loss::Mode, label, target.set_mode(self.reduced(permissions)));
            }
            return;
        }
        let owned = self.check(Loss::Owner, label, target.set_owner(attr.uid, attr.gid));
        match image.vfs.listxattr(node) {
            Ok(names) => names.iter().for_each(|name| {
                let set = image.vfs.getxattr(node, name).map_err(io::Error::other);
                self.check(Loss::Xattr, label, set.and_then(|value| target.set_xattr(name, &value)));
            }),
            Err(error) => drop(self.check(Loss::Xattr, label, Err(io::Error::other(error)))),
        }
        self.check(Loss::Times, label, target.set_times(timespec(attr.atime), timespec(attr.mtime)));
        if has_mode {
            // Last, as it may revoke our access. Set-user-ID bits only for the right owner.
            let permissions = if owned { permissions } else { permissions & !0o6000 };
            self.check(Loss::Mode, label, target.set_mode(permissions));
        }
    }

    /// Counts a failure; returns whether there was none.
    pub(super) fn check(&self, loss: Loss, label: &Path, result: io::Result<()>) -> bool {
        let Err(error) = result else { return true };
        let mut lost = self.lost.lock();
        let example = || format!("{}: {error}", escape::terminal(label.as_os_str().as_bytes()));
        lost.entry(loss).or_insert_with(|| Lost { count: 0, example: example() }).count += 1;
        false
    }

    /// Reports the counts.
    pub(super) fn report_losses(&self, report: &Report) {
        for (loss, lost) in &*self.lost.lock() {
            report::print(format_args!(
                "dentree: not kept: {} {} (first {})",
                lost.count,
                loss.words(),
                lost.example
            ));
            report.remember(Status::Failed);
        }
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanos) }
}
