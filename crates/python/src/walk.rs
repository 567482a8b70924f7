//! An open file system, and the inodes at its paths.

use dentree_ext4::Ext4;
use dentree_vfs::{Identity, Inode, LastName, Result, Vfs, WalkOptions};
use std::sync::Arc;

pub(crate) type Fs = Arc<Vfs<Ext4>>;
pub(crate) type Node = Arc<Inode<Ext4>>;

/// No permissions are checked: a process that can read the image can read all of it.
pub(crate) const CALLER: &Identity = &Identity::Superuser;

pub(crate) fn walk(fs: &Fs, path: &[u8], follow: bool) -> Result<Node> {
    let options = if follow { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
    fs.walk(CALLER, fs.root(), path, options)
}

/// The directory of a path's last name, and the name.
pub(crate) fn parent<'p>(fs: &Fs, path: &'p [u8]) -> Result<LastName<'p, Ext4>> {
    fs.walk_parent(CALLER, fs.root(), path)
}
