//! Changes of a file's block map: extent trees and trees of block pointers.
//!
//! There is one change: a range of file blocks gets a new mapping, or none ([`Ext4::remap`]). It is made on a copy of the
//! inode, which the caller then makes the current one, and step by step: each step changes one leaf of the tree, so that it needs
//! few credits, and leaves the tree whole. Blocks for new nodes are taken before anything is changed: where the device is full
//! nothing has happened.

mod extents;
mod indirect;
mod nodes;

use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, Inode, InodeFlags, InodeNumber};
use dentree_jbd2::Handle;
use std::ops::Range;

/// An inode whose block map is being changed: `inode` is the caller's copy.
pub(crate) struct Mapped<'a> {
    pub(crate) ino: InodeNumber,
    pub(crate) inode: &'a mut Inode,
}

impl Mapped<'_> {
    /// Counts blocks that the file got, or lost.
    pub(crate) fn count_blocks(&mut self, fs: &Ext4, blocks: i64) {
        let sectors = blocks << (fs.sb.block_size.log2() - 9);
        self.inode.sectors = self.inode.sectors.saturating_add_signed(sectors);
    }
}

/// What a range of file blocks is to be mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The first block on the device; the others follow.
    pub(crate) start: BlockNumber,
    /// Whether it reads as zeros (extents only).
    pub(crate) unwritten: bool,
}

/// Blocks that one step may change: a path of nodes, as many new ones, and for all that it takes or frees the bitmap and descriptor of a group.
pub(crate) const STEP_CREDITS: u32 = 48;

/// Most extents that one step unmaps: each may lie in a group of its own.
const STEP_EXTENTS: usize = 8;

impl Ext4 {
    /// Maps a part of `range`, from its beginning, to the beginning of `target`, or to nothing; answers where that part ends. At most
    /// [`STEP_CREDITS`] blocks are changed. Blocks that are mapped no longer are freed; `i_blocks` is kept, but not for blocks of `target`:
    /// those the caller has taken, and accounted.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt` and `Io` before anything was changed.
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
