//! Who may change what: POSIX's rules and those that Linux adds, in one place.
//!
//! The order of the checks is Linux's, as it decides which of several errors a caller sees.

use crate::{Access, Attr, Error, FileSystem, Identity, Inode, NewInode, NewKind, Result, Vfs};

/// `FS_IMMUTABLE_FL`: nothing about the inode may change.
const IMMUTABLE: u32 = 0x10;
/// `FS_APPEND_FL`: content is only appended, names are only added.
const APPEND_ONLY: u32 = 0x20;

pub(crate) const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
pub(crate) const STICKY: u16 = 0o1000;
pub(crate) const GROUP_EXECUTE: u16 = 0o010;

/// A change that the inode's own flags may forbid, to everybody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Bytes or names come to it.
    Append,
    /// Anything else.
    Change,
}

impl<F: FileSystem> Vfs<F> {
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.fs().is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Whether the inode's flags let it be changed.
    pub(crate) fn check_flags(&self, attr: &Attr, touch: Touch) -> Result<()> {
        let forbidden = if touch == Touch::Append { IMMUTABLE } else { IMMUTABLE | APPEND_ONLY };
        if attr.flags & forbidden == 0 { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// Whether `who` may give `dir` one more name.
    pub(crate) fn check_add(&self, who: &Identity, dir: &Inode<F>) -> Result<()> {
        self.check_flags(&dir.attr(), Touch::Append)?;
        self.check(who, dir, Access::WRITE.and(Access::SEARCH))
    }

    /// Whether `who` may take a name of `victim` from `dir`, as that of a directory or of something else.
    pub(crate) fn check_remove(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        victim: &Inode<F>,
        as_directory: bool,
    ) -> Result<()> {
        let (above, attr) = (dir.attr(), victim.attr());
        self.check_flags(&above, Touch::Append)?;
        self.check(who, dir, Access::WRITE.and(Access::SEARCH))?;
        self.check_flags(&above, Touch::Change)?;
        if above.permissions & STICKY != 0 && !who.owns(&attr) && !who.owns(&above) {
            return Err(Error::NotPermitted);
        }
        self.check_flags(&attr, Touch::Change)?;
        match (as_directory, victim.is_dir()) {
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            _ if victim.ino() == self.root().ino() => Err(Error::Busy),
            _ => Ok(()),
        }
    }

    /// Owner, group and bits of what `who` makes in `dir`: a setgid directory hands its group down, and directories
    /// their setgid bit too.
    pub(crate) fn inherit<'k>(
        &self,
        who: &Identity,
        dir: &Inode<F>,
        kind: NewKind<'k>,
        permissions: u16,
    ) -> NewInode<'k> {
        let above = dir.attr();
        let (uid, mut gid) = who.owner();
        let mut permissions = match kind {
            NewKind::Symlink(_) => 0o777,
            NewKind::Directory => permissions & (0o777 | STICKY),
            _ => permissions & 0o7777,
        };
        if above.permissions & SET_GID != 0 {
            gid = above.gid;
            if kind == NewKind::Directory {
                permissions |= SET_GID;
            } else if permissions & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE && !who.is_in(gid) {
                permissions &= !SET_GID;
            }
        }
        NewInode { kind, permissions, uid, gid }
    }
}

/// The permissions that are left of `attr`'s once `who` has changed the content: a program that somebody else wrote to is
/// no longer its owner's.
pub(crate) fn after_writing(who: &Identity, attr: &Attr) -> u16 {
    if who.is_bound() { without_set_id(who, attr) } else { attr.permissions }
}

/// The permissions without the bits that lend an identity. A setgid bit without execution by the group means mandatory
/// locking and is taken only by strangers to the group.
pub(crate) fn without_set_id(who: &Identity, attr: &Attr) -> u16 {
    let runs_as_group = attr.permissions & GROUP_EXECUTE != 0 || !who.is_in(attr.gid);
    attr.permissions & !SET_UID & !(if runs_as_group { SET_GID } else { 0 })
}
