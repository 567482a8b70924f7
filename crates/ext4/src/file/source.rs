//! Where bytes of a file are before they are on the device.

use super::Content;

/// Where the bytes are that are stored.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// In memory.
    Held(&'a Content),
    /// With who writes them.
    Given(Given<'a>),
}

/// Blocks of a file as who writes them has them.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The file block that they begin with.
    pub(super) first: u32,
    pub(super) bytes: &'a [u8],
    pub(super) block_size: usize,
}

impl<'a> Given<'a> {
    /// `count` of them from `first` on.
    pub(super) fn blocks(self, first: u32, count: u32) -> &'a [u8] {
        let bytes =
            |blocks: u32| usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(self.block_size);
        let begin = bytes(first - self.first);
        self.bytes.get(begin..begin.saturating_add(bytes(count))).unwrap_or_default()
    }
}
