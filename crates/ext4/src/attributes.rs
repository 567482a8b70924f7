//! Attributes that are set.

use crate::{Ext4, Node, Result};
use dentree_ext4_format::{Inode, InodeTime};
use dentree_vfs::{SetAttr, SetTime};

/// The inode table's block.
const CREDITS: u32 = 1;

impl Ext4 {
    /// Sets all that is given, in one transaction.
    pub(crate) fn set_attributes(&self, node: &Node, changes: &SetAttr) -> Result<()> {
        let now = self.writer()?.now();
        let mut handle = self.start(CREDITS)?;
        self.change_inode(&mut handle, node, |snapshot| apply(changes, now, &mut snapshot.inode))?;
        handle.stop();
        Ok(())
    }
}

/// Sets all that is given, but for the length.
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
