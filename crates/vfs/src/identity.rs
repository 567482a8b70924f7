//! A caller's identity, and checks of permission bits.

use crate::Attr;

/// Access to an inode: a union of the bits of `access(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u16);

impl Access {
    /// Read content, or list a directory.
    pub const READ: Access = Access(4);
    /// Write content, or change a directory's names.
    pub const WRITE: Access = Access(2);
    /// Execute a file, or search a directory.
    pub const EXECUTE: Access = Access(1);
    /// Search a directory.
    pub const SEARCH: Access = Access::EXECUTE;

    /// Whether the low three bits of `permissions` grant it.
    pub(crate) fn is_within(self, permissions: u16) -> bool {
        permissions & self.0 == self.0
    }

    /// The union of two.
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// The caller: a user, a group and supplementary groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Passes every permission check. New inodes belong to root.
    Superuser,
    /// Checked by the front end, as by the kernel for FUSE with `default_permissions`: passes every
    /// check here. The front end also clears the permission bits that a change clears.
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
        /// Effective group id.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
}

impl Identity {
    /// Whether the permission bits of `attr` grant `access`. Only the first matching class of
    /// owner, group and others counts (POSIX 4.7). [`Vfs::check`](crate::Vfs::check) also considers
    /// an ACL.
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

    /// Whether permissions apply to it.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self, Identity::User { .. })
    }

    /// Whether it has the rights of the owner of `attr`.
    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        !matches!(self, Identity::User { uid, .. } if *uid != attr.uid)
    }

    /// Whether it is a member of the group, or permissions do not apply to it.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        match self {
            Identity::User { gid, groups, .. } => *gid == group || groups.contains(&group),
            _ => true,
        }
    }
}
