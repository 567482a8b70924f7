//! Why a journal cannot be replayed.

use std::io;

use crate::format::Tid;

/// Why a journal cannot be replayed. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device could not be read.
    #[error("cannot read journal block {block} (device block {physical}): {source}")]
    Read {
        /// The block, counted in the journal.
        block: u32,
        /// The block, counted on the device.
        physical: u64,
        /// What the device said.
        source: io::Error,
    },
    /// The journal contradicts itself.
    #[error("damaged journal: {damage}; e2fsck can repair a copy of the image, or open it without replay")]
    Corrupt {
        /// Where and how.
        damage: Damage,
    },
    /// The journal is sound as far as can be told, but needs what is not there yet.
    #[error(
        "the journal uses {feature}, which is not supported; replay it with e2fsck on a copy of the image"
    )]
    Unsupported {
        /// What it needs.
        feature: String,
    },
}

/// What is wrong with a journal, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The journal's first block.
    #[error("superblock (journal block 0): {check}")]
    Superblock {
        /// What does not hold.
        check: &'static str,
    },
    /// The journal's file is shorter than its superblock says.
    #[error("superblock (journal block 0) counts {superblock} blocks, and its inode has {inode}")]
    TooShort {
        /// `s_maxlen`.
        superblock: u32,
        /// Blocks that the inode maps.
        inode: u64,
    },
    /// A block of a transaction that is committed.
    #[error("transaction {tid}, {structure} in journal block {block}: {check}")]
    Block {
        /// The transaction.
        tid: Tid,
        /// Descriptor, revoke or commit block.
        structure: &'static str,
        /// The block, counted in the journal.
        block: u32,
        /// What does not hold.
        check: &'static str,
    },
    /// A journalled copy of a block of the file system.
    #[error("transaction {tid}, copy of block {target} in journal block {block}: {check}")]
    Copy {
        /// The transaction.
        tid: Tid,
        /// The block, counted in the file system.
        target: u64,
        /// The block, counted in the journal.
        block: u32,
        /// What does not hold.
        check: &'static str,
    },
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Error::Corrupt { damage }
    }
}
