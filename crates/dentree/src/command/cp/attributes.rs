//! Attributes of copies. Those that cannot be set are counted and reported at the end.

use super::options::{Keep, Options};
use crate::host::{self, OsStrExt, Target};
use crate::image::{Image, Node};
use crate::output::escape;
use crate::report::{self, Report, Status};
use dentree_find::ModeChange;
use dentree_sync::Mutex;
use dentree_vfs::{Attr, FileType};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// An attribute that could not be set, in the words of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::command) enum Loss {
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
pub(in crate::command) struct AttributeCopier {
    keep: Keep,
    chmod: Option<ModeChange>,
    /// Permissions that new files do not get.
    umask: u16,
    lost: Mutex<BTreeMap<Loss, Lost>>,
}

struct Lost {
    count: u64,
    /// The first file, and the error.
    example: String,
}

impl AttributeCopier {
    /// Clears the process's umask, so that modes are set exactly.
    pub(super) fn new(options: &Options<'_>) -> Self {
        AttributeCopier { chmod: options.chmod.clone(), ..AttributeCopier::keeping(options.keep) }
    }

    /// Keeps these attributes. Clears the process's umask, too.
    pub(in crate::command) fn keeping(keep: Keep) -> Self {
        AttributeCopier { keep, chmod: None, umask: host::clear_umask(), lost: Mutex::default() }
    }

    /// The permissions of a new file whose mode is not kept.
    pub(in crate::command) fn reduced(&self, attr: &Attr) -> u16 {
        let permissions = match attr.kind {
            FileType::Directory if self.keep.drops_mode => 0o777,
            _ if self.keep.drops_mode => 0o666,
            _ => attr.permissions & 0o777,
        };
        permissions & !self.umask
    }

    /// Sets the attributes of `node` on `target`, which is new or not, with the owner of
    /// `--chown`. Call it after the last write.
    pub(in crate::command) fn apply(
        &self,
        (image, node): (&Image, &Node),
        (target, is_new): (&Target<'_>, bool),
        owner: (Option<u32>, Option<u32>),
        label: &Path,
    ) {
        let copy_xattrs = || self.copy_xattrs(image, node, target, label);
        self.set(&node.attr(), &copy_xattrs, (target, is_new), owner, label);
    }

    /// Sets attributes; `copy_xattrs` sets the extended ones.
    pub(in crate::command) fn set(
        &self,
        attr: &Attr,
        copy_xattrs: &dyn Fn(),
        (target, is_new): (&Target<'_>, bool),
        owner: (Option<u32>, Option<u32>),
        label: &Path,
    ) {
        let keep = self.keep;
        let uid = owner.0.or(keep.owner.then_some(attr.uid));
        let gid = owner.1.or(keep.owner.then_some(attr.gid));
        let is_owned = if uid.or(gid).is_some() {
            self.check(Loss::Owner, label, target.set_owner(uid, gid))
        } else {
            !keep.mode || is_new
        };
        if keep.xattrs || keep.mode {
            copy_xattrs();
        }
        if keep.times {
            self.check(Loss::Times, label, target.set_times(attr.atime, attr.mtime));
        }
        let permissions = match (keep.mode, is_new) {
            (true, _) => Some(attr.permissions),
            (false, true) => Some(self.reduced(attr)),
            (false, false) => None,
        };
        let before = permissions.unwrap_or(attr.permissions);
        let changed = self.chmod.as_ref().map(|mode| mode.of(before, attr.is_dir()));
        if let Some(permissions) = changed.or(permissions).filter(|_| attr.kind != FileType::Symlink) {
            // Last, as it may revoke our access. Set-user-ID bits only for the right owner.
            let permissions = if is_owned { permissions } else { permissions & !0o6000 };
            self.check(Loss::Mode, label, target.set_mode(permissions.into()));
        }
    }

    fn copy_xattrs(&self, image: &Image, node: &Node, target: &Target<'_>, label: &Path) {
        match image.vfs.listxattr(node) {
            Ok(names) => names.iter().filter(|name| self.keep.keeps_xattr(name)).for_each(|name| {
                let set = image.vfs.getxattr(node, name).map_err(io::Error::other);
                self.check(Loss::Xattr, label, set.and_then(|value| target.set_xattr(name, &value)));
            }),
            Err(error) => drop(self.check(Loss::Xattr, label, Err(io::Error::other(error)))),
        }
    }

    /// Counts a failure; returns whether there was none.
    pub(in crate::command) fn check(&self, loss: Loss, label: &Path, result: io::Result<()>) -> bool {
        let Err(error) = result else { return true };
        let mut lost = self.lost.lock();
        let example = || format!("{}: {error}", escape::terminal(label.as_os_str().as_bytes()));
        lost.entry(loss).or_insert_with(|| Lost { count: 0, example: example() }).count += 1;
        false
    }

    /// Reports the counts.
    pub(in crate::command) fn report_losses(&self, report: &Report) {
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
