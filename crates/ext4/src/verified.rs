//! Blocks of metadata are verified once, not at each use: 12% of a creation's time went into checksums of blocks that had been read or
//! changed just before.

use crate::{Ext4, Place, Result};
use dentree_bufcache::Buffer;
use dentree_ext4_format::{ChecksumSeed, GroupNumber, Problem};

/// What a block was found to be, by its checksum: on a hostile image it may be claimed as several things.
#[derive(Clone, Copy)]
pub(crate) enum Checked {
    /// A leaf of the directory whose checksums begin with this.
    DirectoryLeaf(ChecksumSeed),
    /// A block of its index.
    DirectoryIndex(ChecksumSeed),
    /// A node of the extent tree of such an inode.
    ExtentNode(ChecksumSeed),
    /// The bitmap of a group's inodes.
    InodeBitmap(GroupNumber),
    /// The bitmap of a group's blocks.
    BlockBitmap(GroupNumber),
}

impl Checked {
    fn mark(self) -> u64 {
        let (kind, whose) = match self {
            Checked::DirectoryLeaf(seed) => (1, seed.0),
            Checked::DirectoryIndex(seed) => (2, seed.0),
            Checked::ExtentNode(seed) => (3, seed.0),
            Checked::InodeBitmap(group) => (4, group.0),
            Checked::BlockBitmap(group) => (5, group.0),
        };
        kind << 32 | u64::from(whose)
    }
}

impl Ext4 {
    /// Checks the checksum and the like of the block of metadata at `place`, unless that was done since it was read. Who changes a block
    /// leaves it as sound as it was, so that its later versions need no check.
    pub(crate) fn check_once(
        &self,
        place: Place,
        buffer: &Buffer,
        checked: Checked,
        check: impl FnOnce() -> Result<(), Problem>,
    ) -> Result<()> {
        let mark = checked.mark();
        if buffer.mark() != mark {
            check().map_err(|problem| place.corrupt(problem))?;
            if let Some(block) = place.block {
                self.cache.set_mark(block.0, buffer, mark);
            }
        }
        Ok(())
    }

    /// Notes that the block of metadata at `place`, which was just made, is sound.
    pub(crate) fn note_checked(&self, place: Place, checked: Checked) -> Result<()> {
        if let Some(block) = place.block {
            let made = self.cache.get(block.0).map_err(|source| place.io(source))?;
            self.cache.set_mark(block.0, &made, checked.mark());
        }
        Ok(())
    }
}
