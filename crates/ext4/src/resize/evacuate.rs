//! Moving blocks out of the end of a file system.
//!
//! Each step is a transaction: new blocks, the copy, the pointer to them, the old blocks freed.
//! Content is written before the commit. No checksum covers a block's number, but those of
//! attribute blocks and of the orphan file.

use super::reserved;
use crate::alloc::{ALLOC_CREDITS, ReservationClass};
use crate::inode::Snapshot;
use crate::layout::{FileExtent, Part};
use crate::map::FILE_END;
use crate::map::write::{STEP_CREDITS, Target};
use crate::{Clock, Ext4, Node, Options, Place, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockNumber, ExtentIndex, ExtentNode, GroupNumber, InodeFlags, InodeNumber, InodeTime,
    set_extent_checksum, write_extent_index, write_orphan_tail,
};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Blocks that moving a node of a map changes: bitmap and descriptor of old and new block, the new
/// block, the node above, the inode.
const NODE_CREDITS: u32 = 2 * ALLOC_CREDITS + 3;

/// Bytes of content that are copied at once.
const COPY_BYTES: u64 = 4 << 20;

/// Most blocks of metadata that are moved at once.
const MOST_METADATA: u64 = 16;

/// Opens a file system for moving what lies from block `end` on.
pub(super) fn session(device: &Arc<dyn BlockDevice>, end: u64, now: InodeTime) -> Result<Ext4> {
    let options = Options { writable: true, clock: Clock::Fixed(now), ..Options::default() };
    let fs = Ext4::open(device.clone(), options)?;
    fs.writer()?.space.set_end(end);
    Ok(fs)
}

/// The first pointer of an inode to a pointer block.
const FIRST_INDIRECT: usize = 12;
const POINTER_LEN: usize = 4;

/// The node of a map, or the inode, that has a pointer.
#[derive(Clone, Copy)]
enum Above {
    Inode,
    Node(BlockNumber),
}

impl Ext4 {
    /// Moves what an inode has from block `end` on: attributes, the nodes of its map, its content.
    pub(super) fn move_blocks(&self, ino: InodeNumber, end: u64) -> Result<()> {
        let node = Node::new(self.read_orphan(ino)?, None);
        if node.with_snapshot(|node| node.inode.xattr_block.is_some_and(|block| block.0 >= end)) {
            self.move_attribute_block(&node)?;
        }
        if node.with_snapshot(Snapshot::maps_nothing) {
            return Ok(());
        }
        if node.with_snapshot(|node| node.has(InodeFlags::EXTENTS)) {
            self.move_extent_nodes(&node, Above::Inode, 0, end)?;
        } else {
            self.move_pointer_blocks(&node, end)?;
        }
        // The other blocks of the resize inode have fixed places.
        if ino == reserved::RESIZE { Ok(()) } else { self.move_content(&node, end) }
    }

    /// Moves the nodes of an extent tree below one of `depth`; the root's depth is known.
    fn move_extent_nodes(&self, node: &Node, above: Above, depth: u16, end: u64) -> Result<()> {
        let snapshot = node.snapshot();
        let place = snapshot.place(Structure::ExtentNode);
        let (depth, mut indices) = match above {
            Above::Inode => {
                let root = ExtentNode::parse_root(&snapshot.inode.block).map_err(|p| place.corrupt(p))?;
                (root.depth(), root.indices().collect::<Vec<_>>())
            }
            Above::Node(at) => {
                let bytes = self.metadata(at, place)?;
                let parsed = ExtentNode::parse(&bytes, depth, 0..FILE_END);
                (depth, parsed.map_err(|problem| place.at(at).corrupt(problem))?.indices().collect())
            }
        };
        drop(snapshot);
        for slot in 0..indices.len() {
            let Some(&ExtentIndex { child, logical }) = indices.get(slot) else { break };
            let mut child = child;
            if child.0 >= end {
                let mut handle = self.start(NODE_CREDITS)?;
                let new =
                    self.copy_metadata(&mut handle, child, place.at(child), self.goal_below(node, end))?;
                indices.splice(slot..=slot, [ExtentIndex { child: new, logical }]);
                let done = self
                    .write_indices(&mut handle, node, above, (depth, &indices))
                    .and_then(|()| self.free_blocks(&mut handle, child, 1, true));
                self.all_or_abort(done)?;
                handle.stop();
                child = new;
            }
            if depth > 1 {
                self.move_extent_nodes(node, Above::Node(child), depth - 1, end)?;
            }
        }
        Ok(())
    }

    fn write_indices(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        above: Above,
        (depth, indices): (u16, &[ExtentIndex]),
    ) -> Result<()> {
        match above {
            Above::Inode => self.change_inode(handle, node, |snapshot| {
                write_extent_index(&mut snapshot.inode.block, depth, indices);
            }),
            Above::Node(at) => {
                let snapshot = node.snapshot();
                self.update(handle, at, snapshot.place(Structure::ExtentNode), |bytes| {
                    write_extent_index(bytes, depth, indices);
                    if self.sb.has_metadata_csum() {
                        set_extent_checksum(bytes, snapshot.inode.checksum_seed);
                    }
                })
            }
        }
    }

    /// Moves the pointer blocks of a map; of the resize inode the first one only.
    fn move_pointer_blocks(&self, node: &Node, end: u64) -> Result<()> {
        for (levels, root) in (0..).zip(FIRST_INDIRECT..FIRST_INDIRECT + 3) {
            let pointer = node.with_snapshot(|node| pointer_at(&node.inode.block, root));
            if pointer != 0 {
                let levels = if node.ino() == reserved::RESIZE { 0 } else { levels };
                self.move_pointer_block(node, (Above::Inode, root), BlockNumber(pointer), levels, end)?;
            }
        }
        Ok(())
    }

    /// Moves a pointer block, and those `levels` below it.
    fn move_pointer_block(
        &self,
        node: &Node,
        (above, slot): (Above, usize),
        block: BlockNumber,
        levels: u32,
        end: u64,
    ) -> Result<()> {
        let place = Structure::IndirectBlock.of(node.ino()).at(block);
        let mut at = block;
        if block.0 >= end {
            let mut handle = self.start(NODE_CREDITS)?;
            at = self.copy_metadata(&mut handle, block, place, self.goal_below(node, end))?;
            let done = match above {
                Above::Inode => self.change_inode(&mut handle, node, |snapshot| {
                    set_pointer(&mut snapshot.inode.block, slot, at);
                }),
                Above::Node(above) => {
                    self.update(&mut handle, above, place, |bytes| set_pointer(bytes, slot, at))
                }
            };
            let done = done.and_then(|()| self.free_blocks(&mut handle, block, 1, true));
            self.all_or_abort(done)?;
            handle.stop();
        }
        if levels == 0 {
            return Ok(());
        }
        let bytes = self.metadata(at, place)?.to_vec();
        for slot in 0..bytes.len() / POINTER_LEN {
            let pointer = pointer_at(&bytes, slot);
            if pointer != 0 {
                let below = (Above::Node(at), slot);
                self.move_pointer_block(node, below, BlockNumber(pointer), levels - 1, end)?;
            }
        }
        Ok(())
    }

    /// Moves content: files by copying before the commit, others through the journal.
    fn move_content(&self, node: &Node, end: u64) -> Result<()> {
        let (mut runs, mut failed) = (Vec::new(), None);
        let mut each = |part: Part| {
            if let Part::Content(extent) = part {
                let skip = end.saturating_sub(extent.start.0).min(extent.len);
                let (logical, start) = (extent.logical + skip, BlockNumber(extent.start.0 + skip));
                runs.push(FileExtent { logical, start, len: extent.len - skip, ..extent });
            }
            ControlFlow::Continue(())
        };
        self.walk_map(&node.snapshot(), &mut each, &mut |error| failed = failed.take().or(Some(error)));
        if let Some(error) = failed {
            return Err(error);
        }
        join(&mut runs);
        let mut goal = self.goal_below(node, end);
        for mut run in runs {
            while run.len > 0 {
                let (to, count) = self.move_run(node, &run, goal)?;
                goal = BlockNumber(to.0 + count);
                (run.logical, run.len) = (run.logical + count, run.len - count);
                run.start.0 += count;
            }
        }
        Ok(())
    }

    /// Moves a first part of a run of content. Returns where it is then, and its length.
    fn move_run(&self, node: &Node, run: &FileExtent, goal: BlockNumber) -> Result<(BlockNumber, u64)> {
        let is_file = node.with_snapshot(|node| node.kind == FileType::Regular);
        let is_orphan_file = node.ino().0 == self.sb.orphan_file_inum;
        let is_copied = is_file && !is_orphan_file;
        let most = if is_copied { COPY_BYTES >> self.sb.block_size.log2() } else { MOST_METADATA };
        let want = u32::try_from(run.len.min(most)).unwrap_or(1);
        let journaled = if is_copied { 0 } else { want };
        let mut handle = self.start(2 * ALLOC_CREDITS + STEP_CREDITS + 1 + journaled)?;
        let (to, count) = self.allocate_blocks(&mut handle, goal, want, ReservationClass::Guaranteed)?;
        let copied = if is_copied {
            self.copy_content(node, run, to, count)
        } else {
            self.copy_blocks(&mut handle, node, run.start, to, count)
        };
        if is_orphan_file {
            handle.forget(run.start.0, u64::from(count));
        }
        let target = Target { start: to, unwritten: run.is_unwritten };
        let first = u32::try_from(run.logical).unwrap_or(u32::MAX);
        let mapped = copied.and_then(|()| self.map_run(&mut handle, node, first, count, target, true));
        let done = *mapped.as_ref().unwrap_or(&0);
        if done < count {
            let (rest, left) = (BlockNumber(to.0 + u64::from(done)), u64::from(count - done));
            self.free_blocks(&mut handle, rest, left, false)?;
        }
        handle.stop();
        mapped.map(|done| (to, u64::from(done)))
    }

    fn copy_content(&self, node: &Node, run: &FileExtent, to: BlockNumber, count: u32) -> Result<()> {
        if run.is_unwritten {
            return Ok(());
        }
        let (log2, place) = (self.sb.block_size.log2(), Structure::Content.of(node.ino()));
        let bytes = usize::try_from(u64::from(count) << log2).unwrap_or(0);
        let mut bytes = vec![0; bytes];
        let from = run.start;
        self.device.read_at(from.0 << log2, &mut bytes).map_err(|source| place.at(from).io(source))?;
        self.device.write_at(to.0 << log2, &bytes).map_err(|source| place.at(to).io_write(source))
    }

    /// Copies blocks that change through the journal.
    fn copy_blocks(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        from: BlockNumber,
        to: BlockNumber,
        count: u32,
    ) -> Result<()> {
        let snapshot = node.snapshot();
        let seed = self.sb.has_metadata_csum().then_some(snapshot.inode.checksum_seed);
        let is_orphan_file = snapshot.ino.0 == self.sb.orphan_file_inum;
        for n in 0..u64::from(count) {
            let (from, to) = (BlockNumber(from.0 + n), BlockNumber(to.0 + n));
            let place = snapshot.place(Structure::Content);
            let bytes = self.metadata(from, place)?.to_vec();
            let create = |new: &mut [u8]| {
                new.copy_from_slice(&bytes);
                if is_orphan_file {
                    write_orphan_tail(new, to, seed);
                }
            };
            handle.create(to.0, create).map_err(|source| place.at(to).io(source))?;
        }
        Ok(())
    }

    /// Allocates a block for a copy of a block of metadata.
    fn copy_metadata(
        &self,
        handle: &mut Handle<'_>,
        from: BlockNumber,
        place: Place,
        goal: BlockNumber,
    ) -> Result<BlockNumber> {
        let bytes = self.metadata(from, place)?.to_vec();
        let (to, _) = self.allocate_blocks(handle, goal, 1, ReservationClass::Guaranteed)?;
        let created = handle.create(to.0, |new| new.copy_from_slice(&bytes));
        self.all_or_abort(created.map_err(|source| place.at(to).io(source)))?;
        Ok(to)
    }

    /// The goal of an inode's first block, if that stays.
    fn goal_below(&self, node: &Node, end: u64) -> BlockNumber {
        let goal = self.goal_of(node.ino());
        if goal.0 < end { goal } else { self.sb.group_start(GroupNumber(0)) }
    }
}

/// Drops empty runs, and joins those that continue each other.
fn join(runs: &mut Vec<FileExtent>) {
    runs.retain(|run| run.len > 0);
    runs.dedup_by(|next, last| {
        let continues = last.logical + last.len == next.logical
            && last.start.0 + last.len == next.start.0
            && last.is_unwritten == next.is_unwritten;
        if continues {
            last.len += next.len;
        }
        continues
    });
}

fn pointer_at(bytes: &[u8], slot: usize) -> u64 {
    let word = bytes.as_chunks::<POINTER_LEN>().0.get(slot).copied();
    u64::from(word.map_or(0, u32::from_le_bytes))
}

fn set_pointer(bytes: &mut [u8], slot: usize, block: BlockNumber) {
    if let Some(place) = bytes.as_chunks_mut::<POINTER_LEN>().0.get_mut(slot) {
        // Files with such maps use only blocks below 2^32.
        *place = u32::try_from(block.0).unwrap_or(0).to_le_bytes();
    }
}
