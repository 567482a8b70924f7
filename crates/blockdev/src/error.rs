//! Errors of opening a device. Reads and writes fail with [`std::io::Error`].

use std::io;
use std::path::PathBuf;

use crate::Format;
use crate::listing::Listing;
use crate::Holder;

/// Why a device, or the part of it that was asked for, could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {}", path.display(), reason(source))]
    Open {
        /// The file asked for.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Another program has the file open for writing.
    #[error(
        "{} is being written by {}: end that first, or open it read-only",
        path.display(), holder.as_ref().map_or("another program".to_owned(), ToString::to_string)
    )]
    Locked {
        /// The file asked for.
        path: PathBuf,
        /// The writer, where the system tells.
        holder: Option<Holder>,
    },
    /// The path leads to something that holds no blocks.
    #[error("{} is neither a regular file nor a block device but {kind}", path.display())]
    NotADevice {
        /// The file asked for.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Part of the range is not on the device.
    #[error("{len} bytes at offset {start} are not all on the device, which has {size} bytes")]
    OutOfRange {
        /// First byte of the part.
        start: u64,
        /// Length of the part in bytes.
        len: u64,
        /// Length of the device in bytes.
        size: u64,
    },
    /// The device could not be read.
    #[error("cannot read the partition table: {0}")]
    Read(#[source] io::Error),
    /// There is a partition table, and this build reads none.
    #[cfg(not(feature = "partitions"))]
    #[error(
        "this build reads no partition tables (cargo feature `partitions`); say where the file system \
         begins with --offset BYTES"
    )]
    NoTables,
    /// A partition table that makes no sense.
    #[error(
        "damaged partition table ({table}): {problem}; say where the file system begins with --offset BYTES"
    )]
    PartitionTable {
        /// Which kind of table.
        table: &'static str,
        /// What is wrong, and where.
        problem: String,
    },
    /// No partition can be added.
    #[error("no partition can be added: {problem}")]
    NotAppended {
        /// Why not.
        problem: String,
    },
    /// What is here begins as a format that is not read.
    #[error("this is {format}")]
    Foreign {
        /// The format.
        format: Format,
    },
    /// Neither the device nor a partition of it begins with an ext superblock.
    #[error(
        "no ext2, ext3 or ext4 file system here; say where it is with --partition N or --offset BYTES (0 where a \
         superblock at the beginning may be damaged: a backup is looked for). Found:{found}"
    )]
    NoExt {
        /// All partitions.
        found: Listing,
    },
    /// More than one partition could be meant.
    #[error("several ext file systems here; choose one with --partition N. Found:{found}")]
    SeveralExt {
        /// The partitions with an ext superblock.
        found: Listing,
    },
    /// There is no partition of that number.
    #[error("there is no partition {number}; choose another with --partition N. Found:{found}")]
    NoSuchPartition {
        /// The number asked for.
        number: u32,
        /// All partitions.
        found: Listing,
    },
}

/// The reason of the operating system in words, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
