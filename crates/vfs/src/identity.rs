//! Who asks, and what the permission bits let them do.

use crate::Attr;

/// What someone wants to do with an inode: any union of the three bits of `access(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u16);

impl Access {
    /// Read content, or list a directory.
    pub const READ: Access = Access(4);
    /// Write content, or change a directory's names.
    pub const WRITE: Access = Access(2);
    /// Execute a file, or search a directory.
    pub const EXECUTE: Access = Access(1);
    /// Search a directory: pass through it on a walk.
    pub const SEARCH: Access = Access::EXECUTE;

    /// Whether these three bits grant it.
    pub(crate) fn is_within(self, permissions: u16) -> bool {
        permissions & self.0 == self.0
    }

    /// Both of two wishes.
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Who asks: a user, a group and supplementary groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Passes every permission check: whoever holds the image's bytes can read them all. What is made belongs to root.
    Superuser,
    /// Somebody whom the front door has checked, as the kernel does for FUSE with `default_permissions`: passes every
    /// check, and the bits that a change takes away are taken away by the front door too.
    Checked {
        /// The owner of what is made.
        uid: u32,
        /// The group of what is made.
        gid: u32,
    },
    /// An ordinary user.
    User {
        /// User id.
        uid: u32,
        /// Effective group id.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
}

impl Identity {
    /// Whether the permission bits of `attr` grant `access`, which count where there is no access control list ([`Vfs::check`](crate::Vfs::check)
    /// looks at both): owner's bits for the owner, group's bits for the
    /// group, others' bits for the rest, and never a later class when an earlier one matches (POSIX 4.7).
    pub fn may(&self, attr: &Attr, access: Access) -> bool {
        let Identity::User { uid, .. } = self else {
            return true;
        };
        let shift = if *uid == attr.uid {
            6
        } else if self.is_in(attr.gid) {
            3
        } else {
            0
        };
        access.is_within(attr.permissions >> shift)
    }

    /// The user and the group to which belongs what is made.
    pub(crate) fn owner(&self) -> (u32, u32) {
        match *self {
            Identity::Superuser => (0, 0),
            Identity::Checked { uid, gid } | Identity::User { uid, gid, .. } => (uid, gid),
        }
    }

    /// Whether permissions bind it at all.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self, Identity::User { .. })
    }

    /// Whether it may do what only the owner of `attr` may.
    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        !matches!(self, Identity::User { uid, .. } if *uid != attr.uid)
    }

    /// Whether it is a member of the group, or bound by no permissions.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        match self {
            Identity::User { gid, groups, .. } => *gid == group || groups.contains(&group),
            _ => true,
        }
    }
}
