//! Symbolic links.

use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::{Incompat, InodeFlags, LogicalBlock, Problem};
use dentree_jbd2::Handle;

const FAST_SYMLINK_MAX: usize = 59;

impl Ext4 {
    pub(crate) fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        self.target(&node.snapshot())
    }

    pub(crate) fn target(&self, node: &Snapshot) -> Result<Vec<u8>> {
        let max = u64::from(self.sb.block_size.bytes());
        let corrupt = |problem| node.place(Structure::SymlinkTarget).corrupt(problem);
        Problem::check_range("i_size", node.inode.size, 1, max).map_err(corrupt)?;
        let len = usize::try_from(node.inode.size).unwrap_or(usize::MAX);
        let target = match node.inode.block.get(..len).filter(|_| self.is_fast_symlink(node)) {
            Some(target) => target.to_vec(),
            // A metadata block: the cache may be newer than the device.
            None if !node.has(InodeFlags::INLINE_DATA) => self.read_symlink_block(node, len)?,
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

    /// Only attributes have blocks. `ea_inode` counts those of attribute inodes too; there the
    /// kernel goes by the size.
    fn is_fast_symlink(&self, node: &Snapshot) -> bool {
        if self.sb.incompat.has(Incompat::EA_INODE) {
            return !node.has(InodeFlags::INLINE_DATA) && node.inode.size <= FAST_SYMLINK_MAX as u64;
        }
        let cluster_sectors = 1 << (self.sb.block_size.log2() + self.sb.log_cluster_ratio - 9);
        let xattrs = if node.inode.xattr_block.is_some() { cluster_sectors } else { 0 };
        !node.has(InodeFlags::INLINE_DATA) && node.inode.sectors == xattrs
    }

    fn read_symlink_block(&self, link: &Snapshot, len: usize) -> Result<Vec<u8>> {
        let (at, place) = self.block_place(link, LogicalBlock(0), Structure::SymlinkTarget)?;
        Ok(self.metadata(at, place)?.get(..len).unwrap_or_default().to_vec())
    }

    pub(crate) fn init_symlink(
        &self,
        handle: &mut Handle<'_>,
        made: &mut Snapshot,
        target: &[u8],
    ) -> Result<()> {
        if target.is_empty() || target.contains(&0) || target.len() >= self.sb.block_size.in_memory() {
            return Err(Error::InvalidName);
        }
        if target.len() <= FAST_SYMLINK_MAX {
            made.inode.block.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
        } else {
            self.init_map(made);
            let fresh = self.append_blocks(handle, made, 1)?;
            let place = made.place(Structure::SymlinkTarget);
            let written = fresh.iter().try_for_each(|&(_, at)| {
                let write =
                    |bytes: &mut [u8]| bytes.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
                handle.create(at.0, write).map_err(|source| place.at(at).io(source))
            });
            self.all_or_abort(written)?;
        }
        made.inode.size = u64::try_from(target.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}
