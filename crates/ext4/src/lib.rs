//! The ext4 file system (and ext2, ext3): inodes, block maps, directories, extended attributes.
//!
//! [`Ext4::open`] reads a superblock and, where the journal needs recovery, replays it in memory; the image is
//! never written. Everything else is read when it is asked for. [`Ext4`] implements
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
//! An [`Ext4`] is immutable once open: its methods take `&self`, share no state but the buffer cache, and take
//! no lock of their own. Metadata is read through the cache; file content goes straight from the device into the
//! caller's buffer, one request for each run of blocks that lie together.
//!
//! # What is verified
//! Every structure's checksum where the file system has any, each time it is used, but for where a group's inode table
//! begins, which is kept; every pointer against the
//! file system's size before it is followed. Extent trees and htrees get one level shallower with each step, so no
//! image can send a reader in circles.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(all(test, not(loom)))]
extern crate self as dentree_ext4;

mod alloc;
// What the tests of files share, for those tests that must look inside.
#[cfg(all(test, not(loom)))]
#[path = "../tests/common/mod.rs"]
mod common;
mod dir;
mod error;
mod file;
mod fs;
mod inode;
mod map;
pub mod mkfs;
mod open;
mod read_ahead;
mod statfs;
mod sync;
mod txn;
mod verified;
mod xattr;

pub use dentree_bufcache::BhLruSize;
pub use dentree_ext4_format::{
    BlockNumber, BlockSize, Compat, GroupNumber, Incompat, InodeNumber, InodeTime, LogicalBlock, Problem,
    RoCompat, Superblock,
};
pub use error::{Error, Place, Result, Structure};
pub use inode::Node;
pub use open::{Notice, Options};
pub use read_ahead::DxReadAhead;
pub use txn::Clock;

use alloc::InodeTables;
use dentree_blockdev::BlockDevice;
use dentree_bufcache::BufCache;
use read_ahead::Windows;
use std::sync::Arc;
use txn::Writer;

/// An ext2, ext3 or ext4 file system.
pub struct Ext4 {
    pub(crate) sb: Superblock,
    /// The block that the superblock in use lies in: descriptors follow it.
    pub(crate) superblock_at: BlockNumber,
    /// With the replayed journal over it.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cache: Arc<BufCache>,
    pub(crate) dx_read_ahead: DxReadAhead,
    pub(crate) windows: Windows,
    pub(crate) table_windows: Windows,
    pub(crate) inode_tables: InodeTables,
    notices: Vec<Notice>,
    /// Where the file system may be changed.
    pub(crate) writer: Option<Writer>,
}
