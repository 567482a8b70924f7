//! The source of blocks that are written to the device.

use super::Content;

/// Where the blocks are.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Dirty blocks in memory.
    Dirty(&'a Content),
    /// In the caller's buffer.
    Direct(CallerBlocks<'a>),
}

/// Blocks in the caller's buffer.
#[derive(Clone, Copy)]
pub(super) struct CallerBlocks<'a> {
    /// The first one's number in the file.
    pub(super) first: u32,
    pub(super) bytes: &'a [u8],
    pub(super) block_size: usize,
}

impl<'a> CallerBlocks<'a> {
    /// `count` blocks from `first`.
    pub(super) fn range(self, first: u32, count: u32) -> &'a [u8] {
        let bytes =
            |blocks: u32| usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(self.block_size);
        let begin = bytes(first - self.first);
        self.bytes.get(begin..begin.saturating_add(bytes(count))).unwrap_or_default()
    }
}
