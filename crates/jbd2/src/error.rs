//! Why a journal cannot be replayed or written.

use std::io;
use std::sync::Arc;

use crate::tid::Tid;

/// Why a journal cannot be replayed or written.
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
    /// The journal needs a feature that is not implemented; no damage was found.
    #[error(
        "the journal uses {feature}, which is not supported; replay it with e2fsck on a copy of the image"
    )]
    Unsupported {
        /// What it needs.
        feature: String,
    },
    /// The journal needs recovery, and was opened for writing.
    #[error("the journal needs recovery: replay it before the image is written")]
    NotClean,
    /// The device could not be written, before anything was acknowledged.
    #[error("cannot write the journal's changes to the device: {0}")]
    Write(#[source] io::Error),
    /// The journal is aborted: the file system is read-only from now on.
    #[error(
        "the journal is aborted, the file system is now read-only: {0}; acknowledged changes are in the journal: \
         unmount, check the device, and open the image again"
    )]
    Aborted(Arc<Cause>),
    /// An operation needs more blocks than a transaction can have.
    #[error("an operation needs {credits} blocks in one transaction, and the journal allows {most}")]
    TooLarge {
        /// Blocks asked for.
        credits: u32,
        /// Blocks that a transaction may change.
        most: u32,
    },
}

/// Why a journal was aborted.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The device failed.
    #[error("{doing} failed: {source}")]
    Device {
        /// Which step.
        doing: &'static str,
        /// What the device said.
        source: io::Error,
    },
    /// A thread panicked in the middle of a change.
    #[error("a thread panicked in the middle of a change")]
    Panicked,
    /// A block was changed in the transaction that had freed it.
    #[error("block {block} was reused in the transaction that freed it (a defect of this program)")]
    UsedAfterFree {
        /// The block, counted in the file system.
        block: u64,
    },
    /// Credits were overdrawn.
    #[error("a transaction has {blocks} blocks, and the log has room for {most} (a defect of this program)")]
    Overgrown {
        /// Blocks that it changed.
        blocks: usize,
        /// Blocks that the log has room for.
        most: usize,
    },
    /// What the file system reports.
    #[error("{0}")]
    FileSystem(String),
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl Cause {
    /// Makes a device's error the cause.
    pub(crate) fn during(doing: &'static str) -> impl FnOnce(io::Error) -> Cause {
        move |source| Cause::Device { doing, source }
    }
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
    #[error("superblock (journal block 0) says {superblock} blocks, and the journal inode has {inode}")]
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

impl From<Arc<Cause>> for Error {
    fn from(cause: Arc<Cause>) -> Self {
        Error::Aborted(cause)
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Error::Corrupt { damage }
    }
}
