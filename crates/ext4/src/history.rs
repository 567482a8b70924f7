//! Past states in the journal.

use crate::layout::{FileExtent, Part};
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, Inode, InodeNumber};
use dentree_jbd2::{History, Tid};
use std::ops::ControlFlow;

/// An inode as a transaction left it.
#[derive(Clone, Debug)]
pub struct InodeVersion {
    /// The transaction's number.
    pub tid: Tid,
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Number of links.
    pub links: u16,
    /// Length in bytes.
    pub size: u64,
    /// Last change of its content, in seconds since 1970.
    pub modified: i64,
    /// Its extents, as far as the tree is readable now.
    pub extents: Vec<FileExtent>,
}

impl Ext4 {
    /// The transactions in the log, old ones too; `None` without an internal journal.
    ///
    /// # Errors
    /// Those of opening and reading the journal.
    pub fn history(&self) -> Result<Option<History>> {
        if self.sb.journal_inum.0 == 0 {
            return Ok(None);
        }
        let Some(location) = self.journal_location()? else { return Ok(None) };
        Ok(Some(History::read(self.device.clone(), &location)?))
    }

    /// The versions of an inode in the log, oldest first. A transaction that changed another inode
    /// of the block has a copy, too.
    ///
    /// # Errors
    /// Those of reading its group's descriptor and the log.
    pub fn inode_versions(&self, history: &History, ino: InodeNumber) -> Result<Vec<InodeVersion>> {
        let place = Structure::Inode.of(ino);
        self.sb.check_inode("the inode number", ino).map_err(|problem| place.corrupt(problem))?;
        let (BlockNumber(block), within) = self.find_inode(ino)?;
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for transaction in history.transactions() {
            for copy in transaction.copies.iter().filter(|copy| copy.block == block) {
                let Some(bytes) = history.content(copy)? else { continue };
                let Some(bytes) = bytes.chunks_exact(size).nth(within) else { continue };
                let Some(links) = Inode::head(bytes).map(|head| head.links) else { continue };
                let Ok(node) = self.parse_inode(ino, bytes, place) else { continue };
                let mut extents = Vec::new();
                let mut each = |part| {
                    if let Part::Content(extent) = part {
                        extents.push(extent);
                    }
                    ControlFlow::Continue(())
                };
                self.walk_map(&node, &mut each, &mut |_| {});
                let (mode, size, modified) = (node.inode.mode, node.inode.size, node.inode.mtime.seconds);
                found.push(InodeVersion { tid: transaction.tid, mode, links, size, modified, extents });
            }
        }
        Ok(found)
    }
}
