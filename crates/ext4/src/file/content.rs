//! Dirty content, and sources of blocks to write.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(super) blocks: BTreeMap<u32, Block>,
    /// Blocks with a reservation.
    pub(super) reserved: u64,
    /// Times or length differ from the inode table.
    pub(super) is_inode_dirty: bool,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Box<[u8]>,
    /// No block is allocated yet.
    pub(super) is_reserved: bool,
}

impl Content {
    pub(super) fn is_clean(&self) -> bool {
        self.blocks.is_empty() && !self.is_inode_dirty
    }

    pub(super) fn next_block(&self, from: u64, end: u64) -> Option<u32> {
        let from = u32::try_from(from).ok()?;
        let next = self.blocks.range(from..).next().map(|(&block, _)| block);
        next.filter(|&block| u64::from(block) < end)
    }
}

#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Dirty(&'a Content),
    Direct(CallerBlocks<'a>),
}

#[derive(Clone, Copy)]
pub(super) struct CallerBlocks<'a> {
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
