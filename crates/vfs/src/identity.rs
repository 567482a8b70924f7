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

    /// Both of two wishes.
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Who asks: a user, a group and supplementary groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Passes every permission check: whoever holds the image's bytes can read them all.
    Superuser,
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
    /// Whether the permission bits of `attr` grant `access`: owner's bits for the owner, group's bits for the
    /// group, others' bits for the rest, and never a later class when an earlier one matches (POSIX 4.7).
    pub fn may(&self, attr: &Attr, access: Access) -> bool {
        let Identity::User { uid, gid, groups } = self else {
            return true;
        };
        let shift = if *uid == attr.uid {
            6
        } else if *gid == attr.gid || groups.contains(&attr.gid) {
            3
        } else {
            0
        };
        (attr.permissions >> shift) & access.0 == access.0
    }
}
