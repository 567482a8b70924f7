use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{Inode, InodeFlags, InodeTime};
use dentree_vfs::{FileType, SetAttr, SetTime};

/// A block of the inode table.
const CREDITS: u32 = 1;

impl Ext4 {
    /// All but the size in one transaction.
    pub(crate) fn set_attr(&self, node: &Node, changes: &SetAttr) -> Result<()> {
        if let Some(size) = changes.size {
            self.set_size(node, size)?;
        }
        let now = self.writer()?.now();
        let mut handle = self.start(CREDITS)?;
        self.change_inode(&mut handle, node, |snapshot| apply(changes, now, &mut snapshot.inode))?;
        handle.stop();
        Ok(())
    }
}

impl Ext4 {
    /// Only settable flags change.
    pub(crate) fn set_inode_flags(&self, node: &Node, flags: InodeFlags) -> Result<()> {
        let (kind, before) = node.with_snapshot(|snapshot| (snapshot.kind, snapshot.inode.flags));
        let of_kind = match kind {
            FileType::Directory => InodeFlags::SETTABLE,
            FileType::Regular => {
                InodeFlags::SETTABLE.without(InodeFlags::DIRECTORIES_ONLY).without(InodeFlags::TOPDIR)
            }
            _ => InodeFlags::OTHERS_ALSO,
        };
        let wanted = InodeFlags(flags.0 & InodeFlags::SETTABLE.0);
        let changed =
            InodeFlags(flags.0 & InodeFlags::USER_VISIBLE.0 ^ before.0 & InodeFlags::USER_VISIBLE.0);
        let unknown = flags.without(InodeFlags::USER_VISIBLE);
        // `chattr` passes back all that `lsattr` shows: unchanged visible flags are accepted.
        let refused = unknown.with(wanted.without(of_kind)).with(InodeFlags(changed.0 & InodeFlags::FIXED.0));
        if refused != InodeFlags(0) {
            let ino = node.ino();
            return Err(Error::Unsupported(format!(
                "the flags {:#x} of inode {ino} cannot be changed",
                refused.0
            )));
        }
        let now = self.writer()?.now();
        let mut handle = self.start(CREDITS)?;
        self.change_inode(&mut handle, node, |snapshot| {
            let inode = &mut snapshot.inode;
            inode.flags = inode.flags.without(InodeFlags::SETTABLE).with(wanted);
            inode.ctime = now;
        })?;
        handle.stop();
        Ok(())
    }
}

pub(crate) fn apply(changes: &SetAttr, now: InodeTime, inode: &mut Inode) {
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => InodeTime { seconds: time.seconds, nanos: time.nanos },
    };
    if let Some(permissions) = changes.permissions {
        inode.mode = inode.mode & !0o7777 | permissions & 0o7777;
    }
    inode.uid = changes.uid.unwrap_or(inode.uid);
    inode.gid = changes.gid.unwrap_or(inode.gid);
    inode.atime = changes.atime.map_or(inode.atime, time);
    inode.mtime = changes.mtime.map_or(inode.mtime, time);
    inode.ctime = changes.ctime.map_or(now, time);
}
