//! Metadata blocks are verified once, not at each use. Checksums of blocks read or changed just
//! before took 12% of the time of a creation.

use crate::{Ext4, Place, Result};
use dentree_bufcache::Buffer;
use dentree_ext4_format::{ChecksumSeed, GroupNumber, Problem};

/// What a block was verified as. A hostile image may use one block as several things, and each use
/// verifies it.
#[derive(Clone, Copy)]
pub(crate) enum VerifiedAs {
    /// A leaf of the directory with this seed.
    DirectoryLeaf(ChecksumSeed),
    /// An index block of the directory with this seed.
    DirectoryIndex(ChecksumSeed),
    /// An extent node of the inode with this seed.
    ExtentNode(ChecksumSeed),
    /// The inode bitmap of a group.
    InodeBitmap(GroupNumber),
    /// The block bitmap of a group.
    BlockBitmap(GroupNumber),
}

impl VerifiedAs {
    fn mark(self) -> u64 {
        let (kind, whose) = match self {
            VerifiedAs::DirectoryLeaf(seed) => (1, seed.0),
            VerifiedAs::DirectoryIndex(seed) => (2, seed.0),
            VerifiedAs::ExtentNode(seed) => (3, seed.0),
            VerifiedAs::InodeBitmap(group) => (4, group.0),
            VerifiedAs::BlockBitmap(group) => (5, group.0),
        };
        kind << 32 | u64::from(whose)
    }
}

impl Ext4 {
    /// Runs `check` on the metadata block at `place`, unless it passed before. Changes keep a block
    /// valid, so its later versions inherit the mark.
    pub(crate) fn verify_once(
        &self,
        place: Place,
        buffer: &Buffer,
        checked: VerifiedAs,
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

    /// Marks a metadata block that was just created as valid.
    pub(crate) fn set_verified(&self, place: Place, checked: VerifiedAs) -> Result<()> {
        if let Some(block) = place.block {
            let made = self.cache.get(block.0).map_err(|source| place.io(source))?;
            self.cache.set_mark(block.0, &made, checked.mark());
        }
        Ok(())
    }
}
