//! Errors of opening a device. Reads and writes fail with [`std::io::Error`].

use std::io;
use std::path::PathBuf;

use crate::Format;
use crate::Holder;
use crate::listing::Listing;

/// Why a device or partition cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refuses.
    #[error("{}: {}", path.display(), reason(source))]
    Open {
        /// File.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Another program has the file open for writing.
    #[error(
        "{} is being written by {}: end that first, or open it read-only",
        path.display(), holder.as_ref().map_or("another program".to_owned(), ToString::to_string)
    )]
    Locked {
        /// File.
        path: PathBuf,
        /// The writer, if known.
        holder: Option<Holder>,
    },
    /// The path is no file or block device.
    #[error("{} is neither a regular file nor a block device but {kind}", path.display())]
    NotADevice {
        /// File.
        path: PathBuf,
        /// Its type.
        kind: &'static str,
    },
    /// The range exceeds the device.
    #[error("{len} bytes at offset {start} are not all on the device, which has {size} bytes")]
    OutOfRange {
        /// Start in bytes.
        start: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// The device could not be read.
    #[error("cannot read the partition table: {0}")]
    Read(#[source] io::Error),
    /// There is a partition table, but this build reads none.
    #[cfg(not(feature = "partitions"))]
    #[error(
        "this build reads no partition tables (cargo feature `partitions`); say where the file system \
         begins with --offset BYTES"
    )]
    NoTables,
    /// The partition table is invalid.
    #[error(
        "damaged partition table ({table}): {problem}; say where the file system begins with --offset BYTES"
    )]
    PartitionTable {
        /// Kind of table.
        table: &'static str,
        /// Problem and place.
        problem: String,
    },
    /// No partition can be added.
    #[error("no partition can be added: {problem}")]
    NotAppended {
        /// Reason.
        problem: String,
    },
    /// The content has a format that is not read here.
    #[error("this is {format}")]
    Foreign {
        /// Format.
        format: Format,
    },
    /// Neither the device nor a partition has an ext superblock.
    #[error(
        "no ext2, ext3 or ext4 file system here; say where it is with --partition N or --offset BYTES (0 where a \
         superblock at the beginning may be damaged: a backup is looked for). Found:{found}"
    )]
    NoExt {
        /// All partitions.
        found: Listing,
    },
    /// Several partitions qualify.
    #[error("several ext file systems here; choose one with --partition N. Found:{found}")]
    SeveralExt {
        /// Partitions with an ext superblock.
        found: Listing,
    },
    /// There is no such partition.
    #[error("there is no partition {number}; choose another with --partition N. Found:{found}")]
    NoSuchPartition {
        /// Its number.
        number: u32,
        /// All partitions.
        found: Listing,
    },
}

/// Without the errno.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
