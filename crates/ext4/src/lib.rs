//! The ext4 file system (and ext2, ext3): inodes, block maps, directories, extended attributes.
//!
//! [`Ext4::open`] reads the superblock, and the journal where that needs recovery. Opened for
//! reading, an image is never written: the journal is replayed in memory. Opened for writing, the
//! journal is replayed onto the device, and later changes go through it. [`Ext4`] implements
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
//! An [`Ext4`] opened for reading has no mutable state but the buffer cache and hints for
//! read-ahead, and takes no lock of its own. One opened for writing also has a `Writer`
//! (`txn/writer.rs`) with the journal, and locks of directories, inodes and block groups: see
//! `docs/LOCKING.md` and `docs/internals/writing.md`. Metadata is read through the buffer cache;
//! file content goes straight from the device into the caller's buffer, one request for each run of
//! adjacent blocks.
//!
//! # What is verified
//! Each metadata block's checksum, when the block is first used as what it is; each pointer,
//! against the file system's size. Extent trees and htrees lose a level with each step down, so no
//! image can make a search loop.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(all(test, not(loom)))]
extern crate self as dentree_ext4;

mod alloc;
mod check;
// Shared with the integration tests, for unit tests that need private items.
#[cfg(all(test, not(loom)))]
#[path = "../tests/common/mod.rs"]
mod common;
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
mod statfs;
mod tune;
mod txn;
mod undelete;
mod verified;
mod xattr;

pub use check::{CheckOptions, Defect, Finding};
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
pub use resize::{Size, enlarged, grow};
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
    /// The block of the superblock in use; the descriptors follow it.
    pub(crate) superblock_at: BlockNumber,
    /// With the replayed journal as an overlay.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cache: Arc<BufCache>,
    pub(crate) dx_read_ahead: DxReadAhead,
    pub(crate) windows: Windows,
    pub(crate) table_windows: Windows,
    pub(crate) inode_tables: InodeTables,
    notices: Vec<Notice>,
    /// Present if the file system may be changed.
    pub(crate) writer: Option<Writer>,
}
