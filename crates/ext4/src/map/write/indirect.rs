//! Changes of indirect blocks (ext2, ext3).

use super::{Mapped, STEP_EXTENTS};
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, Problem};
use dentree_jbd2::Handle;
use std::ops::Range;

/// Direct pointers; those to trees of one, two and three levels follow.
const DIRECT: u64 = 12;
const POINTER_LEN: usize = 4;

struct Path {
    /// Index in the inode.
    root: usize,
    /// Slots in the indirect blocks, down to the pointer.
    slots: Vec<usize>,
    /// Existing indirect blocks, from the top.
    blocks: Vec<BlockNumber>,
}

impl Path {
    fn nodes(&self) -> impl Iterator<Item = (BlockNumber, u64)> {
        self.blocks.iter().map(|&block| (block, 1))
    }
}

impl Ext4 {
    pub(super) fn remap_pointers(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        range: Range<u64>,
        target: Option<BlockNumber>,
    ) -> Result<u64> {
        let mut path = self.pointer_path(file, range.start)?;
        let last = path.slots.last().copied().unwrap_or(path.root);
        let room = if path.slots.is_empty() { 12 } else { self.sb.block_size.in_memory() / POINTER_LEN };
        let here = u64::try_from(room - last).unwrap_or(1);
        let end = range.end.min(range.start + here);
        let missing = path.slots.len() - path.blocks.len();
        if target.is_none() && missing > 0 {
            self.check_distinct(path.nodes())?;
            self.free_empty_nodes(handle, file, path)?;
            return Ok(end);
        }
        let goal = path.blocks.last().copied().unwrap_or_else(|| self.goal_of(file.ino));
        let new_blocks = self.allocate_tree_blocks(handle, file, goal, missing)?;
        let linked = self.create_path(handle, file, &mut path, &new_blocks);
        self.all_or_abort(linked)?;
        // A bound as for extents: each run may be in another group.
        let (end, removed) = self.set_pointers(handle, file, &path, range.start..end, target)?;
        for (start, count) in removed {
            self.free_mapped(handle, file, start, count)?;
        }
        if target.is_none() {
            self.free_empty_nodes(handle, file, path)?;
        }
        Ok(end)
    }

    fn pointer_path(&self, file: &Mapped<'_>, block: u64) -> Result<Path> {
        let log_room = self.sb.block_size.log2() - 2;
        let (root, levels, mut index) = pointer_root(block, log_room).ok_or_else(|| {
            let max = u64::from(u32::MAX);
            Structure::IndirectBlock.of(file.ino).corrupt(Problem::Range {
                field: "the file block",
                value: block,
                min: 0,
                max,
            })
        })?;
        let mut path = Path { root, slots: Vec::new(), blocks: Vec::new() };
        for below in (0..levels).rev() {
            path.slots.push(usize::try_from(index >> (below * log_room)).unwrap_or(usize::MAX));
            index &= (1 << (below * log_room)) - 1;
        }
        let mut pointer = read_pointer(&file.inode.block, root);
        for &slot in &path.slots {
            if pointer == 0 {
                break;
            }
            let child = BlockNumber(u64::from(pointer));
            let place = Structure::IndirectBlock.of(file.ino).at(child);
            self.sb.check_blocks("block pointer", child, 1).map_err(|problem| place.corrupt(problem))?;
            pointer = read_pointer(&self.metadata(child, place)?, slot);
            path.blocks.push(child);
        }
        Ok(path)
    }

    fn create_path(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        path: &mut Path,
        new_blocks: &[BlockNumber],
    ) -> Result<()> {
        for &block in new_blocks {
            let create = handle.create(block.0, |_| ());
            create.map_err(|source| Structure::IndirectBlock.at(block).io(source))?;
            self.write_pointers(handle, file, path, path.blocks.len(), 1, Some(block))?;
            path.blocks.push(block);
        }
        Ok(())
    }

    /// Sets `count` pointers at a level of the path, from its slot on: to consecutive blocks from
    /// `target`, or 0.
    fn write_pointers(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        path: &Path,
        level: usize,
        count: usize,
        target: Option<BlockNumber>,
    ) -> Result<()> {
        let write = |bytes: &mut [u8], slot: usize| {
            let places = bytes.chunks_exact_mut(POINTER_LEN).skip(slot).take(count);
            for (n, place) in (0..).zip(places) {
                // Files with indirect blocks use blocks below 2^32.
                let value = target.map_or(0, |target| u32::try_from(target.0 + n).unwrap_or(0));
                place.copy_from_slice(&value.to_le_bytes());
            }
        };
        let Some(above) = level.checked_sub(1) else {
            write(&mut file.inode.block, path.root);
            return Ok(());
        };
        let (Some(&block), Some(&slot)) = (path.blocks.get(above), path.slots.get(above)) else {
            return Ok(());
        };
        let place = Structure::IndirectBlock.of(file.ino).at(block);
        handle.update(block.0, |bytes| write(bytes, slot)).map_err(|source| place.io(source))
    }

    /// Sets the pointers of `range`, all in the path's last block, until that frees too many runs.
    /// Returns where it stopped, and the freed runs.
    fn set_pointers(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        path: &Path,
        range: Range<u64>,
        target: Option<BlockNumber>,
    ) -> Result<(u64, Vec<(BlockNumber, u64)>)> {
        let first = path.slots.last().copied().unwrap_or(path.root);
        let mut removed: Vec<(BlockNumber, u64)> = Vec::new();
        let mut count = 0;
        let mut visit = |bytes: &[u8]| {
            for block in range.clone() {
                let old = u64::from(read_pointer(bytes, first + count));
                let runs = removed.len();
                match removed.last_mut() {
                    _ if old == 0 => {}
                    Some((start, len)) if start.0 + *len == old => *len += 1,
                    _ if runs == STEP_EXTENTS => return block,
                    _ => removed.push((BlockNumber(old), 1)),
                }
                count += 1;
            }
            range.end
        };
        let end = match path.blocks.last() {
            None => visit(&file.inode.block),
            Some(&block) => visit(&self.metadata(block, Structure::IndirectBlock.of(file.ino).at(block))?),
        };
        if target.is_none() {
            self.check_distinct(removed.iter().copied().chain(path.nodes()))?;
        }
        self.write_pointers(handle, file, path, path.slots.len(), count, target)?;
        Ok((end, removed))
    }

    /// Frees indirect blocks that are all zeros, from the last up.
    fn free_empty_nodes(&self, handle: &mut Handle<'_>, file: &mut Mapped<'_>, mut path: Path) -> Result<()> {
        while let Some(&block) = path.blocks.last() {
            let place = Structure::IndirectBlock.of(file.ino).at(block);
            if self.metadata(block, place)?.iter().any(|&byte| byte != 0) {
                break;
            }
            path.blocks.pop();
            self.write_pointers(handle, file, &path, path.blocks.len(), 1, None)?;
            self.free_tree_blocks(handle, file, &[block])?;
        }
        Ok(())
    }
}

/// The pointer's index in the inode, the levels below it, and the block's index in that tree.
fn pointer_root(block: u64, log_room: u32) -> Option<(usize, u32, u64)> {
    if block < DIRECT {
        return Some((usize::try_from(block).ok()?, 0, 0));
    }
    let mut index = block - DIRECT;
    for (root, levels) in [(12, 1), (13, 2), (14, 3)] {
        let span = 1 << (log_room * levels);
        if index < span {
            return Some((root, levels, index));
        }
        index -= span;
    }
    None
}

fn read_pointer(bytes: &[u8], slot: usize) -> u32 {
    bytes.as_chunks().0.get(slot).copied().map_or(0, u32::from_le_bytes)
}
