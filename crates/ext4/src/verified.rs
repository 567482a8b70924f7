//! Metadata blocks are verified at their first use only: checksums of cached blocks took 12% of a
//! creation.

use crate::{Ext4, Place, Result};
use dentree_bufcache::Buffer;
use dentree_ext4_format::{ChecksumSeed, GroupNumber, Problem};

/// One block of a hostile image may be used as several structures.
#[derive(Clone, Copy)]
pub(crate) enum VerifiedAs {
    DirectoryLeaf(ChecksumSeed),
    DirectoryIndex(ChecksumSeed),
    ExtentNode(ChecksumSeed),
    InodeBitmap(GroupNumber),
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
    /// Skips a block that passed before. Later versions inherit the mark, as changes keep a block
    /// valid.
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

    /// The block was just created.
    pub(crate) fn set_verified(&self, place: Place, checked: VerifiedAs) -> Result<()> {
        if let Some(block) = place.block {
            let made = self.cache.get(block.0).map_err(|source| place.io(source))?;
            self.cache.set_mark(block.0, &made, checked.mark());
        }
        Ok(())
    }
}
