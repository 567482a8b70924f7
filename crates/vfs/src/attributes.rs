//! Changes of owner, permissions, times, length and extended attributes.
//!
//! Permissions are checked and changed under the attribute lock ([`Inode::attr_lock`]), so that no
//! check is outdated.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::permissions::{APPEND_ONLY, ChangeKind, IMMUTABLE, SET_GID, STICKY, after_writing};
use crate::{
    Access, Attr, Error, FileSystem, FileType, Identity, Inode, Result, SetAttr, SetTime, SetXattr,
    Timestamp, Vfs,
};

/// A change of content or owner removes it.
const CAPABILITY: &[u8] = b"security.capability";
/// Maximum lengths, as in the kernel.
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: usize = 64 << 10;
const UNKNOWN_SPACE: &str = "the name must start with user., trusted., security. or system.";

impl<F: FileSystem> Vfs<F> {
    /// Sets attributes, all or none: `chmod(2)`, `chown(2)`, `utimensat(2)`, `truncate(2)`.
    ///
    /// The owner may set permissions, times, and the group to one of its own; others get
    /// [`Error::NotPermitted`]. Write permission suffices to set both times to now, and is required
    /// to set the length. A new owner or group, or a new length by an ordinary user, clears setuid
    /// and setgid bits and capabilities.
    pub fn set_attr(&self, caller: &Identity, inode: &Inode<F>, changes: &SetAttr) -> Result<()> {
        if *changes == SetAttr::default() {
            return Ok(());
        }
        self.check_writable()?;
        let entry = if changes.permissions.is_some() { self.dentry_to_update(inode)? } else { None };
        let _attr_lock = inode.attr_lock.lock();
        let attr = inode.attr();
        self.check_set_attr(caller, inode, &attr, changes)?;
        let mut changes = *changes;
        let owner_changes = changes.uid.is_some() || changes.gid.is_some();
        if let Some(permissions) = &mut changes.permissions {
            let group = changes.gid.unwrap_or(attr.gid);
            *permissions &= 0o7777;
            if !caller.is_in(group) {
                *permissions &= !SET_GID;
            }
        } else if !inode.is_dir() && !matches!(caller, Identity::Checked { .. }) {
            let mut left = if owner_changes { caller.without_set_id(&attr) } else { attr.permissions };
            if changes.size.is_some() {
                left &= after_writing(caller, &attr);
            }
            changes.permissions = (left != attr.permissions).then_some(left);
        }
        if inode.kind() == FileType::Regular && (owner_changes || changes.size.is_some() && caller.is_bound())
        {
            self.drop_capability(inode)?;
        }
        match changes.permissions.filter(|_| attr.has_acl) {
            Some(permissions) => self.set_attr_and_acl(inode, permissions, &changes)?,
            None => self.fs().set_attr(inode.node(), &changes)?,
        }
        self.update_search_permission(inode, entry);
        Ok(())
    }

    /// From a front end's write-back cache. Ignores flags, which were set later.
    pub fn write_back_times(&self, inode: &Inode<F>, mtime: Timestamp, ctime: Timestamp) -> Result<()> {
        self.check_writable()?;
        let _attr_lock = inode.attr_lock.lock();
        let [mtime, ctime] = [mtime, ctime].map(|time| Some(SetTime::At(time)));
        self.fs().set_attr(inode.node(), &SetAttr { mtime, ctime, ..SetAttr::default() })
    }

    /// Sets the flags of [`Attr::flags`]: `FS_IOC_SETFLAGS`.
    ///
    /// # Errors
    /// - [`Error::NotPermitted`]: `caller` is not the owner; or not the superuser, and changes the
    ///   immutable or append-only flag; or the inode stays immutable.
    /// - [`Error::Unsupported`]: the inode cannot have such a flag.
    ///
    /// ```
    /// use dentree_vfs::{Error, Identity, MemoryFs, NewKind, Vfs};
    /// const IMMUTABLE: u32 = 0x10;
    /// let vfs = Vfs::new(MemoryFs::default())?;
    /// let caller = Identity::Superuser;
    /// let file = vfs.create(&caller, vfs.root(), b"file", NewKind::Regular, 0o644)?;
    /// vfs.set_flags(&caller, &file, file.attr().flags | IMMUTABLE)?;
    /// assert!(matches!(vfs.unlink(&caller, vfs.root(), b"file"), Err(Error::NotPermitted)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_flags(&self, caller: &Identity, inode: &Inode<F>, flags: u32) -> Result<()> {
        self.check_writable()?;
        let _attr_lock = inode.attr_lock.lock();
        let attr = inode.attr();
        let changed = attr.flags ^ flags;
        let stays_immutable = attr.flags & flags & IMMUTABLE != 0;
        if !caller.owns(&attr)
            || caller.is_bound() && changed & (IMMUTABLE | APPEND_ONLY) != 0
            || stays_immutable && changed != 0
        {
            return Err(Error::NotPermitted);
        }
        self.fs().set_flags(inode.node(), flags)
    }

    /// Also sets the ACL entries that mirror them.
    fn set_attr_and_acl(&self, inode: &Inode<F>, permissions: u16, changes: &SetAttr) -> Result<()> {
        let acl = self.acl(inode, ACCESS)?.map(|mut acl| {
            acl.set_permissions(permissions);
            acl.encode()
        });
        if changes.size.is_some() {
            let length_alone = SetAttr { size: changes.size, ..SetAttr::default() };
            self.fs().set_attr(inode.node(), &length_alone)?;
        }
        self.fs().set_acl(inode.node(), acl.as_deref(), &SetAttr { size: None, ..*changes })
    }

    fn check_set_attr(
        &self,
        caller: &Identity,
        inode: &Inode<F>,
        attr: &Attr,
        changes: &SetAttr,
    ) -> Result<()> {
        let permitted = |granted: bool| if granted { Ok(()) } else { Err(Error::NotPermitted) };
        if changes.size.is_some() {
            match inode.kind() {
                FileType::Regular => self.check(caller, inode, Access::WRITE)?,
                FileType::Directory => return Err(Error::IsADirectory),
                _ => return Err(Error::Invalid),
            }
        }
        self.check_flags(attr, ChangeKind::Any)?;
        if let Some(uid) = changes.uid {
            permitted(!caller.is_bound() || caller.owns(attr) && uid == attr.uid)?;
        }
        if let Some(gid) = changes.gid {
            permitted(!caller.is_bound() || caller.owns(attr) && (gid == attr.gid || caller.is_in(gid)))?;
        }
        if changes.permissions.is_some() {
            permitted(caller.owns(attr))?;
        }
        match (changes.atime, changes.mtime) {
            (None, None) => {}
            // `touch` needs write permission only.
            (Some(SetTime::Now), Some(SetTime::Now)) if !caller.owns(attr) => {
                self.check(caller, inode, Access::WRITE)?
            }
            _ => permitted(caller.owns(attr))?,
        }
        permitted(changes.ctime.is_none() || !caller.is_bound())
    }

    /// The kernel's `file_remove_privs`.
    pub(crate) fn drop_privileges(&self, caller: &Identity, file: &Inode<F>) -> Result<()> {
        if !caller.is_bound() {
            return Ok(());
        }
        let _attr_lock = file.attr_lock.lock();
        self.drop_capability(file)?;
        let attr = file.attr();
        let left = after_writing(caller, &attr);
        if left == attr.permissions {
            return Ok(());
        }
        self.fs().set_attr(file.node(), &SetAttr { permissions: Some(left), ..SetAttr::default() })
    }

    fn drop_capability(&self, file: &Inode<F>) -> Result<()> {
        match self.fs().getxattr(file.node(), CAPABILITY)? {
            Some(_) => self.fs().removexattr(file.node(), CAPABILITY),
            None => Ok(()),
        }
    }

    /// Sets an extended attribute by its full name: `setxattr(2)`.
    ///
    /// - `user.`: regular files and directories that `caller` may write; in a sticky directory only
    ///   its owner.
    /// - `trusted.`, `security.`: the superuser.
    /// - `system.`, the ACLs: the owner; `how` is ignored.
    ///
    /// Others are [`Error::Unsupported`].
    pub fn setxattr(
        &self,
        caller: &Identity,
        inode: &Inode<F>,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::NoSpace);
        }
        self.check_xattr(caller, inode, name)?;
        match name {
            ACCESS => self.set_access_acl(caller, inode, Acl::parse(value)?),
            // An empty list means none.
            DEFAULT if !inode.is_dir() && !matches!(Acl::parse(value), Ok(None)) => Err(Error::AccessDenied),
            DEFAULT => self.set_default_acl(inode, Acl::parse(value)?),
            _ => {
                let _attr_lock = inode.attr_lock.lock();
                self.fs().setxattr(inode.node(), name, value, how)
            }
        }
    }

    /// Removes an extended attribute by its full name, as [`setxattr`](Self::setxattr).
    /// [`Error::NoAttribute`]: it is missing, and not an ACL.
    pub fn removexattr(&self, caller: &Identity, inode: &Inode<F>, name: &[u8]) -> Result<()> {
        self.check_xattr(caller, inode, name)?;
        match name {
            ACCESS => self.set_access_acl(caller, inode, None),
            DEFAULT => self.set_default_acl(inode, None),
            _ => {
                let _attr_lock = inode.attr_lock.lock();
                self.fs().removexattr(inode.node(), name)
            }
        }
    }

    /// A minimal ACL is not stored. As in Linux, a caller outside of the group clears the setgid
    /// bit, and removal leaves the permission bits.
    fn set_access_acl(&self, caller: &Identity, inode: &Inode<F>, acl: Option<Acl>) -> Result<()> {
        if inode.kind() == FileType::Symlink {
            return Err(Error::Unsupported("symbolic links have no access control lists".into()));
        }
        let entry = self.dentry_to_update(inode)?;
        let _attr_lock = inode.attr_lock.lock();
        let attr = inode.attr();
        let mut permissions = attr.permissions;
        if let Some(acl) = &acl {
            permissions = permissions & !0o777 | acl.permissions();
            if !caller.is_in(attr.gid) {
                permissions &= !SET_GID;
            }
        }
        let stored = acl.filter(|acl| !acl.is_minimal()).map(|acl| acl.encode());
        let attributes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.fs().set_acl(inode.node(), stored.as_deref(), &attributes)?;
        self.update_search_permission(inode, entry);
        Ok(())
    }

    fn set_default_acl(&self, inode: &Inode<F>, acl: Option<Acl>) -> Result<()> {
        let _attr_lock = inode.attr_lock.lock();
        match acl {
            Some(acl) => self.fs().setxattr(inode.node(), DEFAULT, &acl.encode(), SetXattr::Any),
            None => match self.fs().removexattr(inode.node(), DEFAULT) {
                Err(Error::NoAttribute) => Ok(()),
                done => done,
            },
        }
    }

    fn check_xattr(&self, caller: &Identity, inode: &Inode<F>, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Error::Range);
        }
        let attr = inode.attr();
        self.check_flags(&attr, ChangeKind::Any)?;
        let permitted = |granted: bool| if granted { Ok(()) } else { Err(Error::NotPermitted) };
        let space = name.iter().position(|&byte| byte == b'.').map_or(name, |dot| &name[..=dot]);
        match space {
            b"user." => {
                permitted(matches!(inode.kind(), FileType::Regular | FileType::Directory))?;
                let sticky = inode.is_dir() && attr.permissions & STICKY != 0;
                permitted(!sticky || caller.owns(&attr))?;
                self.check(caller, inode, Access::WRITE)?;
            }
            b"trusted." | b"security." => permitted(!caller.is_bound())?,
            b"system." => permitted(caller.owns(&attr))?,
            _ => {
                self.check(caller, inode, Access::WRITE)?;
                return Err(Error::Unsupported(UNKNOWN_SPACE.into()));
            }
        }
        if name.len() > space.len() { Ok(()) } else { Err(Error::Invalid) }
    }
}
