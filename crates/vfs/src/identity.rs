//! A caller's identity and its permissions.

use crate::Attr;

/// Bits of `access(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u16);

impl Access {
    /// Read, or list.
    pub const READ: Access = Access(4);
    /// Write, or change names.
    pub const WRITE: Access = Access(2);
    /// Execute, or search.
    pub const EXECUTE: Access = Access(1);
    /// Search a directory.
    pub const SEARCH: Access = Access::EXECUTE;

    /// In the low three bits.
    pub(crate) fn is_within(self, permissions: u16) -> bool {
        permissions & self.0 == self.0
    }

    /// Both.
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// The caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Passes all checks. New inodes belong to root.
    Superuser,
    /// Passes all checks: the front end makes them, as the kernel does with `default_permissions`.
    /// It also clears permission bits after changes.
    Checked {
        /// Owner of new inodes.
        uid: u32,
        /// Group of new inodes.
        gid: u32,
    },
    /// An ordinary user.
    User {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
}

impl Identity {
    /// Whether permission bits grant `access`: those of the first matching class of owner, group
    /// and others (POSIX 4.7). [`Vfs::check`](crate::Vfs::check) also considers an ACL.
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

    /// Owner and group of new inodes.
    pub(crate) fn owner(&self) -> (u32, u32) {
        match *self {
            Identity::Superuser => (0, 0),
            Identity::Checked { uid, gid } | Identity::User { uid, gid, .. } => (uid, gid),
        }
    }

    /// Whether permissions apply.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self, Identity::User { .. })
    }

    /// Whether it has the owner's rights.
    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        !matches!(self, Identity::User { uid, .. } if *uid != attr.uid)
    }

    /// Whether it is in the group, or permissions do not apply.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        match self {
            Identity::User { gid, groups, .. } => *gid == group || groups.contains(&group),
            _ => true,
        }
    }
}
