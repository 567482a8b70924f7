//! Dirty content of a file, and the sources of blocks that are written to the device.

use std::collections::BTreeMap;

/// The dirty content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(super) blocks: BTreeMap<u32, Block>,
    /// How many of them have a reserved block.
    pub(super) reserved: u64,
    /// Times or length differ from the inode table.
    pub(super) is_inode_dirty: bool,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Box<[u8]>,
    /// A block is reserved for it, as none is allocated.
    pub(super) is_reserved: bool,
}

impl Content {
    /// Whether there is nothing to write back.
    pub(super) fn is_clean(&self) -> bool {
        self.blocks.is_empty() && !self.is_inode_dirty
    }

    pub(super) fn next_block(&self, from: u64, end: u64) -> Option<u32> {
        let from = u32::try_from(from).ok()?;
        let next = self.blocks.range(from..).next().map(|(&block, _)| block);
        next.filter(|&block| u64::from(block) < end)
    }
}

/// Where blocks are that are written to the device.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Dirty blocks in memory.
    Dirty(&'a Content),
    Direct(CallerBlocks<'a>),
}

#[derive(Clone, Copy)]
pub(super) struct CallerBlocks<'a> {
    /// The first one's number in the file.
    pub(super) first: u32,
    pub(super) bytes: &'a [u8],
    pub(super) block_size: usize,
}

impl<'a> CallerBlocks<'a> {
    pub(super) fn range(self, first: u32, count: u32) -> &'a [u8] {
        let bytes =
            |blocks: u32| usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(self.block_size);
        let begin = bytes(first - self.first);
        self.bytes.get(begin..begin.saturating_add(bytes(count))).unwrap_or_default()
    }
}
