//! Notifications to the kernel.

use crate::abi::{self, NotifyInvalInodeOut, OutHeader};
use crate::known::NodeId;
use dentree_vfs::{Error, Result};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Writes notifications to a connection.
pub(crate) struct Notifier(pub(crate) Arc<OwnedFd>);

impl Notifier {
    /// Makes the kernel drop the attributes of a node, and its pages from `offset` on for `len`
    /// bytes, 0 for all of them. No page if `offset` is negative.
    pub(crate) fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> Result<()> {
        let body = NotifyInvalInodeOut { ino: node.0, off: offset, len };
        let whole = size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>();
        let header = OutHeader { len: whole as u32, error: abi::NOTIFY_INVAL_INODE, unique: 0 };
        let message = [header.as_bytes(), body.as_bytes()].concat();
        match rustix::io::write(&*self.0, &message) {
            // The kernel has dropped the node by itself.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::Io(Box::new(error))),
        }
    }
}
