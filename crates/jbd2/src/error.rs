use std::io;
use std::sync::Arc;

use crate::tid::Tid;

/// Why a journal cannot be replayed or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device could not be read.
    #[error("cannot read journal block {block} (device block {physical}): {source}")]
    Read {
        /// Block of the journal.
        block: u32,
        /// Block of the device.
        physical: u64,
        /// The device's error.
        source: io::Error,
    },
    /// The journal is damaged.
    #[error("damaged journal: {damage}; e2fsck can repair a copy of the image, or open it without replay")]
    Corrupt {
        /// Where and how.
        damage: Damage,
    },
    /// The journal uses an unsupported feature.
    #[error(
        "the journal uses {feature}, which is not supported; replay it with e2fsck on a copy of the image"
    )]
    Unsupported {
        /// The feature.
        feature: String,
    },
    /// The journal needs recovery before it can be written.
    #[error("the journal needs recovery: replay it before the image is written")]
    NotClean,
    /// The device failed before any change was acknowledged.
    #[error("cannot write the journal's changes to the device: {0}")]
    Write(#[source] io::Error),
    /// The journal is aborted: the file system is read-only.
    #[error(
        "the journal is aborted, the file system is now read-only: {0}; acknowledged changes are in the journal: \
         unmount, check the device, and open the image again"
    )]
    Aborted(Arc<Cause>),
    /// An operation needs more blocks than a transaction may have.
    #[error("an operation needs {credits} blocks in one transaction, but the journal allows {most}")]
    TooLarge {
        /// Blocks requested.
        credits: u32,
        /// Most blocks of a transaction.
        most: u32,
    },
}

/// Why a journal was aborted.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The device failed.
    #[error("{doing} failed: {source}")]
    Device {
        /// The failed step.
        doing: &'static str,
        /// The device's error.
        source: io::Error,
    },
    /// A thread panicked during a change.
    #[error("a thread panicked during a change")]
    Panicked,
    /// A block was changed in the transaction that freed it.
    #[error("block {block} was reused in the transaction that freed it (a bug in dentree)")]
    UsedAfterFree {
        /// Block of the file system.
        block: u64,
    },
    /// Handles overdrew their credits.
    #[error("a transaction has {blocks} blocks, but the log has space for {most} (a bug in dentree)")]
    Overgrown {
        /// Blocks changed.
        blocks: usize,
        /// Most blocks of the log.
        most: usize,
    },
    /// Reported by the file system.
    #[error("{0}")]
    FileSystem(String),
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl Cause {
    pub(crate) fn during(doing: &'static str) -> impl FnOnce(io::Error) -> Cause {
        move |source| Cause::Device { doing, source }
    }
}

/// Damage in a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// In the superblock.
    #[error("superblock (journal block 0): {check}")]
    Superblock {
        /// The failed check.
        check: &'static str,
    },
    /// The journal's inode is shorter than its superblock says.
    #[error(
        "superblock (journal block 0): s_maxlen is {superblock}, but the journal's inode maps {inode} blocks"
    )]
    TooShort {
        /// `s_maxlen`.
        superblock: u32,
        /// Blocks that the inode maps.
        inode: u64,
    },
    /// In a block of a committed transaction.
    #[error("transaction {tid}, {structure} in journal block {block}: {check}")]
    Block {
        /// The transaction.
        tid: Tid,
        /// Descriptor, revoke or commit block.
        structure: &'static str,
        /// Block of the journal.
        block: u32,
        /// The failed check.
        check: &'static str,
    },
    /// In the copy of a block.
    #[error("transaction {tid}, copy of block {target} in journal block {block}: {check}")]
    Copy {
        /// The transaction.
        tid: Tid,
        /// Block of the file system.
        target: u64,
        /// Block of the journal.
        block: u32,
        /// The failed check.
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
