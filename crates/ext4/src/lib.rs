//! The ext4 file system (and ext2, ext3).
//!
//! [`Ext4::open`] replays a journal that needs recovery: in memory if opened for reading, which
//! never writes to the image, else onto the device. [`Ext4`] implements
//! [`FileSystem`](dentree_vfs::FileSystem).
//!
//! ```
//! use dentree_blockdev::MemoryDevice;
//! use dentree_ext4::{Ext4, Options};
//! use dentree_vfs::{Identity, Vfs, WalkOptions};
//! use std::{io::Read, sync::Arc};
//!
//! // A file would be opened with `FileDevice`; this is a small image of the tests.
//! let packed = &include_bytes!("../tests/images/ext4-sums.img.gz")[..];
//! let mut image = Vec::new();
//! flate2::read::GzDecoder::new(packed).read_to_end(&mut image)?;
//!
//! let fs = Ext4::open(Arc::new(MemoryDevice::from(image)), Options::default())?;
//! let vfs = Vfs::new(fs)?;
//! let file = vfs.walk(&Identity::Superuser, vfs.root(), b"a/../a/hard", WalkOptions::FOLLOW)?;
//! let mut content = [0; 32];
//! let len = vfs.read(&file, 0, &mut content)?;
//! assert_eq!(&content[..len], b"hello\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who protects what
//! An [`Ext4`] opened for reading takes no lock of its own; only the buffer cache and hints for
//! read-ahead change. One opened for writing has a `Writer` (`txn/writer.rs`) with the journal, and
//! locks of directories, inodes and block groups (`docs/LOCKING.md`, `docs/internals/writing.md`).
//! Metadata goes through the buffer cache, file content from the device into the caller's buffer,
//! one request for each contiguous run.
//!
//! # What is verified
//! Each metadata block's checksum at its first use as a structure, and each block number against
//! the file system's size. Extent trees and htrees lose a level with each step, so no search loops.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(all(test, not(loom)))]
extern crate self as dentree_ext4;

mod alloc;
mod check;
// Shared with the integration tests.
#[cfg(all(test, not(loom)))]
#[path = "../tests/common/mod.rs"]
mod common;
mod deleted_names;
mod dir;
mod error;
mod file;
mod fs;
mod history;
mod inode;
mod layout;
mod map;
pub mod mkfs;
mod open;
mod read_ahead;
mod resize;
mod salvage;
mod statfs;
mod tune;
mod txn;
mod undelete;
mod verified;
mod xattr;

pub use check::{CheckOptions, Code, Defect, Finding, Repair, Scope};
pub use deleted_names::DeletedName;
pub use dentree_bufcache::BhLruSize;
pub use dentree_ext4_format::{
    BlockNumber, BlockSize, Compat, GroupNumber, Incompat, InodeNumber, InodeTime, LogicalBlock, Problem,
    RoCompat, Superblock,
};
pub use dentree_jbd2::{Error as JournalError, History, LoggedCopy, LoggedTransaction, Tid};
pub use error::{Error, Place, Result, Structure};
pub use history::InodeVersion;
pub use inode::Node;
pub use layout::{FileExtent, Layout, Part};
pub use open::{Notice, Options};
pub use read_ahead::DxReadAhead;
pub use resize::{Size, enlarged, grow, shrink, shrunk};
pub use salvage::{
    Missing, Salvage, SalvageNotice, SalvageOptions, SalvageStep, SalvagedEntry, SalvagedInode,
    SalvagedXattrs,
};
pub use tune::{Tune, tune};
pub use txn::Clock;
pub use undelete::Deleted;

use alloc::InodeTables;
use dentree_blockdev::BlockDevice;
use dentree_bufcache::BufCache;
use read_ahead::Windows;
use std::sync::Arc;
use txn::Writer;

/// An ext2, ext3 or ext4 file system.
pub struct Ext4 {
    pub(crate) sb: Superblock,
    /// Block of the superblock in use; the descriptors follow it.
    pub(crate) superblock_at: BlockNumber,
    /// Includes the replayed journal as an overlay.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cache: Arc<BufCache>,
    pub(crate) dx_read_ahead: DxReadAhead,
    pub(crate) windows: Windows,
    pub(crate) table_windows: Windows,
    pub(crate) inode_tables: InodeTables,
    notices: Vec<Notice>,
    /// `None` if opened for reading.
    pub(crate) writer: Option<Writer>,
}
