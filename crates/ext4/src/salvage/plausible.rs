//! Whether an inode can be one, where no checksum says so.

use crate::Ext4;
use crate::inode::Snapshot;
use dentree_ext4_format::{BlockNumber, ExtentNode, InodeFlags};
use dentree_vfs::FileType;

/// Whether the fields of an inode fit each other.
pub(super) fn is_plausible(fs: &Ext4, node: &Snapshot) -> bool {
    let (sb, inode) = (&fs.sb, &node.inode);
    let bytes = sb.blocks_count << sb.block_size.log2();
    if inode.links > 65_000 || inode.sectors > bytes >> 9 || inode.flags.0 & !InodeFlags::KNOWN.0 != 0 {
        return false;
    }
    if node.has(InodeFlags::INLINE_DATA) {
        return inode.size <= u64::from(sb.inode_size);
    }
    match node.kind {
        FileType::Regular | FileType::Directory if node.has(InodeFlags::EXTENTS) => {
            ExtentNode::parse_root(&inode.block).is_ok()
        }
        FileType::Regular | FileType::Directory => inode
            .block
            .as_chunks()
            .0
            .iter()
            .map(|pointer| BlockNumber(u64::from(u32::from_le_bytes(*pointer))))
            .all(|block| block.0 == 0 || sb.check_blocks("block pointer", block, 1).is_ok()),
        FileType::Symlink => (1..=u64::from(sb.block_size.bytes())).contains(&inode.size),
        _ => inode.size == 0,
    }
}
