//! Block pointers of ext2 and ext3: twelve direct ones, then trees of one, two and three levels.

use crate::map::{Mapping, Run};
use crate::{Ext4, Result, Snapshot, Structure};
use dentree_ext4_format::{BlockNumber, LogicalBlock};

const DIRECT: usize = 12;
const POINTER_LEN: usize = 4;

impl Ext4 {
    /// Follows the pointers to a block of the file.
    pub(crate) fn map_pointers(&self, node: &Snapshot, block: LogicalBlock) -> Result<Run> {
        let (direct, roots) = node.inode.block.split_at(DIRECT * POINTER_LEN);
        let mut index = u64::from(block.0);
        if let Some(pointers) = pointers_from(direct, index) {
            return self.run_of_pointers(node, pointers);
        }
        index -= 12;
        for (levels, root) in (1..).zip(pointers(roots)) {
            let span = self.span(levels);
            if index < span {
                return self.descend(node, root, levels, index);
            }
            index -= span;
        }
        Ok(Run { mapping: Mapping::Hole, len: (1 << 32) - u64::from(block.0) })
    }

    /// How many file blocks a tree of so many levels maps.
    fn span(&self, levels: u32) -> u64 {
        1 << ((self.sb.block_size.log2() - 2) * levels)
    }

    /// Maps block `index` of those that the tree of `levels` levels under `root` maps.
    fn descend(&self, node: &Snapshot, root: u32, levels: u32, mut index: u64) -> Result<Run> {
        let mut pointer = root;
        for below in (0..levels).rev() {
            if pointer == 0 {
                return Ok(Run { mapping: Mapping::Hole, len: self.span(below + 1) - index });
            }
            let child = BlockNumber(u64::from(pointer));
            let place = node.place(Structure::IndirectBlock).at(child);
            self.sb.check_blocks("block pointer", child, 1).map_err(|problem| place.corrupt(problem))?;
            let buffer = self.metadata(child, place)?;
            let rest = pointers_from(&buffer, index / self.span(below)).unwrap_or_default();
            if below == 0 {
                return self.run_of_pointers(node, rest);
            }
            pointer = pointers(rest).next().unwrap_or_default();
            index %= self.span(below);
        }
        Ok(Run { mapping: Mapping::Hole, len: 1 })
    }

    /// The run that the first of these pointers begins.
    fn run_of_pointers(&self, node: &Snapshot, bytes: &[u8]) -> Result<Run> {
        let first = pointers(bytes).next().unwrap_or_default();
        if first == 0 {
            let len = (1..).zip(pointers(bytes)).take_while(|&(_, pointer)| pointer == 0).last();
            return Ok(Run { mapping: Mapping::Hole, len: len.map_or(1, |(count, _)| count) });
        }
        let start = u64::from(first);
        let len = (0..).zip(pointers(bytes)).take_while(|&(n, next)| u64::from(next) == start + n).count();
        let len = u64::try_from(len).unwrap_or(1);
        let start = BlockNumber(start);
        let place = node.place(Structure::IndirectBlock);
        self.sb.check_blocks("block pointer", start, len).map_err(|problem| place.corrupt(problem))?;
        Ok(Run { mapping: Mapping::Data(start), len })
    }
}

fn pointers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes)
}

/// The pointers from number `index` on; `None` past the last.
fn pointers_from(bytes: &[u8], index: u64) -> Option<&[u8]> {
    let at = usize::try_from(index).ok()?.checked_mul(POINTER_LEN)?;
    bytes.get(at..).filter(|rest| !rest.is_empty())
}
