//! Creating file systems.
//!
//! [`mkfs`] writes an empty ext2, ext3 or ext4 file system with the layout of mke2fs (e2fsprogs
//! 1.47). It skips blocks of zeros, so a sparse file stays sparse: 20 GiB need some hundred blocks.
//! With descriptor checksums, bitmaps are created at a group's first use.
//!
//! The primary superblock is written last, after a flush: an interrupted mkfs is not mounted.
//!
//! # Differences from mke2fs
//! - Inode tables that read as zeros have `ITABLE_ZEROED`: the kernel need not zero them.
//! - Unused reserved inodes (1, 3 to 6, 9, 10) stay zero, without checksum and times.
//! - The tables of a short last flex group are adjacent.
//! - The journal is one run after the middle, even if another group has more space.
//! - A group has at least 16 inodes, not 8.
//! - `lost+found` has 16 KiB also with `inline_data`, not a block less.
//! - `s_kbytes_written` is 0.

mod content;
mod features;
mod geometry;
mod layout;
mod space;
mod write;

use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockSize, Compat, InodeNumber, InodeTime, Superblock};
use layout::Layout;
use std::io;

pub use features::Features;
pub(crate) use geometry::LEAST_DATA;

/// Options of [`mkfs`]. [`MkfsOptions::new`] gives mke2fs's defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkfsOptions {
    /// Features.
    pub features: Features,
    /// 1, 2 or 4 KiB. Default: 4 KiB, below 512 MiB 1 KiB.
    pub block_size: Option<BlockSize>,
    /// Label, at most 16 bytes.
    pub label: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes; random, against names chosen for one leaf.
    pub hash_seed: [u32; 4],
    /// Creation time, in whole seconds.
    pub now: InodeTime,
    /// At least 16 for each group. Default: by `bytes_per_inode`.
    pub inodes: Option<u32>,
    /// 1 KiB to 64 MiB. Default: by the device's size.
    pub bytes_per_inode: Option<u32>,
    /// In bytes: a power of two from 128 to the block size.
    pub inode_size: u32,
    /// Blocks reserved for root, in thousandths of a percent; at most 50000.
    pub reserved: u32,
    /// The device is all zeros, as a new sparse file is. If not, mkfs writes the zeros, which takes
    /// time.
    pub reads_as_zeros: bool,
}

impl MkfsOptions {
    /// Ext4 with this identity, on a device of zeros.
    pub fn new(uuid: [u8; 16], hash_seed: [u32; 4], now: InodeTime) -> MkfsOptions {
        MkfsOptions {
            features: Features::default(),
            block_size: None,
            label: Vec::new(),
            uuid,
            hash_seed,
            now: InodeTime { nanos: 0, ..now },
            inodes: None,
            bytes_per_inode: None,
            inode_size: 256,
            reserved: 5000,
            reads_as_zeros: true,
        }
    }
}

/// Errors of [`mkfs`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// A feature that does not exist.
    #[error("the feature {name} is unknown: see `man 5 ext4`")]
    UnknownFeature {
        /// Its name.
        name: String,
    },
    /// A feature that only others support.
    #[error("the feature {name} is not supported: leave it out, or use mke2fs")]
    Unsupported {
        /// Its name.
        name: String,
    },
    /// A feature without one that it requires.
    #[error("{feature} needs {needed}: add it, or leave out {feature}")]
    Needs {
        /// The feature.
        feature: &'static str,
        /// What it requires.
        needed: &'static str,
    },
    /// An unsupported block size.
    #[error("blocks of {bytes} bytes are not supported: use 1024, 2048 or 4096")]
    BlockSize {
        /// The requested size.
        bytes: u32,
    },
    /// An unsupported inode size.
    #[error("inodes of {bytes} bytes are not supported: use a power of two from {least} to {most}")]
    InodeSize {
        /// The requested size.
        bytes: u32,
        /// The least with these features.
        least: u32,
        /// The block size.
        most: u32,
    },
    /// An invalid number of bytes for each inode.
    #[error("{bytes} bytes per inode are out of range: use 1024 to 67108864")]
    BytesPerInode {
        /// The requested number.
        bytes: u32,
    },
    /// More inodes than the groups can have.
    #[error("{inodes} inodes are too many: at most {most} fit on this device with this block size")]
    TooManyInodes {
        /// The requested number.
        inodes: u64,
        /// The limit.
        most: u64,
    },
    /// Too many reserved blocks.
    #[error("at most 50 percent of the blocks can be reserved")]
    TooManyReserved,
    /// A label that is too long.
    #[error("the label has {len} bytes, at most 16 are allowed")]
    LabelTooLong {
        /// In bytes.
        len: usize,
    },
    /// Too little space for a file system.
    #[error("{bytes} bytes are too few for a file system with these features")]
    TooSmall {
        /// In bytes.
        bytes: u64,
    },
    /// A device that is too large.
    #[error("{bytes} bytes are too many: at most {most} with this block size")]
    TooLarge {
        /// In bytes.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The device failed.
    #[error("cannot write {what}: {source}")]
    Device {
        /// What was written.
        what: &'static str,
        /// The device's error.
        source: io::Error,
    },
}

/// The new file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFileSystem {
    /// Block size.
    pub block_size: BlockSize,
    /// All blocks. A rest too small for a group is unused.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// All inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0 without one, as below 2048 blocks.
    pub journal_blocks: u32,
}

/// The superblock that [`mkfs`] would write on a device of `bytes` bytes, without counts and places
/// that follow from its content; `None` where it would refuse.
pub(crate) fn default_superblock(bytes: u64, options: &MkfsOptions) -> Option<Superblock> {
    let mut sb = geometry::superblock(bytes, options).ok()?;
    if sb.compat.has(Compat::HAS_JOURNAL) {
        sb.journal_inum = InodeNumber(8);
    }
    Some(sb)
}

/// Creates an empty file system that fills `device`. All previous content is lost.
///
/// # Errors
/// Before any write: options that do not fit the device. Then errors of the device.
///
/// ```
/// use dentree_blockdev::MemoryDevice;
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{Ext4, InodeTime, Options};
/// use std::sync::Arc;
///
/// let device = MemoryDevice::new(8 << 20);
/// let identity = MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default());
/// let options = MkfsOptions { label: b"scratch".to_vec(), ..identity };
/// let made = mkfs(&device, &options)?;
/// assert_eq!((made.blocks, made.journal_blocks), (8192, 1024));
/// let fs = Ext4::open(Arc::new(device), Options::default())?;
/// assert_eq!(fs.superblock().volume_name, b"scratch");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<NewFileSystem, MkfsError> {
    let mut sb = geometry::superblock(device.size(), options)?;
    let mut layout = Layout::of(&sb, device.size())?;
    let files = content::files(&mut sb, &mut layout, options.now)
        .ok_or(MkfsError::TooSmall { bytes: device.size() })?;
    write::write(device, &mut sb, &mut layout, &files, options.reads_as_zeros)?;
    let has_journal = sb.compat.has(Compat::HAS_JOURNAL);
    Ok(NewFileSystem {
        block_size: sb.block_size,
        blocks: sb.blocks_count,
        free_blocks: sb.free_blocks_count,
        inodes: sb.inodes_count,
        journal_blocks: if has_journal { geometry::journal_blocks(sb.blocks_count) } else { 0 },
    })
}
