//! Requests that change something, in terms of [`Vfs`](dentree_vfs::Vfs).
//!
//! The kernel checks permissions. Left to us are the owner of a new inode, and clearing setuid and
//! setgid bits: if the kernel did that, it would read the file's capabilities before each cached
//! write. With the write-back cache the kernel knows length and times of open files, and sends them
//! when it writes.
//!
//! Whether a setgid bit is cleared depends on the caller's supplementary groups. FUSE does not send
//! them, so they are read from `/proc` while the caller waits. (`FUSE_SETXATTR_ACL_KILL_SGID` would
//! do for access ACLs alone.) The reply to a write has no mode, so the kernel is notified to drop
//! its cached attributes.
//!
//! O_TMPFILE is not offered.

use crate::abi;
use crate::adapter::Adapter;
use crate::convert::device_numbers;
use crate::known::NodeId;
use crate::request::{Caller, NewAttr};
use dentree_vfs::{
    Allocate, Durability, Error, FileSystem, FileType, Identity, Inode, Mode, NewKind, OnExisting, Result,
    SetAttr, SetTime, SetXattr, Timestamp,
};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const ACCESS_LIST: &str = "system.posix_acl_access";
const SET_ID: u16 = 0o6000;

/// Most bytes of one COPY_FILE_RANGE, whose caller cannot be interrupted.
const COPY_MAX: u64 = 64 << 20;
/// Bytes per read and write.
const COPY_STEP: u64 = 1 << 20;

/// How long a request waits on a full disk for the space of files that were removed before it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Times of cached writes, which the kernel sends with a file handle. Times that a program sets
/// come without one.
fn written_back(new: &NewAttr) -> Option<(Timestamp, Timestamp)> {
    let NewAttr { mode: None, uid: None, gid: None, size: None, atime: None, .. } = *new else {
        return None;
    };
    match (new.mtime, new.ctime) {
        (Some(SetTime::At(mtime)), Some(ctime)) if new.is_of_file => Some((mtime, ctime)),
        _ => None,
    }
}

/// A caller whose permissions the kernel has checked.
fn checked(caller: Caller) -> Identity {
    Identity::Checked { uid: caller.uid, gid: caller.gid }
}

/// The caller with all its groups. A caller that has ended has none: a bit is cleared rather than
/// kept.
fn member(caller: Caller) -> Identity {
    if caller.is_root() {
        return Identity::Superuser;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", caller.pid)).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    let groups = groups.split_whitespace().filter_map(|group| group.parse().ok()).collect();
    Identity::User { uid: caller.uid, gid: caller.gid, groups }
}

/// For changes without a new inode.
const CHECKED: Identity = Identity::Checked { uid: 0, gid: 0 };

impl<F: FileSystem> Adapter<F> {
    pub(crate) fn make(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        kind: NewKind<'_>,
        (mode, umask): (u32, u32),
    ) -> Result<Arc<Inode<F>>> {
        let mode = Mode { permissions: (mode & 0o7777) as u16, umask: (umask & 0o777) as u16 };
        let (caller, dir) = (checked(caller), self.inode(parent)?);
        self.with_space(|| self.vfs.create(&caller, &dir, name.as_bytes(), kind, mode))
    }

    /// Runs an operation that allocates space. Repeats it when the removal of a file has freed
    /// some.
    fn with_space<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        loop {
            let before = self.shared.known.freed();
            match attempt() {
                Err(Error::NoSpace) if self.shared.known.wait_for_more_freed(before, PATIENCE) => {}
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn make_node(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        mode: (u32, u32),
        device: u32,
    ) -> Result<Arc<Inode<F>>> {
        let (major, minor) = device_numbers(device);
        let kind = match FileType::from_mode(mode.0) {
            Some(FileType::Regular) => NewKind::Regular,
            Some(FileType::Fifo) => NewKind::Fifo,
            Some(FileType::Socket) => NewKind::Socket,
            Some(FileType::CharDevice) => NewKind::CharDevice { major, minor },
            Some(FileType::BlockDevice) => NewKind::BlockDevice { major, minor },
            _ => return Err(Error::Invalid),
        };
        self.make(caller, parent, name, kind, mode)
    }

    pub(crate) fn remove(&self, parent: NodeId, name: &OsStr, as_directory: bool) -> Result<()> {
        let dir = self.inode(parent)?;
        let removed = if as_directory {
            self.vfs.rmdir_and_hold(&CHECKED, &dir, name.as_bytes())?
        } else {
            self.vfs.unlink_and_hold(&CHECKED, &dir, name.as_bytes())?
        };
        self.hold_removed(removed);
        Ok(())
    }

    pub(crate) fn move_name(
        &self,
        (old_parent, old): (NodeId, &OsStr),
        (new_parent, new): (NodeId, &OsStr),
        flags: u32,
        caller: Caller,
    ) -> Result<()> {
        let leaves_whiteout = flags & RENAME_WHITEOUT != 0;
        let on_existing = match flags & !RENAME_WHITEOUT {
            0 => OnExisting::Replace,
            RENAME_NOREPLACE => OnExisting::Fail,
            RENAME_EXCHANGE => OnExisting::Exchange,
            _ => return Err(Error::Invalid),
        };
        let (old_dir, new_dir) = (self.inode(old_parent)?, self.inode(new_parent)?);
        let caller = checked(caller);
        let replaced = self.with_space(|| {
            let (old, new) = (old.as_bytes(), new.as_bytes());
            if leaves_whiteout {
                self.vfs.rename_leaving_whiteout(&caller, &old_dir, old, &new_dir, new, on_existing)
            } else {
                self.vfs.rename(&caller, &old_dir, old, &new_dir, new, on_existing)
            }
        })?;
        if let Some(replaced) = replaced {
            self.hold_removed(replaced);
        }
        Ok(())
    }

    /// The kernel may have it open: it stays until FORGET.
    fn hold_removed(&self, inode: Arc<Inode<F>>) {
        if inode.is_removed() {
            self.shared.known.hold(self.ids.node(inode.ino()), inode);
        }
    }

    pub(crate) fn add_link(&self, node: NodeId, parent: NodeId, name: &OsStr) -> Result<Arc<Inode<F>>> {
        let (inode, dir) = (self.inode(node)?, self.inode(parent)?);
        self.with_space(|| self.vfs.link(&CHECKED, &inode, &dir, name.as_bytes()))?;
        Ok(inode)
    }

    pub(crate) fn change_attr(&self, caller: Caller, node: NodeId, new: &NewAttr) -> Result<Arc<Inode<F>>> {
        if let Some((mtime, ctime)) = written_back(new) {
            let inode = self.inode(node)?;
            self.vfs.write_back_times(&inode, mtime, ctime)?;
            return Ok(inode);
        }
        let mut changes = SetAttr {
            permissions: new.mode.map(|mode| (mode & 0o7777) as u16),
            uid: new.uid,
            gid: new.gid,
            size: new.size,
            atime: new.atime,
            mtime: new.mtime,
            ctime: new.ctime.map(SetTime::At),
        };
        let inode = self.inode(node)?;
        let owner_changes = changes.uid.is_some() || changes.gid.is_some();
        if owner_changes || changes.size.is_some() && !caller.is_root() {
            changes.permissions = changes.permissions.or(self.without_set_id(caller, &inode));
        }
        self.vfs.set_attr(&CHECKED, &inode, &changes)?;
        Ok(inode)
    }

    /// The permissions of a file after a change of content or owner, if they differ and the kernel
    /// leaves that to us.
    fn without_set_id(&self, caller: Caller, file: &Inode<F>) -> Option<u16> {
        let before = file.attr();
        if !self.agreed.drops_set_id || file.is_dir() || before.permissions & SET_ID == 0 {
            return None;
        }
        let left = member(caller).without_set_id(&before);
        (left != before.permissions).then_some(left)
    }

    /// Before the content changes: no program runs with another user's content under its owner's
    /// identity.
    fn drop_set_id(&self, caller: Caller, file: &Inode<F>) -> Result<()> {
        let Some(permissions) = self.without_set_id(caller, file) else { return Ok(()) };
        let left = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.vfs.set_attr(&CHECKED, file, &left)?;
        self.shared.forget_attributes(self.ids.node(file.ino()))
    }

    pub(crate) fn write_at(
        &self,
        caller: Caller,
        node: NodeId,
        offset: u64,
        data: &[u8],
        flags: u32,
    ) -> Result<u32> {
        let file = self.inode(node)?;
        let written = if flags & abi::write::CACHE != 0 {
            self.write_gathered(&file, offset, data)?
        } else {
            if flags & abi::write::KILL_SUIDGID != 0 {
                self.drop_set_id(caller, &file)?;
            }
            self.with_space(|| self.vfs.write(&CHECKED, &file, offset, data))?
        };
        // At most as long as the request, whose length has 32 bits.
        Ok(written as u32)
    }

    /// Writes cached data that the kernel sends. Its times come by themselves, perhaps before.
    /// Writes all or fails: no caller reads the count, so a short write would be lost silently.
    fn write_gathered(&self, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            match self.with_space(|| self.vfs.write_back(file, offset + done as u64, rest))? {
                0 => return Err(Error::NoSpace),
                written => done += written,
            }
        }
        Ok(done)
    }

    pub(crate) fn change_space(
        &self,
        caller: Caller,
        node: NodeId,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<()> {
        const PUNCH: u32 = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        const ZERO_KEEP: u32 = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
        let how = match mode {
            0 => Allocate::Reserve,
            FALLOC_KEEP_SIZE => Allocate::ReserveKeepSize,
            PUNCH => Allocate::PunchHole,
            FALLOC_ZERO_RANGE => Allocate::ZeroRange,
            ZERO_KEEP => Allocate::ZeroRangeKeepSize,
            _ => return Err(Error::Unsupported(format!("fallocate mode {mode:#x}").into())),
        };
        let file = self.inode(node)?;
        if !caller.is_root() {
            self.drop_set_id(caller, &file)?;
        }
        self.with_space(|| self.vfs.allocate(&CHECKED, &file, offset, len, how))
    }

    /// Copies within the image. The kernel has written back its cached data.
    pub(crate) fn copy(
        &self,
        caller: Caller,
        (from, at): (NodeId, u64),
        (to, target): (NodeId, u64),
        len: u64,
    ) -> Result<u32> {
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        if !caller.is_root() {
            self.drop_set_id(caller, &to)?;
        }
        let len = len.min(COPY_MAX);
        let mut piece = vec![0; len.min(COPY_STEP) as usize];
        let mut done = 0;
        while done < len {
            let wanted = (len - done).min(COPY_STEP) as usize;
            let step = self.vfs.read(&from, at + done, &mut piece[..wanted]);
            let write = |read| self.vfs.write(&CHECKED, &to, target + done, &piece[..read]);
            let step = step.and_then(|read| self.with_space(|| write(read)));
            match step {
                Ok(0) => break,
                Ok(written) => done += written as u64,
                // What is copied stays copied; the next call gets the error first.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done as u32)
    }

    pub(crate) fn make_durable(&self, node: NodeId, data_only: bool) -> Result<()> {
        let durability = if data_only { Durability::Data } else { Durability::Full };
        self.vfs.fsync(&*self.inode(node)?, durability)
    }

    pub(crate) fn set_xattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return Err(Error::Invalid),
        };
        let inode = self.inode(node)?;
        let mut setter = if name == ACCESS_LIST { member(caller) } else { CHECKED };
        if let Identity::User { uid, .. } = &mut setter {
            // The kernel has checked that the caller may act as the owner.
            *uid = inode.attr().uid;
        }
        self.with_space(|| self.vfs.setxattr(&setter, &inode, name.as_bytes(), value, how))
    }

    pub(crate) fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.vfs.removexattr(&CHECKED, &*self.inode(node)?, name.as_bytes())
    }
}
