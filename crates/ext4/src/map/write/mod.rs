//! Changes of a file's block map: extent trees and indirect blocks.
//!
//! The only change is [`Ext4::remap`]: it maps a range of file blocks, or unmaps it. It works on a
//! copy of the inode, which the caller then makes current, and in steps: each changes one leaf, so
//! that it needs few credits, and leaves the tree valid. Blocks for new nodes are allocated first,
//! so a full device fails before any change.

mod extents;
mod indirect;
mod nodes;

use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, Inode, InodeFlags, InodeNumber};
use dentree_jbd2::Handle;
use std::ops::Range;

/// An inode whose block map is changed: `inode` is the caller's copy.
pub(crate) struct Mapped<'a> {
    pub(crate) ino: InodeNumber,
    pub(crate) inode: &'a mut Inode,
}

impl Mapped<'_> {
    /// Adds blocks to `i_blocks`, or subtracts them.
    pub(crate) fn count_blocks(&mut self, fs: &Ext4, blocks: i64) {
        let sectors = blocks << (fs.sb.block_size.log2() - 9);
        self.inode.sectors = self.inode.sectors.saturating_add_signed(sectors);
    }
}

/// What a range of file blocks is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The first block on the device; the others follow.
    pub(crate) start: BlockNumber,
    /// Whether it reads as zeros (extents only).
    pub(crate) unwritten: bool,
}

/// Blocks that one step may change: the nodes of a path, as many new ones, and a bitmap and
/// descriptor for each run allocated or freed.
pub(crate) const STEP_CREDITS: u32 = 48;

/// Most extents that one step unmaps: each may be in another group.
const STEP_EXTENTS: usize = 8;

impl Ext4 {
    /// Maps a first part of `range` to the beginning of `target`, or unmaps it. Returns where that
    /// part ends. Changes at most [`STEP_CREDITS`] blocks. Frees blocks that are no longer mapped,
    /// and updates `i_blocks`, except for blocks of `target`, which the caller has allocated and
    /// counted.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt` and `Io` before any change.
    pub(crate) fn remap(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        range: Range<u64>,
        target: Option<Target>,
    ) -> Result<u64> {
        if file.inode.flags.has(InodeFlags::EXTENTS) {
            self.remap_extents(handle, file, range, target)
        } else {
            self.remap_pointers(handle, file, range, target.map(|target| target.start))
        }
    }
}
