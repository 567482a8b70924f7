//! New inode numbers in directories, as a file system becomes smaller.

use crate::inode::Snapshot;
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, BlockRole, EntriesMut, InodeFlags, InodeNumber, LogicalBlock, Problem, block_role, htree,
    set_leaf_checksum,
};
use dentree_jbd2::Handle;

impl Ext4 {
    /// Points the entry at `position` of a directory to another number of its inode.
    pub(crate) fn renumber_entry(
        &self,
        handle: &mut Handle<'_>,
        dir: &Node,
        position: u64,
        ino: InodeNumber,
    ) -> Result<()> {
        let mut updated = dir.with_snapshot(Snapshot::clone);
        if updated.has(InodeFlags::INLINE_DATA) {
            self.change_inline_entry(&mut updated, position, |area, start| area.renumber(start, ino))?;
            return self.change_inode(handle, dir, |snapshot| {
                snapshot.inode.block = updated.inode.block;
                snapshot.tail = updated.tail;
            });
        }
        let Some((block, start)) = self.sb.block_size.split(position) else {
            let place = updated.place(Structure::DirectoryEntry);
            return Err(place.corrupt(Problem::Missing { what: "its block" }));
        };
        let (_, leaf) = self.block_place(&updated, block, Structure::DirectoryLeaf(block))?;
        self.change_leaf(handle, &updated, leaf, |area| area.renumber(start, ino))
    }

    /// The blocks of a directory that its own number changes: with checksums all, else the first.
    pub(crate) fn blocks_with_number(&self, dir: &Snapshot) -> Result<Vec<BlockNumber>> {
        if dir.has(InodeFlags::INLINE_DATA) {
            return Ok(Vec::new());
        }
        let blocks = if self.sb.has_metadata_csum() { self.dir_blocks(dir)? } else { 1 };
        let place = |block| self.block_place(dir, LogicalBlock(block), Structure::Content);
        (0..blocks).map(|block| Ok(place(block)?.0)).collect()
    }

    /// Writes `.` and checksums of a directory that got a new number.
    pub(crate) fn renumber_blocks(
        &self,
        handle: &mut Handle<'_>,
        dir: &Snapshot,
        blocks: &[BlockNumber],
    ) -> Result<()> {
        let is_indexed = self.is_indexed(dir);
        for (logical, &at) in (0..).map(LogicalBlock).zip(blocks) {
            let place = dir.place(Structure::DirectoryLeaf(logical)).at(at);
            let change = |bytes: &mut [u8]| {
                if logical.0 == 0 {
                    // An htree root begins like a leaf, too.
                    let mut area = EntriesMut::new(bytes, self.sb.block_size, self.sb.inodes_count);
                    area.renumber(0, dir.ino)?;
                }
                if !self.sb.has_metadata_csum() {
                    return Ok(());
                }
                match block_role(bytes, logical, is_indexed, self.sb.block_size) {
                    BlockRole::Leaf => set_leaf_checksum(bytes, dir.inode.checksum_seed),
                    BlockRole::Index => {
                        htree::set_index_checksum(bytes, logical.0 == 0, dir.inode.checksum_seed)?;
                    }
                }
                Ok(())
            };
            self.update(handle, at, place, change)?.map_err(|problem| place.corrupt(problem))?;
        }
        Ok(())
    }
}
