//! Changes of block maps, in steps of bounded credits.
//!
//! Each step of [`Ext4::remap`] changes one leaf of the tree and leaves the tree valid. It works on
//! a copy of the inode. Blocks for new nodes are allocated first, so ENOSPC comes before any
//! change.

mod extents;
mod indirect;
mod nodes;

use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, Inode, InodeFlags, InodeNumber};
use dentree_jbd2::Handle;
use std::ops::Range;

/// `inode` is a copy, which the caller makes current.
pub(crate) struct Mapped<'a> {
    pub(crate) ino: InodeNumber,
    pub(crate) inode: &'a mut Inode,
}

impl Mapped<'_> {
    pub(crate) fn count_blocks(&mut self, fs: &Ext4, blocks: i64) {
        let sectors = blocks << (fs.sb.block_size.log2() - 9);
        self.inode.sectors = self.inode.sectors.saturating_add_signed(sectors);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) start: BlockNumber,
    /// Reads as zeros (extents only).
    pub(crate) unwritten: bool,
}

/// A path's nodes, as many new ones, and a bitmap and descriptor for each run allocated or freed.
pub(crate) const STEP_CREDITS: u32 = 48;

/// Most extents that a step unmaps: each may be in another group.
const STEP_EXTENTS: usize = 8;

impl Ext4 {
    /// Maps the first part of `range` to the beginning of `target`, or unmaps and frees it. Returns
    /// its end. Changes at most [`STEP_CREDITS`] blocks. The caller has allocated `target` and
    /// counted it in `i_blocks`.
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
