//! An htree for an expected number of entries, which then splits nothing. Each transaction adds
//! some leaves; the last makes the first block the index root and the next ones index blocks.

use super::DirUpdate;
use crate::alloc::ALLOC_CREDITS;
use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::hash::{HashAlgorithm, HashVersion};
use dentree_ext4_format::htree::{fill_root, init_index, init_root};
use dentree_ext4_format::{Compat, InodeFlags, LogicalBlock, NewEntry, Problem};

/// A name of 20 bytes.
const TYPICAL_ENTRY: u64 = 28;

const STEP: u32 = 32;

/// Index blocks and leaves, in this order after the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    nodes: u32,
    leaves: u32,
}

impl Layout {
    /// Has at most two levels, with index blocks three quarters full.
    fn of(leaves: u64, block_size: usize, has_tail: bool, most_nodes: u32) -> Layout {
        let room = |head: usize| (block_size - head - if has_tail { 8 } else { 0 }) / 8 * 3 / 4;
        let (root, node) = (room(32) as u64, room(8) as u64);
        if leaves <= root {
            return Layout { nodes: 0, leaves: leaves as u32 };
        }
        let nodes = leaves.div_ceil(node).min(root).min(u64::from(most_nodes));
        Layout { nodes: nodes as u32, leaves: leaves.min(nodes * node) as u32 }
    }

    fn blocks(self) -> u32 {
        1 + self.nodes + self.leaves
    }

    /// A leaf's least hash, and its block. All ranges are equal.
    fn leaf(self, number: u32) -> (u32, LogicalBlock) {
        let hash = (u64::from(number) << 32) / u64::from(self.leaves);
        (u32::try_from(hash).unwrap_or(u32::MAX) & !1, LogicalBlock(1 + self.nodes + number))
    }

    /// The first leaf below an index block, or the number of leaves.
    fn first_below(self, node: u32) -> u32 {
        let first = u64::from(node) * u64::from(self.leaves) / u64::from(self.nodes);
        u32::try_from(first).unwrap_or(u32::MAX)
    }
}

impl Ext4 {
    /// Does nothing if the directory is large already or the entries fit into a block. After
    /// [`Error::NoSpace`] the directory may be longer, but is still empty.
    pub(crate) fn presize_directory(&self, dir: &Node, entries: u64) -> Result<()> {
        let snapshot = dir.snapshot();
        let _alone = self.writer()?.directories.tree_alone(snapshot.ino);
        self.check_empty(&snapshot)?;
        let version =
            HashVersion::from_disk(self.sb.default_hash_version, self.hash_sign()).filter(|version| {
                version.algorithm != HashAlgorithm::SipHash && self.sb.compat.has(Compat::DIR_INDEX)
            });
        if version.is_none() || snapshot.has(InodeFlags::ENCRYPT) {
            return Err(Error::Unsupported(
                "a directory needs the feature dir_index to be laid out".to_owned(),
            ));
        }
        let room = self.leaf_room() as u64 * 3 / 4;
        let leaves = entries.saturating_mul(TYPICAL_ENTRY).div_ceil(room);
        if leaves <= 1 {
            return Ok(());
        }
        if snapshot.has(InodeFlags::INLINE_DATA) {
            self.move_to_block(dir)?;
        }
        if self.dir_blocks(&dir.snapshot())? > 1 {
            return Ok(());
        }
        let most = self.writer()?.journal.most_credits().saturating_sub(4);
        let has_tail = self.sb.has_metadata_csum();
        let layout = Layout::of(leaves, self.sb.block_size.in_memory(), has_tail, most);
        let mut blocks = 1;
        while blocks < layout.blocks() {
            let more = STEP.min(layout.blocks() - blocks);
            self.retry_after_commit(|| self.add_leaves(dir, more))?;
            blocks += more;
        }
        // No more blocks are needed.
        self.writer()?.space.discard_prealloc(dir.snapshot().ino);
        self.index_leaves(dir, layout)
    }

    fn add_leaves(&self, dir: &Node, count: u32) -> Result<()> {
        let mut updated = DirUpdate::of(dir);
        let credits = 2 + count * (1 + ALLOC_CREDITS) + crate::map::write::STEP_CREDITS;
        let mut handle = self.start(credits)?;
        let fresh = self.append_blocks(&mut handle, &mut updated, count)?;
        let done = fresh
            .iter()
            .try_for_each(|&(_, at)| self.create_leaf(&mut handle, &updated, at, |_| Ok(())))
            .and_then(|()| self.publish_layout(&mut handle, dir, &mut updated));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    fn index_leaves(&self, dir: &Node, layout: Layout) -> Result<()> {
        let mut updated = DirUpdate::of(dir);
        updated.inode.flags = updated.inode.flags.with(InodeFlags::INDEX);
        let dots = [(&b"."[..], updated.ino), (b"..", self.parent_of(&updated)?)];
        let file_type = self.entry_type(dentree_vfs::FileType::Directory);
        let dots = dots.map(|(name, inode)| NewEntry { name, inode, file_type });
        let nodes: Vec<_> = (0..layout.nodes)
            .map(|node| (layout.leaf(layout.first_below(node)).0, LogicalBlock(1 + node)))
            .collect();
        let leaves: Vec<_> = (0..layout.leaves).map(|number| layout.leaf(number)).collect();
        let mut handle = self.start(layout.nodes + 3)?;
        let done = (|| {
            let (size, has_tail) = (self.sb.block_size, self.sb.has_metadata_csum());
            for (node, &(_, block)) in (0..).zip(&nodes) {
                let below = layout.first_below(node)..layout.first_below(node + 1);
                let below = leaves.get(below.start as usize..below.end as usize).unwrap_or_default();
                self.write_index(&mut handle, &updated, block, |bytes| {
                    init_index(bytes, size, has_tail, below)
                })?;
            }
            let (levels, all) = if nodes.is_empty() { (0, &leaves) } else { (1, &nodes) };
            self.write_index(&mut handle, &updated, LogicalBlock(0), |bytes| {
                init_root(bytes, size, has_tail, dots, self.sb.default_hash_version, LogicalBlock(1))?;
                fill_root(bytes, has_tail, levels, all)
            })?;
            self.publish_layout(&mut handle, dir, &mut updated)
        })();
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    fn write_index(
        &self,
        handle: &mut dentree_jbd2::Handle<'_>,
        dir: &Snapshot,
        block: LogicalBlock,
        write: impl FnOnce(&mut [u8]) -> Result<(), Problem>,
    ) -> Result<()> {
        let (at, place) = self.block_place(dir, block, Structure::DirectoryIndex(block))?;
        self.update(handle, at, place, |bytes| {
            write(bytes)?;
            self.update_index_sum(dir, bytes, block.0 == 0)
        })?
        .map_err(|problem| place.corrupt(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_has_its_share_of_the_hashes_and_one_place_in_the_index() {
        for leaves in [2, 300, 380, 20_000] {
            let layout = Layout::of(leaves, 4096, true, 500);
            assert_eq!(u64::from(layout.leaves), leaves);
            let all: Vec<_> = (0..layout.leaves).map(|number| layout.leaf(number)).collect();
            assert!(all.is_sorted() && all.iter().all(|(hash, _)| hash & 1 == 0));
            assert_eq!(all.last().map(|(_, block)| block.0 + 1), Some(layout.blocks()));
            if layout.nodes > 0 {
                assert_eq!(layout.first_below(layout.nodes), layout.leaves);
                assert!(
                    (0..layout.nodes)
                        .all(|node| layout.first_below(node + 1) - layout.first_below(node) <= 511)
                );
            }
        }
        let huge = Layout::of(u64::MAX / 2, 4096, true, 500);
        assert!(huge.nodes <= 381 && huge.leaves < 381 * 382);
    }
}
