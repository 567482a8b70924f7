//! Attributes of copies: what can be kept is kept, what cannot is counted and told at the end.

use super::place::Target;
use crate::image::{Image, Node};
use crate::output::escape;
use crate::report::{self, Report, Status};
use dentree_vfs::{FileType, Timestamp};
use rustix::fs::{Mode, Timespec};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What could not be kept, as the note calls it.
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
            Loss::HardLink => "hard links (copied apart)",
            Loss::Node => "devices, fifos or sockets",
        }
    }
}

/// Sets attributes of copies, and counts failures.
pub(super) struct Keeper {
    /// Keep all, not only what `cp -r` keeps.
    archive: bool,
    /// Permissions that new files do not get.
    umask: u32,
    lost: Mutex<BTreeMap<Loss, Lost>>,
}

struct Lost {
    count: u64,
    /// The first of them, and why.
    example: String,
}

impl Keeper {
    /// Takes the process's umask away, so that modes are what is asked for.
    pub(super) fn new(archive: bool) -> Self {
        let umask = rustix::process::umask(Mode::empty()).as_raw_mode();
        Keeper { archive, umask, lost: Mutex::default() }
    }

    /// The permissions that a copy of a file with permissions `mode` gets where not everything is kept.
    pub(super) fn reduced(&self, mode: u32) -> u32 {
        mode & 0o777 & !self.umask
    }

    /// Gives `target` what `node` has. To be called when nothing more is written to it.
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
            // Last: it may take away our own right to do the rest. Set-user-ID means the owner's rights: not for another.
            let permissions = if owned { permissions } else { permissions & !0o6000 };
            self.check(Loss::Mode, label, target.set_mode(permissions));
        }
    }

    /// Counts a failure; tells whether there was none.
    pub(super) fn check(&self, loss: Loss, label: &Path, result: io::Result<()>) -> bool {
        let Err(error) = result else { return true };
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let example = || format!("{}: {error}", escape::terminal(label.as_os_str().as_bytes()));
        lost.entry(loss).or_insert_with(|| Lost { count: 0, example: example() }).count += 1;
        false
    }

    /// Tells what could not be kept.
    pub(super) fn tell(&self, report: &Report) {
        for (loss, lost) in &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            report::say(format_args!(
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
