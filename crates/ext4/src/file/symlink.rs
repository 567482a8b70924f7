//! Targets of symbolic links.

use crate::inode::Snapshot;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{InodeFlags, Problem};

impl Ext4 {
    /// The target: in the inode where it takes no blocks (a fast link), else as content.
    pub(crate) fn link_target(&self, node: &Snapshot) -> Result<Vec<u8>> {
        let max = u64::from(self.sb.block_size.bytes());
        let corrupt = |problem| node.place(Structure::SymlinkTarget).corrupt(problem);
        Problem::check_range("i_size", node.inode.size, 1, max).map_err(corrupt)?;
        let len = usize::try_from(node.inode.size).unwrap_or(usize::MAX);
        let target = match node.inode.block.get(..len).filter(|_| self.is_fast_link(node)) {
            Some(target) => target.to_vec(),
            // Journalled, and so newer in the cache than on the device.
            None if !node.has(InodeFlags::INLINE_DATA) => self.read_link_block(node, len)?,
            None => {
                let mut target = vec![0; len];
                self.read_content(node, 0, &mut target)?;
                target
            }
        };
        if target.contains(&0) {
            return Err(corrupt(Problem::Missing { what: "a target without NUL" }));
        }
        Ok(target)
    }

    /// Whether the target stands in `i_block`: no space is allocated but for extended attributes.
    fn is_fast_link(&self, node: &Snapshot) -> bool {
        let cluster_sectors = 1 << (self.sb.block_size.log2() + self.sb.log_cluster_ratio - 9);
        let xattrs = if node.inode.xattr_block.is_some() { cluster_sectors } else { 0 };
        !node.has(InodeFlags::INLINE_DATA) && node.inode.sectors == xattrs
    }
}
