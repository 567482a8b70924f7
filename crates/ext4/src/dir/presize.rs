//! Directories that are laid out for the entries to come: leaves and index in one piece, so that filling them splits nothing.
//!
//! The leaves come first, some of them a transaction: until the last one the directory has no index, and is one of many empty
//! blocks. That transaction makes the blocks behind the first one index blocks, and the first one the root over them.

use super::Draft;
use crate::alloc::TAKE_CREDITS;
use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::hash::{HashAlgorithm, HashVersion};
use dentree_ext4_format::htree::{fill_root, init_index, init_root};
use dentree_ext4_format::{Compat, InodeFlags, LogicalBlock, NewEntry, Problem};

/// Bytes that an entry takes: 8 and its name, which is thought to have about twenty.
const TYPICAL_ENTRY: u64 = 28;

/// Blocks that one transaction adds.
const STEP: u32 = 32;

/// The blocks of an index and its leaves: the root, index blocks (none, or those below the root), leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    nodes: u32,
    leaves: u32,
}

impl Layout {
    /// For so many leaves, with index blocks that are three quarters full. More than two levels hold come later, by splits.
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

    /// A leaf: the least hash of its names, and where it lies. All have the same share of the hashes.
    fn leaf(self, number: u32) -> (u32, LogicalBlock) {
        let hash = (u64::from(number) << 32) / u64::from(self.leaves);
        (u32::try_from(hash).unwrap_or(u32::MAX) & !1, LogicalBlock(1 + self.nodes + number))
    }

    /// The first leaf below an index block, or behind the last one.
    fn first_below(self, node: u32) -> u32 {
        let first = u64::from(node) * u64::from(self.leaves) / u64::from(self.nodes);
        u32::try_from(first).unwrap_or(u32::MAX)
    }
}

impl Ext4 {
    /// Lays an empty directory out for so many entries. One that is large already, or for so few that a block holds them, stays as it
    /// is.
    ///
    /// # Errors
    /// [`Error::NotEmpty`]; [`Error::Unsupported`] where the file system has no indexes; [`Error::NoSpace`], upon which it may have become
    /// longer, and is empty still.
    pub(crate) fn lay_out_for(&self, dir: &Node, entries: u64) -> Result<()> {
        let snapshot = dir.snapshot();
        let _alone = self.writer()?.directories.tree_alone(snapshot.ino);
        self.check_empty(&snapshot)?;
        let version =
            HashVersion::from_disk(self.sb.default_hash_version, self.hash_sign()).filter(|version| {
                version.algorithm != HashAlgorithm::SipHash && self.sb.compat.has(Compat::DIR_INDEX)
            });
        if version.is_none() || snapshot.has(InodeFlags::ENCRYPT) {
            return Err(Error::Unsupported(
                "without the feature dir_index a directory cannot be laid out".to_owned(),
            ));
        }
        let room = self.leaf_room() as u64 * 3 / 4;
        let leaves = entries.saturating_mul(TYPICAL_ENTRY).div_ceil(room);
        if leaves <= 1 {
            return Ok(());
        }
        if snapshot.has(InodeFlags::INLINE_DATA) {
            self.move_out_of_inode(dir)?;
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
            self.with_space(|| self.add_leaves(dir, more))?;
            blocks += more;
        }
        // It has what it is to have.
        self.writer()?.space.give_up_room(dir.snapshot().ino);
        self.index_leaves(dir, layout)
    }

    /// Gives a directory without an index so many empty leaves more.
    fn add_leaves(&self, dir: &Node, count: u32) -> Result<()> {
        let mut draft = Draft::of(dir);
        let credits = 2 + count * (1 + TAKE_CREDITS) + crate::map::write::STEP_CREDITS;
        let mut handle = self.start(credits)?;
        let fresh = self.append_blocks(&mut handle, &mut draft, count)?;
        let done = fresh
            .iter()
            .try_for_each(|&(_, at)| self.create_leaf(&mut handle, &draft, at, |_| Ok(())))
            .and_then(|()| self.publish_layout(&mut handle, dir, &mut draft));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Makes the first blocks of a directory, all of whose blocks are empty, an index over the others.
    fn index_leaves(&self, dir: &Node, layout: Layout) -> Result<()> {
        let mut draft = Draft::of(dir);
        draft.inode.flags = draft.inode.flags.with(InodeFlags::INDEX);
        let dots = [(&b"."[..], draft.ino), (b"..", self.parent_of(&draft)?)];
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
                self.write_index(&mut handle, &draft, block, |bytes| {
                    init_index(bytes, size, has_tail, below)
                })?;
            }
            let (levels, all) = if nodes.is_empty() { (0, &leaves) } else { (1, &nodes) };
            self.write_index(&mut handle, &draft, LogicalBlock(0), |bytes| {
                init_root(bytes, size, has_tail, dots, self.sb.default_hash_version, LogicalBlock(1))?;
                fill_root(bytes, has_tail, levels, all)
            })?;
            self.publish_layout(&mut handle, dir, &mut draft)
        })();
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Makes a block of a directory one of its index.
    fn write_index(
        &self,
        handle: &mut dentree_jbd2::Handle<'_>,
        dir: &Snapshot,
        block: LogicalBlock,
        write: impl FnOnce(&mut [u8]) -> Result<(), Problem>,
    ) -> Result<()> {
        let (at, place) = self.place_of(dir, block, Structure::DirectoryIndex(block))?;
        self.update(handle, at, place, |bytes| {
            write(bytes)?;
            self.seal_index(dir, bytes, block.0 == 0)
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
