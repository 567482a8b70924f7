//! Permission checks of changes, in the order of Linux, which selects the error.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::{Access, Attr, Error, FileSystem, Identity, Inode, Mode, NewInode, NewKind, Result, Vfs};

/// `FS_IMMUTABLE_FL`.
pub(crate) const IMMUTABLE: u32 = 0x10;
/// `FS_APPEND_FL`: content is only appended, names are only added.
pub(crate) const APPEND_ONLY: u32 = 0x20;

pub(crate) const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
pub(crate) const STICKY: u16 = 0o1000;
const GROUP_CLASS: u16 = 0o070;
pub(crate) const GROUP_EXECUTE: u16 = 0o010;

/// Flags may forbid it to any caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// Of bytes or names.
    Append,
    /// Others.
    Any,
}

impl<F: FileSystem> Vfs<F> {
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.fs().is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Checks the inode's flags.
    pub(crate) fn check_flags(&self, attr: &Attr, kind: ChangeKind) -> Result<()> {
        let forbidden = if kind == ChangeKind::Append { IMMUTABLE } else { IMMUTABLE | APPEND_ONLY };
        if attr.flags & forbidden == 0 { Ok(()) } else { Err(Error::NotPermitted) }
    }

    pub(crate) fn check_add(&self, caller: &Identity, dir: &Inode<F>) -> Result<()> {
        self.check_flags(&dir.attr(), ChangeKind::Append)?;
        self.check(caller, dir, Access::WRITE.and(Access::SEARCH))
    }

    /// `as_directory`: by `rmdir`.
    pub(crate) fn check_remove(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        victim: &Inode<F>,
        as_directory: bool,
    ) -> Result<()> {
        let (above, attr) = (dir.attr(), victim.attr());
        self.check_flags(&above, ChangeKind::Append)?;
        self.check(caller, dir, Access::WRITE.and(Access::SEARCH))?;
        self.check_flags(&above, ChangeKind::Any)?;
        if above.permissions & STICKY != 0 && !caller.owns(&attr) && !caller.owns(&above) {
            return Err(Error::NotPermitted);
        }
        self.check_flags(&attr, ChangeKind::Any)?;
        match (as_directory, victim.is_dir()) {
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            _ if victim.ino() == self.root().ino() => Err(Error::Busy),
            _ => Ok(()),
        }
    }

    /// As in Linux, the owner's bits decide for the owner, and an ACL with an empty mask is
    /// ignored.
    pub(crate) fn may(&self, caller: &Identity, inode: &Inode<F>, access: Access) -> Result<bool> {
        let attr = inode.attr();
        let Identity::User { uid, .. } = *caller else { return Ok(true) };
        if attr.has_acl
            && uid != attr.uid
            && attr.permissions & GROUP_CLASS != 0
            && let Some(acl) = self.acl(inode, ACCESS)?
        {
            return Ok(acl.grants(uid, |group| caller.is_in(group), attr.gid, access));
        }
        Ok(caller.may(&attr, access))
    }

    /// The ACL in attribute `name`.
    pub(crate) fn acl(&self, inode: &Inode<F>, name: &[u8]) -> Result<Option<Acl>> {
        let Some(value) = self.fs().getxattr(inode.node(), name)? else { return Ok(None) };
        Acl::parse(&value).map_err(|_| {
            let name = name.escape_ascii();
            Error::Corrupt(
                format!("{name} of inode {} is not a valid access control list", inode.ino()).into(),
            )
        })
    }

    /// Calls `make` with owner, group, bits and ACLs of a new inode. It inherits a setgid
    /// directory's group and a default ACL; a directory also the setgid bit.
    pub(crate) fn with_inherited<R>(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        kind: NewKind<'_>,
        mode: Mode,
        make: impl FnOnce(&NewInode<'_>) -> Result<R>,
    ) -> Result<R> {
        let default = match kind {
            NewKind::Symlink(_) => None,
            _ => self.acl(dir, DEFAULT)?,
        };
        let umask = if default.is_some() { 0 } else { mode.umask };
        let mut new = self.inherit(caller, dir, kind, mode.permissions & !umask);
        let Some(default) = default else { return make(&new) };
        let mut access = default.clone();
        access.restrict(new.permissions);
        new.permissions = new.permissions & !0o777 | access.permissions();
        let mut xattrs = Vec::new();
        if !access.is_minimal() {
            xattrs.push((ACCESS, access.encode()));
        }
        if kind == NewKind::Directory {
            xattrs.push((DEFAULT, default.encode()));
        }
        new.xattrs = &xattrs;
        make(&new)
    }

    fn inherit<'k>(
        &self,
        caller: &Identity,
        dir: &Inode<F>,
        kind: NewKind<'k>,
        permissions: u16,
    ) -> NewInode<'k> {
        let above = dir.attr();
        let (uid, mut gid) = caller.owner();
        let mut permissions = match kind {
            NewKind::Symlink(_) => 0o777,
            NewKind::Directory => permissions & (0o777 | STICKY),
            _ => permissions & 0o7777,
        };
        if above.permissions & SET_GID != 0 {
            gid = above.gid;
            if kind == NewKind::Directory {
                permissions |= SET_GID;
            } else if permissions & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE && !caller.is_in(gid)
            {
                permissions &= !SET_GID;
            }
        }
        NewInode { kind, permissions, uid, gid, xattrs: &[] }
    }
}

/// The owner does not vouch for another user's content.
pub(crate) fn after_writing(caller: &Identity, attr: &Attr) -> u16 {
    if caller.is_bound() { caller.without_set_id(attr) } else { attr.permissions }
}

impl Identity {
    /// Permissions without setuid and setgid bits, after this identity has changed content or
    /// owner. Setgid without group execution means mandatory locking; only identities outside of
    /// the group clear it.
    pub fn without_set_id(&self, attr: &Attr) -> u16 {
        let drops_set_gid = attr.permissions & GROUP_EXECUTE != 0 || !self.is_in(attr.gid);
        attr.permissions & !SET_UID & !(if drops_set_gid { SET_GID } else { 0 })
    }
}
